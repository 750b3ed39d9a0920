/**
 * Parses forms and queries so that every app reads the same fields from them. Anything that frameworks interpret differently is a
 * problem: repeated names, invalid escapes, bytes that are not UTF-8, semicolons, multipart bodies with unusual headers.
 */
import { isAscii, isUtf8 } from 'node:buffer';
import { canBeForm } from '../../core/bytes.ts';
import { parseMediaType } from '../../core/head.ts';
import { foldCase } from '../../core/text.ts';

/** One field. Its text is latin1: one character per byte. */
export interface FormField {
  readonly name: string;
  readonly value: string;
  /** The offsets of name and value in the text; undefined in multipart bodies. */
  readonly span: { readonly from: number; readonly to: number } | undefined;
  readonly folded: FoldedName;
}

/** A name, written so that those that apps may take for each other are equal. */
export interface FoldedName {
  readonly text: string;
  /** Where its parts before brackets end: `data[id]` is within `data`, and `data[id]x` within `data[id]`, for which PHP takes it. */
  readonly ends: readonly number[];
}

/** The fields of a form or a query, or why it has several interpretations. */
export type StrictForm =
  | { readonly kind: 'fields'; readonly fields: readonly FormField[] }
  | { readonly kind: 'problem'; readonly problem: string };

/** Far more than any delivery has. Bounds the work for a sender that is not verified yet. */
const MAX_FIELDS = 1_000;
const MAX_NAME_LENGTH = 256;
const TOO_LONG = `a name has more than ${MAX_NAME_LENGTH} bytes`;
const BAD_ESCAPE = /%(?![0-9A-Fa-f]{2})/;
const [DASH, OPEN, CLOSE] = [0x2d, 0x5b, 0x5d];
/** RFC 2046 §5.1.1, without the spaces that it allows. */
const FIRST_LINE = /^--([0-9A-Za-z'()+_,./:=?-]{1,70})\r\n/;
/** RFC 7578 §4.2. A percent sign or a backslash may be an escape, depending on the parser. */
const DISPOSITION = /^content-disposition: form-data; name="([^"%\\\r\n]*)"(; filename="[^"%\\\r\n]*")?$/i;
const CONTENT_TYPE = /^content-type: ([\x20-\x7e]{1,200})$/i;
/** These announce bytes as they are. */
const PLAIN_ENCODING = /^(?:content-transfer-encoding: (?:7bit|8bit|binary)|content-length: \d{1,10})$/i;

/** Parses a form body: multipart if it begins with a boundary, otherwise URL-encoded. */
export function parseStrictForm(body: Buffer): StrictForm {
  const text = body.toString('latin1');
  return text.startsWith('--') ? parseMultipart(text) : parsePairs(text);
}

/** The parts of a multipart form that was parsed, each with its head, without the boundary; the last element is what ends the form. */
export function splitParts(body: Buffer): string[] {
  const text = body.toString('latin1');
  const boundary = FIRST_LINE.exec(text)?.[1] ?? '';
  return text.slice('--'.length + boundary.length).split(`\r\n--${boundary}`);
}

/** Parses the part of a URL after the question mark. */
export function parseStrictQuery(query: string): StrictForm {
  return parsePairs(query);
}

/** The problem of an ambiguous field. */
export const AMBIGUOUS = 'is repeated, or has a name that apps may take for this one';

/** Finds a field; 'ambiguous' if an app may find several, or one of another name. Undefined only if no app finds one. */
export function findField(fields: readonly FormField[], name: string): FormField | 'ambiguous' | undefined {
  const folded = foldName(name);
  const [found, ...others] = fields.filter((field) => isAlike(field, folded));
  return others.length > 0 || (found !== undefined && found.name !== name) ? 'ambiguous' : found;
}

/**
 * Whether an app may take the field for the one of this name, or if one of them is within the other: PHP converts dots, spaces and an
 * open bracket to underscores, PHP and Ruby take `a[]` for `a`, and ASP.NET ignores the case.
 */
export function isAlike({ folded }: FormField, wanted: FoldedName): boolean {
  return folded.text === wanted.text || isWithin(folded, wanted) || isWithin(wanted, folded);
}

function isWithin(inner: FoldedName, { text }: FoldedName): boolean {
  return inner.ends.includes(text.length) && inner.text.startsWith(text);
}

/** Fold each name of a sender once: it may send a thousand. */
export function foldName(name: string): FoldedName {
  const bytes = Buffer.allocUnsafe(name.length);
  const ends: number[] = [];
  let length = 0;
  let isApart = false;
  // A loop over characters: regular expressions take four times as long for a name whose every other character is punctuation.
  for (let at = 0; at < name.length; at++) {
    const code = name.charCodeAt(at);
    const lower = code >= 0x41 && code <= 0x5a ? code + 0x20 : code;
    const isKept = isLetterOrDigit(lower);
    if (isKept) {
      if (isApart && length > 0) bytes[length++] = DASH;
      bytes[length++] = lower;
    } else if ((code === OPEN || code === CLOSE) && ends.at(-1) !== length) ends.push(length);
    isApart = !isKept;
  }
  return { text: bytes.toString('latin1', 0, length), ends };
}

