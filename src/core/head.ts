/** The head of a request exactly as received: its target, its header fields and its Content-Type. */

// The request target, parsed so that the path that is matched is byte for byte the path that is forwarded.

/** A form that two parsers may interpret differently; rejected unless the route allows it. */
export type AmbiguousForm =
  | 'emptySegment'
  | 'backslash'
  | 'semicolon'
  | 'encodedSlash'
  | 'encodedBackslash'
  | 'encodedDot'
  | 'encodedQuestionMark'
  | 'encodedHash'
  | 'encodedPercent';

/**
 * The forms that a route may allow, in the order of the config documentation. Dot segments, NUL, controls, fragments and
 * absolute-form are always rejected: no route can match them meaningfully.
 */
export const AMBIGUOUS_FORMS: readonly AmbiguousForm[] = [
  'emptySegment',
  'backslash',
  'semicolon',
  'encodedSlash',
  'encodedBackslash',
  'encodedDot',
  'encodedQuestionMark',
  'encodedHash',
  'encodedPercent',
];

/** An origin-form target (RFC 9112 §3.2.1), split without changing a byte. */
export interface RequestTarget {
  /** As received. */
  readonly raw: string;
  /** Up to the first `?`. */
  readonly path: string;
  /** After the first `?`; undefined if there is none. */
  readonly query: string | undefined;
  /** The forms in the path that two parsers might interpret differently. */
  readonly ambiguities: readonly AmbiguousForm[];
}

/** Why a target is rejected on every route; for the log. */
export interface TargetProblem {
  readonly problem: string;
}

const NONE: readonly AmbiguousForm[] = [];
/** Unreserved, sub-delims without `;`, `:`, `@` and `/` (RFC 3986 §3.3): needs no further checks. */
const PLAIN_PATH = /^(?:\/[A-Za-z0-9_~!$&'()*+,=:@-][A-Za-z0-9_~!$&'()*+,=:@.-]*)+\/?$|^\/$/;
const VISIBLE = /^[\x21-\x7e]+$/;
const BAD_ESCAPE = /%(?![0-9A-Fa-f]{2})/;
const DOT_SEGMENT = /(?:^|\/)(?:\.|%2e){1,2}(?:\/|$)/i;
/** Windows ignores spaces around the dots, and best-fit encodings convert full-width dots to dots. */
const LOOSE_DOT_SEGMENT = /(?:^|[/\\]) *\.{1,2} *(?:[/\\]|$)/;
/** Invisible characters, which databases and file systems drop. */
const IGNORABLE = /\p{Default_Ignorable_Code_Point}+/gu;
/** The controls of ASCII and Latin-1, and the line separators of Unicode: in Java, `$` matches before each of these line ends. */
const ENCODED_CONTROL = /%(?:[01][0-9a-f]|7f|c2%[89][0-9a-f]|e2%80%a[89])/i;

