/** Proves that the boundaries between signed pieces are unambiguous: two different messages must never share one signed string. */
import type { Piece, SchemeDescription } from './description.ts';
import { TIMESTAMP_FORMATS } from './timestamp.ts';

type Variable = Exclude<Piece, { readonly text: string }>;

/** The variable pieces of a signed string, and the fixed text around them. */
interface Layout {
  readonly pieces: readonly Variable[];
  /** `gaps[i]` is the text before `pieces[i]`; the last one ends the string. */
  readonly gaps: readonly string[];
}

/** Two pieces between which bytes can move without changing the signed string. */
export interface Ambiguity {
  readonly before: Variable;
  readonly after: Variable;
}

/** The rules for IDs and timestamps that keep their boundaries in the signed string unambiguous. */
export interface PieceRules {
  /** The text in the ID that makes its boundary ambiguous; undefined if there is none. */
  findIdProblem(id: string, allowSeparator: boolean): string | undefined;
  /** The required number of digits of a timestamp, if nothing else marks its end. */
  readonly timeDigits: number | undefined;
}

/** Seconds from 2001 to 2286, and milliseconds in the same years. */
const FIXED_DIGITS = { s: 10, ms: 13, rfc3339: undefined, 'http-date': undefined } as const;
/** The first colon of a time that is not a number always follows `YYYY-MM-DDThh`, or `Www, DD Mmm YYYY hh`. */
const TIME_MARK = ':';

function toLayout({ signed, separator }: SchemeDescription): Layout {
  const pieces: Variable[] = [];
  const gaps: string[] = [];
  let gap = '';
  for (const [index, piece] of signed.entries()) {
    if (index > 0) gap += separator;
    if (typeof piece === 'object') {
      gap += piece.text;
      continue;
    }
    gaps.push(gap);
    pieces.push(piece);
    gap = '';
  }
  return { pieces, gaps: [...gaps, gap] };
}

/**
 * The first two pieces with an ambiguous boundary; undefined if the signed string has only one interpretation. Removes pieces from the
 * left while their end is known, and from the right while their start is known; at most one piece may remain.
 *
 * For JSON bodies the proof is that no JSON object or array is a proper prefix or suffix of another. Its last bracket closes its first
 * one, and a suffix that started inside a string would swap the roles of opening and closing quotes.
 */
export function findAmbiguity(description: SchemeDescription): Ambiguity | undefined {
  const layout = toLayout(description);
  const { pieces } = layout;
  let left = 0;
  while (left < pieces.length - 1 && hasKnownEnd(description, layout, left)) left++;
  let right = pieces.length - 1;
  while (right > left && hasKnownStart(description, layout, right)) right--;
  const [before, after] = [pieces[left], pieces[left + 1]];
  return left >= right || before === undefined || after === undefined ? undefined : { before, after };
}

function hasKnownEnd(description: SchemeDescription, { pieces, gaps }: Layout, at: number): boolean {
  const [gap = '', next] = [gaps[at + 1], pieces[at + 1]];
  const isJson = description.contentShape !== undefined;
  switch (pieces[at]) {
    // No method is a prefix of another; a timestamp has a fixed form, or is followed by a character that is not a digit (PieceRules).
    case 'method':
    case 'timestamp':
      return true;
    case 'id':
      return gap !== '' || isSelfMarked(description, next);
    case 'url':
      // A JSON body marks its end only once its own end is known, which hasKnownStart finds: a URL may contain brackets and quotes.
      return endsUrl(description, gap);
    case 'body':
      // White space after a JSON value belongs to it (RFC 8259 §2).
      return isJson && !/^\s/.test(gap) && next !== 'form';
    default:
      return false;
  }
}

function hasKnownStart(description: SchemeDescription, { pieces, gaps }: Layout, at: number): boolean {
  const gap = gaps[at] ?? '';
  switch (pieces[at]) {
    case 'timestamp':
      return true;
    case 'id':
      return gap !== '';
    case 'url':
      return endsUrl(description, gap);
    case 'body':
      return description.contentShape !== undefined && !/\s$/.test(gap);
    default:
      return false;
  }
}

/** Whether the gap contains a character that no URL contains: the gate rejects targets with spaces and fragments. */
function endsUrl({ decodedInUrl = '' }: SchemeDescription, gap: string): boolean {
  return gap.includes(' ') || (gap.includes('#') && !decodedInUrl.includes('#'));
}

function isSelfMarked({ timestamp }: SchemeDescription, piece: Variable | undefined): boolean {
  return piece === 'timestamp' && timestamp !== undefined && !TIMESTAMP_FORMATS[timestamp.unit].isNumber;
}

/** Compiles the rules that `findAmbiguity` relies on. */
export function compilePieceRules(description: SchemeDescription): PieceRules {
  const places = toPlaces(description);
  const ids = places.filter(({ piece }) => piece === 'id');
  const hasMark = ids.some(({ after, next }) => after === '' && isSelfMarked(description, next));
  const ends = ids.flatMap(({ after = '' }) => (after === '' ? [] : [after]));
  const starts = ids.flatMap(({ before = '' }) => (before === '' ? [] : [before]));
  const isTimeFixed = places.some(({ piece, before = '-', after = '-' }) => piece === 'timestamp' && touchesDigit(before, after));
  // `includes` is not enough: the ID `a-` before `--` gives the same bytes as the ID `a` before `--` and `-`.
  const findEnd = (id: string): string | undefined => ends.find((end) => (id + end).indexOf(end) !== id.length);
  const findStart = (id: string): string | undefined => starts.find((start) => (start + id).lastIndexOf(start) !== 0);
  return {
    timeDigits: isTimeFixed ? FIXED_DIGITS[description.timestamp?.unit ?? 's'] : undefined,
    findIdProblem(id, allowSeparator) {
      if (hasMark && id.includes(TIME_MARK)) return TIME_MARK;
      return allowSeparator ? undefined : (findEnd(id) ?? findStart(id));
    },
  };
}

/** A piece and the fixed text on both sides; undefined at the ends of the string. */
interface Place {
  readonly piece: Variable;
  readonly before: string | undefined;
  readonly after: string | undefined;
  readonly next: Variable | undefined;
}

function toPlaces(description: SchemeDescription): Place[] {
  const { pieces, gaps } = toLayout(description);
  return pieces.map((piece, at) => ({
    piece,
    before: at === 0 ? undefined : gaps[at],
    after: at === pieces.length - 1 ? undefined : gaps[at + 1],
    next: pieces[at + 1],
  }));
}

function touchesDigit(before: string, after: string): boolean {
  return /(?:^|\d)$/.test(before) || /^(?:\d|$)/.test(after);
}
