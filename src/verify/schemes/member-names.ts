/** Finds members of JSON objects that an app may take for each other: many parsers ignore differences between names. */
import { foldCase } from '../../core/text.ts';

/** No path selects a longer one (core/json-path.ts). Bounds the work for a sender that is not verified yet. */
const MAX_NAME_LENGTH = 256;

/** An app may find another member by this name: returns why. `isPartial`: the signature does not cover all members. */
export function findVariant(value: object, name: string, isPartial: boolean): string | undefined {
  return (isPartial ? IGNORING_JOINS : IGNORING_CASE).findProblem(value, name);
}

class NameCheck {
  readonly #fold: (name: string) => string;
  readonly #difference: string;
  /** Several values are read from one object, so its names are folded once. */
  readonly #known = new WeakMap<object, ReadonlyMap<string, string>>();

  constructor(fold: (name: string) => string, difference: string) {
    this.#fold = fold;
    this.#difference = difference;
  }

  findProblem(value: object, name: string): string | undefined {
    const names = this.#known.get(value) ?? this.#foldNames(value);
    if (names === undefined) return `an object has a name of more than ${MAX_NAME_LENGTH} characters`;
    this.#known.set(value, names);
    const isOnly = (names.get(this.#fold(name)) ?? name) === name;
    return isOnly ? undefined : `an object has ${name} ${this.#difference} as well, or only ${this.#difference}`;
  }

  #foldNames(value: object): ReadonlyMap<string, string> | undefined {
    const names = new Map<string, string>();
    for (const name of Object.keys(value)) {
      if (name.length > MAX_NAME_LENGTH) return undefined;
      const end = name.indexOf('\0');
      // In C, a name ends at NUL.
      const folded = this.#fold(end === -1 ? name : name.slice(0, end));
      names.set(folded, names.has(folded) ? REPEATED : name);
    }
    return names;
  }
}

/** Equals no step of a path. */
const REPEATED = '\0';
/** Go and .NET ignore the case. */
const IGNORING_CASE = new NameCheck(foldCase, 'in another case');
/** Where a signature leaves members open: fastjson also ignores `-` and `_`, and so does Go if asked to. Some senders have `id` and `_id`. */
const IGNORING_JOINS = new NameCheck((name) => foldCase(name.replaceAll(/[-_]+/g, '')), 'in another case or with other - or _');
