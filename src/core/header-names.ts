/** The names of a head in lower case. Senders send the same names again and again, so the latest ones are remembered. */

/** The names of the field lines of a head. */
export class HeaderNames {
  /** In order, one for each field line. */
  readonly list: readonly string[];
  /** The position of the first line of each name; only for names that came more than once, because it costs more than a few searches. */
  #first: Map<string, number> | undefined;
  #repeated: Set<string> | undefined;

  /** `raw`: name, value, name, value, … */
  constructor(raw: readonly string[]) {
    const list: string[] = [];
    for (let i = 0; i < raw.length; i += 2) list.push((raw[i] as string).toLowerCase());
    this.list = list;
  }

  /** The position of the next line with this name, -1 if there is none. */
  find(name: string, from = 0): number {
    return from === 0 && this.#first !== undefined ? (this.#first.get(name) ?? -1) : this.list.indexOf(name, from);
  }

  /** The number of lines with this name. */
  count(name: string): number {
    if (this.#first !== undefined && this.#repeated?.has(name) !== true) return this.#first.has(name) ? 1 : 0;
    let count = 0;
    for (let at = this.list.indexOf(name); at !== -1; at = this.list.indexOf(name, at + 1)) count++;
    return count;
  }

  /** Makes later searches cheap. */
  index(): void {
    if (this.#first !== undefined) return;
    this.#first = new Map();
    for (const [at, name] of this.list.entries()) {
      if (!this.#first.has(name)) this.#first.set(name, at);
      else this.#repeated = (this.#repeated ?? new Set()).add(name);
    }
  }
}

/** A power of 2. */
const PLACES = 64;
/** In characters; longer heads are not remembered. */
const MAX_LENGTH = 1_024;

/** Remembers the names of the latest heads of a port: as the same strings, they are compared and looked up without reading their characters. */
export class KnownHeaderNames {
  readonly #known: ({ readonly raw: readonly string[]; readonly names: HeaderNames } | undefined)[] =
    Array(PLACES).fill(undefined);

  /** The names of a head; `raw`: name, value, name, value, … */
  find(raw: readonly string[]): HeaderNames {
    let length = 0;
    for (let i = 0; i < raw.length; i += 2) length += (raw[i] as string).length;
    if (length > MAX_LENGTH) return new HeaderNames(raw);
    const place = (length + 7 * raw.length) & (PLACES - 1);
    const known = this.#known[place];
    if (known !== undefined && hasSameNames(known.raw, raw)) {
      known.names.index();
      return known.names;
    }
    const names = new HeaderNames(raw);
    // Without the values, which may be long or secret.
    this.#known[place] = { raw: raw.filter((_, i) => i % 2 === 0), names };
    return names;
  }
}

function hasSameNames(names: readonly string[], raw: readonly string[]): boolean {
  if (2 * names.length !== raw.length) return false;
  for (let i = 0; i < names.length; i++) if (names[i] !== raw[2 * i]) return false;
  return true;
}
