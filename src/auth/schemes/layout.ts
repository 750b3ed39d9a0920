/** Whether the pieces of a signed string can be told apart: two different messages must never share one signed string. */
import type { Piece, SchemeDescription } from './description.ts';

type Variable = Exclude<Piece, { readonly text: string }>;

/** What varies in a signed string, and the fixed text around it. */
interface Layout {
  readonly pieces: readonly Variable[];
  /** `gaps[i]` stands before `pieces[i]`; the last one ends the string. */
  readonly gaps: readonly string[];
}

/** Two pieces between which bytes can move under one signature. */
export interface Ambiguity {
  readonly before: Variable;
  readonly after: Variable;
}

/** What an id and a time must look like, so that their neighbours in the signed string cannot take bytes from them. */
export interface PieceRules {
  /** Why the id could be confused with what stands beside it; undefined where it could not. */
  findIdProblem(id: string, allowSeparator: boolean): string | undefined;
  /** The exact number of digits of a time, where nothing else ends it; undefined where something does. */
  readonly timeDigits: number | undefined;
}

/** Seconds from 2001 to 2286, and milliseconds in the same years. */
const FIXED_DIGITS = { s: 10, ms: 13, rfc3339: undefined } as const;
/** Every RFC 3339 time has its first colon behind `YYYY-MM-DDThh`. */
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
 * The first two pieces that cannot be told apart; undefined where the signed string has one reading only. Pieces are peeled off from the
 * left while their end is known, and from the right while their start is; what is left must be one piece at most.
 *
 * For JSON content the proof is that no JSON object or array is a proper prefix or suffix of another: its last bracket closes its first
 * one, and from within a string every quote would open where it closes.
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
    // Methods are few and none begins another; a time has a fixed shape, or an end that is no digit (PieceRules).
    case 'method':
    case 'timestamp':
      return true;
    case 'id':
      return gap !== '' || isSelfMarked(description, next);
    case 'url':
      return endsUrl(description, gap) || (next === 'body' && isJson);
    case 'body':
      // White space behind JSON content would be a part of it (RFC 8259 §2).
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

/** Whether a character stands there that no URL has: the gate rejects targets with spaces and fragments. */
function endsUrl({ decodedInUrl = '' }: SchemeDescription, gap: string): boolean {
  return gap.includes(' ') || (gap.includes('#') && !decodedInUrl.includes('#'));
}

function isSelfMarked({ timestamp }: SchemeDescription, piece: Variable | undefined): boolean {
  return piece === 'timestamp' && timestamp?.unit === 'rfc3339';
}

/** Compiles what `findAmbiguity` relies on. */
export function compilePieceRules(description: SchemeDescription): PieceRules {
  const places = toPlaces(description);
  const ids = places.filter(({ piece }) => piece === 'id');
  const hasMark = ids.some(({ after, next }) => after === '' && isSelfMarked(description, next));
  const ends = ids.flatMap(({ after = '' }) => (after === '' ? [] : [after]));
  const starts = ids.flatMap(({ before = '' }) => (before === '' ? [] : [before]));
  const isTimeFixed = places.some(({ piece, before = '-', after = '-' }) => piece === 'timestamp' && touchesDigit(before, after));
  // Beyond `includes`: `a-` and `--` give the bytes of `a` and `--` before `-`.
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

/** A piece and the fixed text on either side of it; undefined at the ends of the string. */
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