const FORMS: readonly (readonly [AmbiguousForm, RegExp])[] = [
  ['emptySegment', /\/\//],
  ['backslash', /\\/],
  ['semicolon', /;|%3b/i],
  ['encodedSlash', /%2f/i],
  ['encodedBackslash', /%5c/i],
  ['encodedDot', /%2e/i],
  ['encodedQuestionMark', /%3f/i],
  ['encodedHash', /%23/i],
  ['encodedPercent', /%25/],
];

/** Splits `raw`, or says why no route may get it. */
export function parseTarget(raw: string): RequestTarget | TargetProblem {
  const mark = raw.indexOf('?');
  const path = mark === -1 ? raw : raw.slice(0, mark);
  const query = mark === -1 ? undefined : raw.slice(mark + 1);
  if (PLAIN_PATH.test(path) && (query === undefined || isQuery(query))) return { raw, path, query, ambiguities: NONE };
  const problem = findProblem(raw, path);
  if (problem !== undefined) return { problem };
  const ambiguities = FORMS.filter(([, pattern]) => pattern.test(path)).map(([form]) => form);
  return { raw, path, query, ambiguities };
}

function isQuery(query: string): boolean {
  return query === '' || (VISIBLE.test(query) && !query.includes('#'));
}

function findProblem(raw: string, path: string): string | undefined {
  if (!path.startsWith('/')) return 'the target does not start with /';
  if (!VISIBLE.test(raw)) return 'the target has a control, space or non-ASCII byte';
  if (raw.includes('#')) return 'the target has a fragment';
  if (BAD_ESCAPE.test(path)) return 'the path has a broken percent-escape';
  const decoded = decode(path);
  if (decoded === undefined) return 'the path has percent-escapes that are not UTF-8';
  if (ENCODED_CONTROL.test(path)) return 'the path has an encoded control byte';
  // Some parsers treat backslashes and encoded slashes as separators, so dots next to them count as dot segments, too.
  if (DOT_SEGMENT.test(path.replace(/%2f|%5c|\\/gi, '/'))) return 'the path has a dot segment';
  if (DOT_SEGMENT.test(path.replace(/(?:;|%3b)[^/]*/gi, ''))) return 'the path has a dot segment with a parameter';
  if (LOOSE_DOT_SEGMENT.test(decoded.normalize('NFKC').replace(IGNORABLE, '')))
    return 'the path has a dot segment in another spelling';
  return undefined;
}

function decode(path: string): string | undefined {
  try {
    return decodeURIComponent(path);
  } catch {
    return undefined;
  }
}

// Header fields: order, case and repetition are kept.

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

// Parses Content-Type (RFC 9110 §8.3) strictly: a value that two parsers could interpret differently is a problem.

/** How an app parses a body of a media type. */
export type MediaForm = 'json' | 'form' | 'multipart' | 'text' | 'xml' | 'other';

/** A media type whose parameters, except the boundary, do not change how a body is parsed. */
export interface MediaType {
  /** type/subtype, lower case. */
  readonly essence: string;
  readonly form: MediaForm;
  /** Set only for multipart bodies. */
  readonly boundary: string | undefined;
}

/** Why a value is rejected; safe to log. */
interface MediaTypeProblem {
  readonly problem: string;
}

const ESSENCE = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+\/[!#$%&'*+.^_`|~0-9A-Za-z-]+/;
/** One parameter, or none: `a/b;` is a media type (RFC 9110 §5.6.6). Longer values are rejected, so that matching stays cheap. */
const PARAMETER =
  /[\t ]*;[\t ]*(?:([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64})=(?:([!#$%&'*+.^_`|~0-9A-Za-z-]{1,256})|"([ !#-[\]-~]{0,256})"))?/y;
/** RFC 2046 §5.1.1. */
const BOUNDARY = /^[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]$/;
const MAX_PARAMETERS = 8;
/** A boundary of which all parsers read the same: unquoted, without characters that mean something in the header or in a delimiter. */
const PLAIN_BOUNDARY = /^[\t ]*boundary=([-0-9A-Za-z_.]{0,69}[0-9A-Za-z])$/;
/** Two names of one encoding (Encoding Standard §4.2). */
const UTF_8 = new Set(['utf-8', 'utf8']);

/** One JSON value on each line; one line alone is JSON. */
const JSON_LINES = new Set(['application/x-ndjson', 'application/ndjson', 'application/jsonl']);

/** The media type without parameters (RFC 9110 §8.3.1), lower case. */
export function toEssence(value: string): string {
  const end = value.indexOf(';');
  return (end === -1 ? value : value.slice(0, end)).trim().toLowerCase();
}

/**
 * The Content-Type without the boundary of a multipart body, which is new in each attempt; undefined if there is none, or if two parsers
 * could read another one: `xboundary=a; boundary=b`.
 */
export function cutBoundary(value: string): string | undefined {
  if (!value.includes(';') || value.includes('"') || toMediaForm(value) !== 'multipart') return undefined;
  const isBoundary = (part: string): boolean => /boundary/i.test(part);
  const parts = value.split(';');
  const at = parts.findIndex(isBoundary);
  const boundary = PLAIN_BOUNDARY.exec(parts[at] ?? '')?.[1];
  if (boundary === undefined || parts.findLastIndex(isBoundary) !== at) return undefined;
  return parts.with(at, (parts[at] ?? '').slice(0, -boundary.length)).join(';');
}

/** The values of Content-Type as they are compared: apps choose parsers by any part of them. */
export function toComparedType(values: readonly string[]): readonly string[] {
  const [value = ''] = values;
  return values.length === 1 ? [cutBoundary(value) ?? value] : values;
}

/** How a body of a media type is parsed; an entry of `contentTypes` may have parameters, which do not matter. */
export function toMediaForm(mediaType: string): MediaForm {
  const essence = toEssence(mediaType);
  if (essence === 'application/json' || essence.endsWith('+json') || JSON_LINES.has(essence)) return 'json';
  if (essence === 'application/x-www-form-urlencoded') return 'form';
  if (essence.startsWith('multipart/')) return 'multipart';
  if (essence === 'application/xml' || essence === 'text/xml' || essence.endsWith('+xml')) return 'xml';
  return essence.startsWith('text/') ? 'text' : 'other';
}

/**
 * Parses the media type of a body that must have only one interpretation. The signature does not cover Content-Type: with another
 * charset, or with a parameter that only some parsers support, the same bytes are a different message.
 */
export function parseMediaType(value: string): MediaType | MediaTypeProblem {
  const essence = ESSENCE.exec(value)?.[0];
  if (essence === undefined) return { problem: 'Content-Type is not type/subtype' };
  const parameters = parseParameters(value, essence.length);
  if ('problem' in parameters) return parameters;
  const charset = parameters.values.get('charset');
  if (charset !== undefined && !UTF_8.has(charset.toLowerCase())) return { problem: 'the charset is not utf-8' };
  if (hasHiddenCharset(parameters.values)) return { problem: 'Content-Type names a charset in another parameter' };
  const type = essence.toLowerCase();
  const form = toMediaForm(type);
  if (form !== 'multipart') return { essence: type, form, boundary: undefined };
  const boundary = parameters.values.get('boundary');
  if (boundary === undefined || !BOUNDARY.test(boundary)) return { problem: 'the boundary is missing or malformed (RFC 2046)' };
  return { essence: type, form, boundary };
}

/** Some parsers search the whole value for `charset=`, and find it in `x-charset=utf-7` and in `x="charset=utf-7"`. */
function hasHiddenCharset(parameters: ReadonlyMap<string, string>): boolean {
  return [...parameters].some(([name, value]) => name !== 'charset' && /charset/i.test(name + value));
}

function parseParameters(value: string, start: number): { readonly values: ReadonlyMap<string, string> } | MediaTypeProblem {
  const values = new Map<string, string>();
  for (let at = start; at < value.length; at = PARAMETER.lastIndex) {
    PARAMETER.lastIndex = at;
    const match = PARAMETER.exec(value);
    if (match === null || values.size === MAX_PARAMETERS) return { problem: 'the parameters of Content-Type are malformed' };
    const [, name, token, quoted] = match;
    if (name === undefined) continue;
    // RFC 2231: Python and others read the charset from `charset*=utf-7''…`, or from `charset*0=utf` and `charset*1=-7`.
    if (name.includes('*')) return { problem: 'Content-Type has an extended parameter (RFC 2231)' };
    const key = name.toLowerCase();
    if (values.has(key)) return { problem: 'Content-Type repeats a parameter' };
    values.set(key, token ?? quoted ?? '');
  }
  return { values };
}

/** In `contentTypes`: requests without Content-Type, which must be empty. */
export const NO_MEDIA_TYPE = 'none';

/** An entry of `contentTypes`. With parameters it is the exact value of a header, as some senders write one that no media type has. */
export const MEDIA_TYPE = /^(?:[a-z0-9!#$&^_.+-]+\/[a-z0-9!#$&^_.+-]+(?:;[\x20-\x40\x5b-\x7e]{1,200})?|none)$/;

/** An entry of `contentTypes` with parameters is the exact value of a header, in lower case; it need not follow the grammar. */
export function isExactValue(contentType: string): boolean {
  return contentType.includes(';');
}

/** Picks the first of a route's media types that fits the body, or the first one if none fits; undefined if there is nothing to name. */
export function pickMediaType(contentTypes: readonly string[], body: Buffer): string | undefined {
  const mediaTypes = contentTypes.filter((each) => each !== NO_MEDIA_TYPE);
  if (body.length === 0 && mediaTypes.length < contentTypes.length) return undefined;
  const [first = 'application/json'] = mediaTypes;
  const isJson = /^[\s]*[{[]/.test(body.subarray(0, 64).toString('latin1'));
  const wanted: MediaForm | undefined = isJson ? 'json' : body.includes('=') ? 'form' : undefined;
  return mediaTypes.find((each) => toMediaForm(each) === wanted) ?? first;
}
