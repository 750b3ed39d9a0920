/** Proves that the boundaries between signed pieces are unambiguous (two different messages must never share one signed string), and assembles them. */
import { hash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import type { SignedHead } from '../../core/event.ts';
import type { Chunks } from '../../core/hmac.ts';
import { isFieldPiece, TIMESTAMP_FORMATS } from './coverage.ts';
import type { Piece, SchemeDescription } from './description.ts';
import { compileRemoval, removeParameter } from './removal.ts';
import type { Message } from './scheme.ts';
import { parseStrictForm, toFormText } from './strict-form.ts';
import { toContentDigest, toTarget } from './url.ts';

type Variable = Exclude<Piece, { readonly text: string }>;

/** The variable pieces of a signed string, and the fixed text around them. */
interface Layout {
  readonly pieces: readonly Variable[];
  /** `gaps[i]` is the text before `pieces[i]`; the last one ends the string. */
  readonly gaps: readonly string[];
}

/** Two pieces between which bytes can move without changing the signed string. */
interface Ambiguity {
  readonly before: Variable;
  readonly after: Variable;
}

/** The rules for IDs and timestamps that keep their boundaries in the signed string unambiguous. */
export interface PieceRules {
  /** The text in the ID that makes its boundary ambiguous; undefined if there is none. */
  findIdProblem(id: string, allowSeparator: boolean): string | undefined;
  /** The same for the signed fields, each with the text that it must not contain. In the order in which they are signed. */
  readonly fields: readonly ((value: string) => string | undefined)[];
  /** The required number of digits of a timestamp, if nothing else marks its end. */
  readonly timeDigits: number | undefined;
}

/** Seconds from 2001 to 2286, and milliseconds in the same years. */
const FIXED_DIGITS = { s: 10, ms: 13, rfc3339: undefined, 'http-date': undefined } as const;
/** The first colon of a time that is not a number always follows `YYYY-MM-DDThh`, or `Www, DD Mmm YYYY hh`. */
const TIME_MARK = ':';
const LINE_END = /[\r\n]/;
const NOT_IN_URL = /[\t\n\r ]/;

function toLayout({ signed, separator }: SchemeDescription): Layout {
  const pieces: Variable[] = [];
  const gaps: string[] = [];
  let gap = '';
  for (const [index, piece] of signed.entries()) {
    if (index > 0) gap += separator;
    if (typeof piece === 'object' && 'text' in piece) {
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
  const piece = pieces[at];
  if (typeof piece === 'object') return hasKnownFieldEnd(description, piece, gap);
  const isJson = description.contentShape !== undefined;
  switch (piece) {
    // No method is a prefix of another; a timestamp has a fixed form, or is followed by a character that is not a digit (PieceRules).
    case 'method':
    case 'timestamp':
      return true;
    case 'id':
      return gap !== '' || isSelfMarked(description, next);
    case 'crc32':
      return /^\D/.test(gap);
    case 'url':
    case 'urlWithoutSignature':
    case 'target':
      // A JSON body marks its end only once its own end is known, which hasKnownStart finds: a URL may contain brackets and quotes.
      return endsUrl(description, gap);
    case 'body':
    case 'bodyWithoutSignature':
      // White space after a JSON value belongs to it (RFC 8259 §2).
      return isJson && !/^\s/.test(gap) && next !== 'form';
    default:
      return false;
  }
}

function hasKnownStart(description: SchemeDescription, { pieces, gaps }: Layout, at: number): boolean {
  const gap = gaps[at] ?? '';
  const piece = pieces[at];
  if (typeof piece === 'object') return hasKnownFieldStart(piece, gap);
  switch (piece) {
    case 'timestamp':
      return true;
    case 'id':
      return gap !== '';
    case 'crc32':
      return /\D$/.test(gap);
    case 'url':
    case 'urlWithoutSignature':
    case 'target':
      return endsUrl(description, gap);
    case 'body':
    case 'bodyWithoutSignature':
      return description.contentShape !== undefined && !/\s$/.test(gap);
    default:
      return false;
  }
}

/** A digest has a fixed length; a list of headers ends at a line end, which no header contains; a field ends at the text after it. */
function hasKnownFieldEnd({ separator }: SchemeDescription, piece: Exclude<Variable, string>, gap: string): boolean {
  if ('bodySha256' in piece) return true;
  if ('headersIn' in piece) return LINE_END.test(gap);
  if ('sortedForm' in piece) return false;
  if (piece.escape !== undefined) return gap.startsWith(separator) && separator !== '' && !separator.startsWith('\\');
  return gap !== '' && piece.mayContainSeparator === undefined;
}

function hasKnownFieldStart(piece: Exclude<Variable, string>, gap: string): boolean {
  if ('bodySha256' in piece) return true;
  if ('headersIn' in piece) return LINE_END.test(gap);
  if ('sortedForm' in piece) return false;
  // An escaped character of this piece looks like the text before it.
  return gap !== '' && piece.mayContainSeparator === undefined && piece.escape === undefined;
}

/** Whether the gap contains a character that no URL contains: the gate rejects targets with spaces, controls and fragments. */
function endsUrl({ decodedInUrl = '' }: SchemeDescription, gap: string): boolean {
  return NOT_IN_URL.test(gap) || (gap.includes('#') && !decodedInUrl.includes('#'));
}

function isSelfMarked({ timestamp }: SchemeDescription, piece: Variable | undefined): boolean {
  return piece === 'timestamp' && timestamp !== undefined && !TIMESTAMP_FORMATS[timestamp.unit].isNumber;
}

/** Compiles the rules that `findAmbiguity` relies on. */
export function compilePieceRules(description: SchemeDescription): PieceRules {
  const places = toPlaces(description);
  const ids = places.filter(({ piece }) => piece === 'id');
  const hasMark = ids.some(({ after, next }) => after === '' && isSelfMarked(description, next));
  const isTimeFixed = places.some(({ piece, before = '-', after = '-' }) => piece === 'timestamp' && touchesDigit(before, after));
  const findIdSeparator = compileSeparatorRule(ids);
  return {
    timeDigits: isTimeFixed ? FIXED_DIGITS[description.timestamp?.unit ?? 's'] : undefined,
    findIdProblem(id, allowSeparator) {
      if (hasMark && id.includes(TIME_MARK)) return TIME_MARK;
      return allowSeparator ? undefined : findIdSeparator(id);
    },
    fields: places.flatMap((place) => {
      if (!isFieldPiece(place.piece)) return [];
      const isFree = place.piece.escape !== undefined || place.piece.mayContainSeparator !== undefined;
      return [!isFree ? compileSeparatorRule([place]) : () => undefined];
    }),
  };
}

/** Finds the separator that a value contains, or completes together with the text beside it. */
function compileSeparatorRule(places: readonly LayoutPlace[]): (value: string) => string | undefined {
  const ends = places.flatMap(({ after = '' }) => (after === '' ? [] : [after]));
  const starts = places.flatMap(({ before = '' }) => (before === '' ? [] : [before]));
  return (value) => {
    // `includes` is not enough: the ID `a-` before `--` gives the same bytes as the ID `a` before `--` and `-`.
    for (const end of ends) if ((value + end).indexOf(end) !== value.length) return end;
    for (const start of starts) if ((start + value).lastIndexOf(start) !== 0) return start;
    return undefined;
  };
}

/** The piece in words, as the config writes it. */
export function toPieceTitle(piece: Exclude<Piece, { readonly text: string }>): string {
  if (typeof piece === 'string') return piece;
  if ('sortedForm' in piece) return 'sortedForm';
  return Object.entries(piece)
    .filter(([name]) => !FIELD_OPTIONS.has(name))
    .map(([name, value]) => `${name}: ${value}`)
    .join(', ');
}

const FIELD_OPTIONS: ReadonlySet<string> = new Set(['type', 'optional', 'mayContainSeparator', 'escape']);

/** A piece and the fixed text on both sides; undefined at the ends of the string. */
interface LayoutPlace {
  readonly piece: Variable;
  readonly before: string | undefined;
  readonly after: string | undefined;
  readonly next: Variable | undefined;
}

function toPlaces(description: SchemeDescription): LayoutPlace[] {
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

// The signed bytes, assembled from the pieces that a scheme lists.

/** The parts of a head that can be signed. */
type SignedParts = Pick<SignedHead, 'id' | 'timestampText' | 'fields'>;

/** Assembles the pieces of a message for one form of its URL. Undefined if no signature can be valid for the message. */
export type Assemble = (head: SignedParts, message: Message) => (url: string) => Chunks | undefined;

/** A message whose form is parsed lazily, and only once for any number of URLs. */
interface Content extends Message {
  readonly toForm: () => Buffer | undefined;
}

type AssembleContent = (head: SignedParts, content: Content, url: string) => Chunks | undefined;

/** Compiles the description's pieces. */
export function compilePieces(description: SchemeDescription): Assemble {
  const { signed, contentDigestParameter } = description;
  const byForm = toAssemble(description);
  if (contentDigestParameter === undefined) return bindContent(byForm);
  const byDigest = toAssemble({ ...description, signed: signed.filter((piece) => piece !== 'form') });
  return bindContent((head, content, url) => {
    const isBound = toContentDigest(content, contentDigestParameter);
    if (isBound === undefined) return byForm(head, content, url);
    return isBound ? byDigest(head, content, url) : undefined;
  });
}

function bindContent(assemble: AssembleContent): Assemble {
  return (head, { method, url: received, body }) => {
    let form: { readonly text: Buffer | undefined } | undefined;
    const toForm = (): Buffer | undefined => {
      form ??= { text: toFormText(body) };
      return form.text;
    };
    const content: Content = { method, url: received, body, toForm };
    return (url) => assemble(head, content, url);
  };
}

type Write = (head: SignedParts, content: Content, url: string) => string | Buffer | undefined;

function toAssemble(description: SchemeDescription): AssembleContent {
  const { separator } = description;
  const writers = toWriters(description);
  return (head, content, url) => {
    const values: (string | Buffer)[] = [];
    for (const write of writers) {
      const value = write(head, content, url);
      if (value === undefined) return undefined;
      values.push(value);
    }
    return gather(values, separator);
  };
}

/** Joins adjacent strings, because each update of a MAC is a call into native code. */
function gather(values: readonly (string | Buffer)[], separator: string): Chunks {
  const chunks: (string | Buffer)[] = [];
  let text = '';
  for (const [index, value] of values.entries()) {
    if (index > 0) text += separator;
    if (typeof value === 'string') {
      text += value;
      continue;
    }
    if (text !== '') chunks.push(text);
    chunks.push(value);
    text = '';
  }
  if (text !== '') chunks.push(text);
  return chunks;
}

const WRITERS: Readonly<Record<Exclude<Extract<Piece, string>, `${string}WithoutSignature`>, Write>> = {
  id: (head) => head.id ?? '',
  timestamp: (head) => head.timestampText ?? '',
  body: (_, { body }) => body,
  form: (_, { toForm }) => toForm(),
  method: (_, { method }) => method,
  url: (_head, _content, url) => url,
  target: (_head, _content, url) => toTarget(url),
  crc32: (_, { body }) => String(crc32(body)),
  // The config's rules require the ID, which then replaces this piece (receiver-id.ts).
  receiverId: () => undefined,
};

/** Fields are numbered in the order of `SignedHead.fields`. */
function toWriters(description: SchemeDescription): Write[] {
  let fields = 0;
  return description.signed.map((piece) => {
    if (piece === 'body' && description.contentField !== undefined) return compileContentField(description.contentField);
    if (piece === 'bodyWithoutSignature') return compileBodyRemoval(description);
    if (piece === 'urlWithoutSignature') return compileUrlRemoval(description);
    if (typeof piece === 'string') return WRITERS[piece];
    if ('text' in piece) return () => piece.text;
    if ('bodySha256' in piece) return (_, { body }) => hash('sha256', body, piece.bodySha256);
    const at = fields++;
    return (head) => head.fields?.[at];
  });
}

/** JSON never begins like the form, and the content gate rejects a form that is sent as JSON. */
function compileContentField(name: string): Write {
  const start = Buffer.from(`${name}=`);
  return (_, { body }) => {
    if (!body.subarray(0, start.length).equals(start)) return body;
    // An app could read another field, which nothing signs.
    const form = body.includes('&') ? undefined : parseStrictForm(body);
    return form?.kind === 'fields' ? Buffer.from(form.fields[0]?.value ?? '', 'latin1') : undefined;
  };
}

function compileBodyRemoval({ signature }: SchemeDescription): Write {
  const remove = compileRemoval(signature);
  return (_, { body }) => remove(body);
}

function compileUrlRemoval({ signature }: SchemeDescription): Write {
  const name = signature?.query ?? '';
  return (_head, _content, url) => removeParameter(url, name);
}