function isLetterOrDigit(lower: number): boolean {
  return (lower >= 0x61 && lower <= 0x7a) || (lower >= 0x30 && lower <= 0x39);
}

function toField(name: string, value: string, span: FormField['span']): FormField {
  return { name, value, span, folded: foldName(foldLetters(name)) };
}

/** Of UTF-8, which some letters of a name may have in common with ASCII letters once their case is ignored. */
function foldLetters(name: string): string {
  const bytes = Buffer.from(name, 'latin1');
  return isAscii(bytes) ? name : Buffer.from(foldCase(bytes.toString('utf8'))).toString('latin1');
}

function parsePairs(text: string): StrictForm {
  // Older parsers also separate fields by semicolons.
  if (text.includes(';')) return toProblem('it contains a semicolon, which some parsers take for a separator');
  if (BAD_ESCAPE.test(text)) return toProblem('it contains an invalid escape');
  const fields: FormField[] = [];
  for (let from = 0; from <= text.length; ) {
    const end = text.indexOf('&', from);
    const to = end === -1 ? text.length : end;
    if (to > from) {
      if (fields.length === MAX_FIELDS) return toProblem(`it has more than ${MAX_FIELDS} fields`);
      const field = readPair(text, { from, to });
      if (field === undefined) return toProblem(TOO_LONG);
      fields.push(field);
    }
    from = to + 1;
  }
  return toFields(fields);
}

/** Undefined if the name is too long. */
function readPair(text: string, span: { readonly from: number; readonly to: number }): FormField | undefined {
  const { from, to } = span;
  const equals = text.indexOf('=', from);
  const middle = equals === -1 || equals > to ? to : equals;
  const name = decodeFormText(text.slice(from, middle));
  return name.length > MAX_NAME_LENGTH ? undefined : toField(name, decodeFormText(text.slice(middle + 1, to)), span);
}

function parseMultipart(text: string): StrictForm {
  const boundary = FIRST_LINE.exec(text)?.[1];
  if (boundary === undefined) return toProblem('it does not begin with a plain boundary');
  const delimiter = `\r\n--${boundary}`;
  if (hasOtherDelimiter(text, boundary)) return toProblem('a line that ends in CR or LF alone is followed by the boundary');
  const fields: FormField[] = [];
  for (let at = boundary.length + '--'.length; !text.startsWith('--', at); ) {
    if (fields.length === MAX_FIELDS) return toProblem(`it has more than ${MAX_FIELDS} parts`);
    const part = readPart(text, at, delimiter);
    if (typeof part === 'string') return toProblem(part);
    fields.push(part.field);
    at = part.next;
    if (text.startsWith('--', at) && at + 2 !== text.length && text.slice(at) !== '--\r\n')
      return toProblem('there is text after the last boundary');
  }
  return toFields(fields);
}

/** Some parsers, such as Werkzeug's, also accept CR or LF alone before a boundary, so they would find a part within a value. */
function hasOtherDelimiter(text: string, boundary: string): boolean {
  if (text.includes(`\r--${boundary}`)) return true;
  const line = `\n--${boundary}`;
  for (let at = text.indexOf(line); at !== -1; at = text.indexOf(line, at + 1)) if (text[at - 1] !== '\r') return true;
  return false;
}

/** The part whose head begins with the line end at `at`, or what is wrong with it; `next`: after the delimiter that ends it. */
function readPart(text: string, at: number, delimiter: string): { readonly field: FormField; readonly next: number } | string {
  if (!text.startsWith('\r\n', at)) return 'a line begins like the boundary';
  const headEnd = text.indexOf('\r\n\r\n', at);
  const head = headEnd === -1 ? undefined : readPartHead(text.slice(at + '\r\n'.length, headEnd));
  if (head === undefined) return 'a part has no name, or headers that parsers interpret differently';
  if (head.name.length > MAX_NAME_LENGTH) return TOO_LONG;
  const start = headEnd + '\r\n\r\n'.length;
  // A part may be empty: then the delimiter begins with the line end of the blank line.
  const end = text.indexOf(delimiter, start - '\r\n'.length);
  if (end === -1) return 'the last boundary is missing';
  const value = head.isFile ? '' : text.slice(start, Math.max(start, end));
  return { field: toField(head.name, value, undefined), next: end + delimiter.length };
}

