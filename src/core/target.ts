/** The request target: one canonical reading, so that the path which is matched is byte for byte the path which is forwarded. */

/** A form that two parsers may read differently; refused unless the route opens it. */
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

/** The forms a route may open, in the order of the config's documentation. Dot segments, NUL, controls, fragments and absolute-form stay shut: no route can match them meaningfully. */
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

/** An origin-form target (RFC 9112 §3.2.1) taken apart without changing a byte. */
export interface RequestTarget {
  /** As received. */
  readonly raw: string;
  /** Up to the first `?`. */
  readonly path: string;
  /** After the first `?`, or undefined where there is none. */
  readonly query: string | undefined;
  /** What in the path two parsers might read differently. */
  readonly ambiguities: readonly AmbiguousForm[];
}

/** Why a target is refused whatever the route; for the operator's log. */
export interface TargetProblem {
  readonly problem: string;
}

const NONE: readonly AmbiguousForm[] = [];
/** Unreserved, sub-delims without `;`, `:`, `@` and `/` (RFC 3986 §3.3): nothing that needs a closer look. */
const PLAIN_PATH = /^(?:\/[A-Za-z0-9_~!$&'()*+,=:@-][A-Za-z0-9_~!$&'()*+,=:@.-]*)+\/?$|^\/$/;
const VISIBLE = /^[\x21-\x7e]+$/;
const BAD_ESCAPE = /%(?![0-9A-Fa-f]{2})/;
const DOT_SEGMENT = /(?:^|\/)(?:\.|%2e){1,2}(?:\/|$)/i;
/** Windows ignores spaces around the dots, and best-fit encodings make dots of full-width ones. */
const LOOSE_DOT_SEGMENT = /(?:^|[/\\]) *\.{1,2} *(?:[/\\]|$)/;
/** ASCII's, those of Latin-1, and the line separators of Unicode: in Java, `$` matches before any of these line ends. */
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

/** Takes `raw` apart, or says why no route may have it. */
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
  if (!path.startsWith('/')) return 'the target is not in origin-form (RFC 9112 §3.2.1)';
  if (!VISIBLE.test(raw)) return 'the target has a control, space or non-ASCII byte';
  if (raw.includes('#')) return 'the target has a fragment';
  if (BAD_ESCAPE.test(path)) return 'the path has a broken percent-escape';
  const decoded = decode(path);
  if (decoded === undefined) return 'the path has percent-escapes that are not UTF-8';
  if (ENCODED_CONTROL.test(path)) return 'the path has an encoded control byte';
  // Backslashes and encoded slashes separate segments for some parsers, so dots beside them count as dot segments too.
  if (DOT_SEGMENT.test(path.replace(/%2f|%5c|\\/gi, '/'))) return 'the path has a dot segment';
  if (DOT_SEGMENT.test(path.replace(/(?:;|%3b)[^/]*/gi, ''))) return 'the path has a dot segment with a parameter';
  if (LOOSE_DOT_SEGMENT.test(decoded.normalize('NFKC'))) return 'the path has a dot segment in another spelling';
  return undefined;
}

function decode(path: string): string | undefined {
  try {
    return decodeURIComponent(path);
  } catch {
    return undefined;
  }
}
