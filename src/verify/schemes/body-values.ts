/** Reads values from a body before it is verified, because the signature, or what it covers, is in the body. */

import { type JsonPath, parseJsonPath } from '../../core/json-path.ts';
import { parseStrictJson } from '../../core/strict-json.ts';
import { foldCase } from '../../core/text.ts';
import type { BodyPlace } from './description.ts';
import { AMBIGUOUS, type FormField, findField, parseStrictForm } from './strict-form.ts';

/** Why a value cannot be read; safe to log. */
export class BodyProblem {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** More than any delivery has: the largest are batches of 1,000 events. Bounds the work for a sender that is not verified yet. */
export const JSON_BOUNDS = { maxDepth: 64, maxValues: 25_000, maxMembers: 1_000 };

/** One body, parsed when the first value is read. */
export class BodyContent {
  readonly body: Buffer;
  #json: unknown;
  #form: readonly FormField[] | BodyProblem | undefined;
  /** The JSON in form fields, by the names of the fields. */
  readonly #inFields = new Map<string, unknown>();

  constructor(body: Buffer) {
    this.body = body;
  }

  /** The body as JSON. */
  json(): unknown {
    this.#json ??= parseJson(this.body, 'the body');
    return this.#json;
  }

  /** The fields of a form. */
  form(): readonly FormField[] | BodyProblem {
    this.#form ??= parseForm(this.body);
    return this.#form;
  }

  /** The text of a form field in latin1; undefined if it is missing. */
  field(name: string): string | BodyProblem | undefined {
    const fields = this.form();
    if (fields instanceof BodyProblem) return fields;
    const found = findField(fields, name);
    return found === 'ambiguous' ? new BodyProblem(`the form field ${name} ${AMBIGUOUS}`) : found?.value;
  }

  /** The value of a form field as JSON. */
  fieldJson(name: string): unknown {
    if (!this.#inFields.has(name)) {
      const text = this.field(name);
      this.#inFields.set(
        name,
        typeof text === 'string' ? parseJson(Buffer.from(text, 'latin1'), `the form field ${name}`) : text,
      );
    }
    return this.#inFields.get(name);
  }
}

/** Reads the value at a place; undefined if it is missing. Text is latin1: one character per byte of UTF-8. */
export type ReadBodyValue = (content: BodyContent) => unknown;

/** Whether a place is in the body. */
export function isBodyPlace(place: object): place is BodyPlace {
  return 'json' in place || 'form' in place;
}

/**
 * Compiles the reader of one place. `isPartial`: the signature does not cover the rest of the body, so that a list in which the path
 * selects one item must have no others: the app would handle them as well.
 */
export function compileBodyPlace(place: BodyPlace, isPartial: boolean): ReadBodyValue {
  if ('json' in place) {
    const path = toPath(place.json);
    return (content) => toLatin1(readAt(path, content.json(), isPartial));
  }
  const { form, path: text } = place;
  if (text === undefined) return (content) => content.field(form);
  const path = toPath(text);
  return (content) => toLatin1(readAt(path, content.fieldJson(form), isPartial));
}

/** The place in words. */
export function toPlaceTitle(place: BodyPlace): string {
  if ('json' in place) return `${place.json} in the body`;
  return place.path === undefined ? `the form field ${place.form}` : `${place.path} in the form field ${place.form}`;
}

/** Parses a path that the config's validation has accepted. */
export function toPath(text: string): JsonPath {
  const path = parseJsonPath(text);
  if ('problem' in path) throw new Error(path.problem);
  return path;
}

function parseJson(text: Buffer, title: string): unknown {
  const parsed = parseStrictJson(text, JSON_BOUNDS);
  return parsed.kind === 'value' ? parsed.value : new BodyProblem(`${title} cannot be read as JSON: ${parsed.problem}`);
}

function parseForm(body: Buffer): readonly FormField[] | BodyProblem {
  const parsed = parseStrictForm(body);
  return parsed.kind === 'fields' ? parsed.fields : new BodyProblem(`the form is ambiguous: ${parsed.problem}`);
}

function readAt(path: JsonPath, value: unknown, isPartial: boolean): unknown {
  let found = value;
  for (const step of path.steps) {
    if (found instanceof BodyProblem) return found;
    if (found === undefined || found === null) return undefined;
    const wanted = typeof step === 'number' ? 'a list' : 'an object';
    // An app may find a value in it even so: of {"0": 1}, JavaScript and PHP read [0].
    if (typeof found !== 'object' || Array.isArray(found) !== (wanted === 'a list'))
      return new BodyProblem(`${path.text}: a value that contains it is not ${wanted}`);
    const problem = findStepProblem(found, step, isPartial);
    if (problem !== undefined) return new BodyProblem(`${path.text}: ${problem}`);
    if (!Object.hasOwn(found, step)) return undefined;
    found = (found as Readonly<Record<string | number, unknown>>)[step];
  }
  return found;
}

/** Why an app may read another value at this step. */
function findStepProblem(value: object, step: string | number, isPartial: boolean): string | undefined {
  if (Array.isArray(value)) return isPartial && value.length > 1 ? 'a list has more than one item' : undefined;
  return findVariant(value, String(step), isPartial);
}

function toLatin1(value: unknown): unknown {
  const isUnicode = typeof value === 'string' && Buffer.byteLength(value) > value.length;
  return isUnicode ? Buffer.from(value, 'utf8').toString('latin1') : value;
}

// Members of JSON objects that an app may take for each other: many parsers ignore differences between names.

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