/** A part with a file name is a file: an app does not find it among the fields, but its name may hide a field. */
function readPartHead(head: string): { readonly name: string; readonly isFile: boolean } | undefined {
  let disposition: RegExpExecArray | undefined;
  let type: string | undefined;
  for (const line of head.split('\r\n')) {
    const found = DISPOSITION.exec(line) ?? undefined;
    const value = CONTENT_TYPE.exec(line)?.[1];
    const isRepeated = (found && disposition) !== undefined || (value && type) !== undefined;
    if (isRepeated || (found === undefined && value === undefined && !PLAIN_ENCODING.test(line))) return undefined;
    disposition ??= found;
    type ??= value;
  }
  if (disposition === undefined) return undefined;
  const [, name = '', fileName] = disposition;
  if (fileName !== undefined) return { name: `${name}[file]`, isFile: true };
  return type === undefined || isUtf8Type(type) ? { name, isFile: false } : undefined;
}

/** In another charset, the same bytes are another text. */
function isUtf8Type(type: string): boolean {
  return !('problem' in parseMediaType(type));
}

function toFields(fields: readonly FormField[]): StrictForm {
  // PHP takes the part before NUL for the name.
  if (fields.some(({ name }) => name.includes('\0'))) return toProblem('a name contains NUL');
  const isText = fields.every(({ name, value }) => isUtf8Text(name) && isUtf8Text(value));
  return isText ? { kind: 'fields', fields } : toProblem('it is not UTF-8');
}

function isUtf8Text(text: string): boolean {
  const bytes = Buffer.from(text, 'latin1');
  return isAscii(bytes) || isUtf8(bytes);
}

function toProblem(problem: string): StrictForm {
  return { kind: 'problem', problem };
}

/** Far more than any webhook has. Bounds the work (names are sorted) for a sender that is not verified yet. */
export const MAX_PARAMETERS = 1_000;
const AMPERSAND = 0x26;
const [PERCENT, PLUS, SPACE] = [0x25, 0x2b, 0x20];
const ENCODED = /[%+]/;
/** The value of each hex digit by its code; 16 for other characters. */
const DIGITS = Uint8Array.from({ length: 0x100 }, (_, code) => {
  const digit = '0123456789abcdef'.indexOf(String.fromCharCode(code | 0x20));
  return digit === -1 || (code < 0x30 && digit < 10) ? 16 : digit;
});

/**
 * The parameters of a form body as Twilio signs them: sorted by name, each name followed by its value. A repeated name is followed by each of its distinct values, sorted. Everything is handled as bytes (latin1 strings here): a UTF-8
 * decoder replaces all invalid bytes with the same character, so many bodies would share one signature.
 * Returns undefined for more than MAX_PARAMETERS, before decoding any, and for what is not a form: with their text in a
 * form, an attacker could write its signed text as JSON.
 */
export function toFormText(body: Buffer): Buffer | undefined {
  if (!canBeForm(body) || hasTooMany(body)) return undefined;
  const parameters = new Map<string, Set<string>>();
  for (const pair of body.toString('latin1').split('&')) {
    if (pair === '') continue;
    const at = pair.indexOf('=');
    const name = decodeFormText(at === -1 ? pair : pair.slice(0, at));
    const value = at === -1 ? '' : decodeFormText(pair.slice(at + 1));
    const values = parameters.get(name);
    if (values === undefined) parameters.set(name, new Set([value]));
    else values.add(value);
  }
  let text = '';
  for (const [name, values] of [...parameters].sort(([a], [b]) => (a < b ? -1 : 1)))
    for (const value of [...values].sort()) text += name + value;
  return Buffer.from(text, 'latin1');
}

function hasTooMany(body: Buffer): boolean {
  let pairs = 1;
  for (let at = body.indexOf(AMPERSAND); at !== -1; at = body.indexOf(AMPERSAND, at + 1))
    if (++pairs > MAX_PARAMETERS) return true;
  return false;
}

/**
 * Decodes a name or value (the URL Standard's application/x-www-form-urlencoded); an invalid escape is kept as it is. A loop over bytes:
 * a function called for each escape takes ten times as long, and `replaceAll` for each plus as well.
 */
export function decodeFormText(text: string): string {
  if (!ENCODED.test(text)) return text;
  const bytes = Buffer.from(text, 'latin1');
  let length = 0;
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at] ?? 0;
    const decoded = byte === PERCENT ? toByte(bytes, at + 1) : undefined;
    if (decoded !== undefined) at += 2;
    bytes[length++] = decoded ?? (byte === PLUS ? SPACE : byte);
  }
  return bytes.toString('latin1', 0, length);
}

/** The byte that two hex digits encode; undefined if they are not there. */
function toByte(bytes: Buffer, at: number): number | undefined {
  const high = toDigit(bytes[at]);
  const low = toDigit(bytes[at + 1]);
  return high === 16 || low === 16 ? undefined : high * 16 + low;
}

function toDigit(code = 0): number {
  return DIGITS[code] ?? 16;
}
