/** Header fields exactly as received: order, case and repetition are kept. */
/** A flat list as node:http gives it: name, value, name, value, … */
export type RawHeaders = readonly string[];

/** Read access to a message's header fields by case-insensitive name. */
export class HeaderFields {
  readonly raw: RawHeaders;
  /** The lower-cased names in order, one for each field line. */
  readonly names: readonly string[];

  constructor(raw: RawHeaders) {
    const names: string[] = [];
    for (let i = 0; i < raw.length; i += 2) names.push((raw[i] as string).toLowerCase());
    this.raw = raw;
    this.names = names;
  }

  /** The number of field lines. */
  get size(): number {
    return this.names.length;
  }

  /**
   * The first value of `name` (lower case), or undefined. Use it only if the field cannot be repeated, or if the first value
   * counts.
   */
  get(name: string): string | undefined {
    const at = this.names.indexOf(name);
    return at === -1 ? undefined : this.raw[at * 2 + 1];
  }

  /** Every value of `name` (lower case), in order. */
  all(name: string): string[] {
    const values: string[] = [];
    for (let at = this.names.indexOf(name); at !== -1; at = this.names.indexOf(name, at + 1))
      values.push(this.raw[at * 2 + 1] as string);
    return values;
  }

  /** The number of field lines named `name` (lower case). */
  count(name: string): number {
    let count = 0;
    for (let at = this.names.indexOf(name); at !== -1; at = this.names.indexOf(name, at + 1)) count++;
    return count;
  }
}

const TRAILERS = /(?:^|,)[\t ]*trailers[\t ]*(?:,|$)/i;

/** Returns whether the client accepts trailers, which only TE can announce (RFC 9110 §6.5.1, §10.1.4). */
export function acceptsTrailers(headers: HeaderFields): boolean {
  return headers.all('te').some((line) => TRAILERS.test(line));
}

/** The values that most clients send. They name no field except Keep-Alive, which is always dropped. */
export function isPlainOption(line: string): boolean {
  return line === 'keep-alive' || line === 'close' || line === 'Keep-Alive' || line === '';
}

/** The fields that Connection names, in lower case; undefined if it names none that matter. */
export function findConnectionOptions(headers: HeaderFields): ReadonlySet<string> | undefined {
  const first = headers.get('connection');
  if (first === undefined || (isPlainOption(first) && headers.count('connection') === 1)) return undefined;
  const tokens = headers.all('connection').flatMap((line) => line.toLowerCase().split(','));
  return new Set(tokens.map((token) => token.trim()));
}

const NEITHER_LETTER_NOR_DIGIT = /[^a-z0-9]/g;

/**
 * The name as an app may see it: CGI and its successors (WSGI, Rack, PHP) read `_` as `-`, and some servers any other
 * character. Two names that are equal here can become one variable in the app, so code that strips a header must strip all
 * of its spellings (CVE-2025-64484, CVE-2026-39858).
 */
export function toFoldedName(name: string): string {
  return name.toLowerCase().replace(NEITHER_LETTER_NOR_DIGIT, '-');
}

const MAX_REMEMBERED = 1_000;
/** Of a name that is remembered: a client could fill memory with names as long as a head. */
const MAX_REMEMBERED_LENGTH = 64;

/** Remembers what `decide` returns for a name: senders use the same few names in every request. */
export function rememberByName<T extends string | boolean>(decide: (name: string) => T): (name: string) => T {
  const known = new Map<string, T>();
  return (name) => {
    const before = known.get(name);
    if (before !== undefined) return before;
    const decided = decide(name);
    if (name.length > MAX_REMEMBERED_LENGTH) return decided;
    // Emptied when full: otherwise a client that sends many names would end this for all others.
    if (known.size >= MAX_REMEMBERED) known.clear();
    known.set(name, decided);
    return decided;
  };
}

/**
 * The fields that reach an app, of those whose lower-cased name is wanted, in the order of their names. Each is under its own name,
 * because few apps take `X_Event` for `X-Event`.
 */
export function listForwarded(headers: HeaderFields, isWanted: (name: string) => boolean): [name: string, value: string][] {
  const { names, raw } = headers;
  const fields: [name: string, value: string][] = [];
  for (let at = 0; at < names.length; at++) {
    const name = names[at] as string;
    if (isWanted(name)) fields.push([name, raw[2 * at + 1] ?? '']);
  }
  const named = findConnectionOptions(headers);
  const forwarded = named === undefined ? fields : fields.filter(([name]) => !named.has(name));
  return forwarded.sort(([a], [b]) => (a < b ? -1 : Number(a > b)));
}
