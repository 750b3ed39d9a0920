/** The request target, parsed so that the path that is matched is byte for byte the path that is forwarded. */

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
