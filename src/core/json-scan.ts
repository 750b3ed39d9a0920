/** JSON text, without a tree of it, for which a parser needs up to 60 times its length: checks it, bounds its size, and finds the bytes of its parts. */

import { isUtf8 } from 'node:buffer';
import { BYTE_ORDER_MARK } from './bytes.ts';

/** Bounds for untrusted JSON. */
export interface JsonBounds {
  readonly maxDepth: number;
  /** Each value takes 40 to 250 bytes of heap, although a single byte of text is enough for it. */
  readonly maxValues: number;
  /** In one object. Each name is hashed and compared, and names such as `1` can have equal hashes. */
  readonly maxMembers?: number;
}

/** A part of the text: the offset of its first byte, and of the byte after it. */
export interface JsonSpan {
  readonly from: number;
  readonly to: number;
}

/** A member of an object. */
export interface JsonMember {
  readonly name: string;
  /** The offset of the name. */
  readonly from: number;
  readonly value: JsonSpan;
}

const [QUOTE, BACKSLASH, COMMA, COLON, SPACE, UNICODE] = [0x22, 0x5c, 0x2c, 0x3a, 0x20, 0x75];
const [OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT] = [0x5b, 0x5d, 0x7b, 0x7d];
/** Short escapes: the character after the backslash, and the one that they stand for. */
const ESCAPES = new Map([...'"\\/bfnrt'].map((char, at) => [char.charCodeAt(0), '"\\/\b\f\n\r\t'.charCodeAt(at)]));
const HEX_DIGITS = new Map([...'0123456789abcdefABCDEF'].map((char) => [char.charCodeAt(0), Number.parseInt(char, 16)]));
const NON_ASCII = 0x80;
/** As many as the stack of a handler has room for; PHP reads 512 by default, and Python about 1,000. */
const MAX_LEVELS = 1_000;

/** Counts the members of all objects, or says which bound is exceeded. The count can be wrong for invalid JSON, which a parser rejects. */
export function countMembers(text: Buffer, bounds: JsonBounds): number | string {
  const { maxDepth, maxValues, maxMembers = maxValues } = bounds;
  /** Of each level that is open. */
  const counts = new Uint32Array(maxDepth + 2);
  let depth = 0;
  let values = 0;
  let members = 0;
  let most = 0;
  for (let at = 0; at < text.length; at++) {
    const byte = text[at] ?? 0;
    if (byte === QUOTE) at = findStringEnd(text, at + 1);
    else if (byte === COMMA) values++;
    else if (byte === COLON) {
      members++;
      most = Math.max(most, increment(counts, depth));
    } else if (isOpening(byte)) {
      values++;
      counts[++depth] = 0;
    } else if (isClosing(byte)) depth--;
    if (depth > maxDepth || values > maxValues || most > maxMembers) return toExceeded({ depth, values }, bounds);
  }
  return members;
}

function toExceeded(found: { readonly depth: number; readonly values: number }, bounds: JsonBounds): string {
  if (found.depth > bounds.maxDepth) return `it has more than ${bounds.maxDepth} levels`;
  if (found.values > bounds.maxValues) return `it has more than ${bounds.maxValues} values`;
  return `an object has more than ${bounds.maxMembers} members`;
}

function increment(counts: Uint32Array, at: number): number {
  const count = (counts[at] ?? 0) + 1;
  counts[at] = count;
  return count;
}

/**
 * The JSON text of a body, for all that read it; undefined if it is not JSON. A byte order mark before it is ignored, as some apps do. Bytes in it
 * that are not UTF-8 make the string unreadable in which they are, and no other value.
 */
export function toJsonText(body: Buffer): Buffer | undefined {
  const mark = body.subarray(0, BYTE_ORDER_MARK.length);
  const text = mark.equals(BYTE_ORDER_MARK) ? body.subarray(mark.length) : body;
  return isJson(text) ? text : undefined;
}

/**
 * Parses JSON of others; throws if the text is not JSON. `JSON.parse` of Node 24 and 26 can take a name with an escape for a shorter one, if a name that begins with
 * the same characters was parsed before: a repeated member would seem to be another one. So each string is parsed alone.
 */
export function parseJsonText(text: Buffer): unknown {
  if (!text.includes(BACKSLASH)) return JSON.parse(text.toString('utf8'));
  if (!isJson(text)) throw new SyntaxError('the text is not JSON');
  return readAt(text, toWholeSpan(text).from, MAX_LEVELS).value;
}

/** The value that begins at an offset of valid JSON, and the offset after it. */
function readAt(text: Buffer, from: number, levels: number): { readonly value: unknown; readonly to: number } {
  if (levels < 0) throw new SyntaxError(`the text has more than ${MAX_LEVELS} levels`);
  if (text[from] === OPEN_OBJECT) return readObject(text, from, levels - 1);
  if (text[from] === OPEN_LIST) return readList(text, from, levels - 1);
  const to = skipValue(text, from);
  return { value: JSON.parse(text.toString('utf8', from, to)), to };
}

function readObject(text: Buffer, from: number, levels: number): { readonly value: object; readonly to: number } {
  const object = {};
  let at = skipSpace(text, from + 1);
  while (text[at] === QUOTE) {
    const end = findStringEnd(text, at + 1) + 1;
    const { value, to } = readAt(text, skipSpace(text, skipSpace(text, end) + 1), levels);
    defineMember(object, readString(text, at, end), value);
    at = skipSeparator(text, to);
  }
  return { value: object, to: at + 1 };
}

/** Assignment to `__proto__` would change the prototype. */
export function defineMember(object: object, name: string | number, value: unknown): void {
  Object.defineProperty(object, name, { value, enumerable: true, writable: true, configurable: true });
}

function readList(text: Buffer, from: number, levels: number): { readonly value: readonly unknown[]; readonly to: number } {
  const list: unknown[] = [];
  let at = skipSpace(text, from + 1);
  while (text[at] !== CLOSE_LIST) {
    const { value, to } = readAt(text, at, levels);
    list.push(value);
    at = skipSeparator(text, to);
  }
  return { value: list, to: at + 1 };
}

/** The value of a valid JSON text, with the whitespace after it. */
export function toWholeSpan(text: Buffer): JsonSpan {
  return { from: skipSpace(text, 0), to: text.length };
}

/** The members of an object in valid JSON; none if the value is not an object. */
export function* listMembers(text: Buffer, object: JsonSpan): Generator<JsonMember> {
  for (const { name, value } of findSpans(text, object))
    yield { name: readString(text, name.from - 1, name.to + 1), from: name.from - 1, value };
}

/** The same, with the content of each name instead of the decoded name. */
function* findSpans(text: Buffer, object: JsonSpan): Generator<{ readonly name: JsonSpan; readonly value: JsonSpan }> {
  if (text[object.from] !== OPEN_OBJECT) return;
  let at = skipSpace(text, object.from + 1);
  while (text[at] === QUOTE) {
    const end = findStringEnd(text, at + 1);
    const from = skipSpace(text, skipSpace(text, end + 1) + 1);
    const to = skipValue(text, from);
    yield { name: { from: at + 1, to: end }, value: { from, to } };
    at = skipSeparator(text, to);
  }
}

/** The elements of an array in valid JSON; none if the value is not an array. */
export function* listElements(text: Buffer, array: JsonSpan): Generator<JsonSpan> {
  if (text[array.from] !== OPEN_LIST) return;
  let from = skipSpace(text, array.from + 1);
  while (from < array.to && text[from] !== CLOSE_LIST) {
    const to = skipValue(text, from);
    // Not JSON: without this, the text would be read forever.
    if (to === from) return;
    yield { from, to };
    from = skipSeparator(text, to);
  }
}

/** The value of a member of an object in valid JSON: of those with the same name the last, as parsers take it. */
export function findMember(text: Buffer, object: JsonSpan, name: string): JsonSpan | undefined {
  return findMembers(text, object, [name])[0];
}

/** The same for several names, in one pass. */
export function findMembers(text: Buffer, object: JsonSpan, names: readonly string[]): readonly (JsonSpan | undefined)[] {
  const found: (JsonSpan | undefined)[] = names.map(() => undefined);
  const wanted = names.map((name) => Buffer.from(name));
  for (const { name, value } of findSpans(text, object))
    wanted.forEach((each, index) => {
      if (isName(text, name, each)) found[index] = value;
    });
  return found;
}

/** Whether the content of a string is `name`. Compares escapes as bytes: a hostile object has millions of names with escapes. */
function isName(text: Buffer, { from, to }: JsonSpan, name: Buffer): boolean {
  let at = from;
  for (const byte of name) {
    if (at >= to) return false;
    const isEscape = text[at] === BACKSLASH;
    const unit = (isEscape ? readEscape(text, at + 1) : text[at]) ?? Number.NaN;
    // Two units of UTF-16 can be one character, which is several bytes of the name.
    if (isEscape && unit >= NON_ASCII && byte >= NON_ASCII) return readString(text, from - 1, to + 1) === name.toString();
    if (unit !== byte) return false;
    at += isEscape ? toEscapeLength(text, at + 1) : 1;
  }
  return at === to;
}

/** The unit of UTF-16 that an escape stands for, from the character after the backslash; undefined or NaN if it is invalid. */
function readEscape(text: Buffer, at: number): number | undefined {
  return text[at] === UNICODE ? readHex(text, at + 1) : ESCAPES.get(text[at] ?? 0);
}

function toEscapeLength(text: Buffer, at: number): number {
  return text[at] === UNICODE ? 6 : 2;
}

/** Four digits; NaN if they are none. */
function readHex(text: Buffer, from: number): number {
  let value = 0;
  for (let at = from; at < from + 4; at++) value = value * 16 + (HEX_DIGITS.get(text[at] ?? 0) ?? Number.NaN);
  return value;
}

/** The value at a path in valid JSON. */
function findAt(text: Buffer, steps: readonly (string | number)[], whole: JsonSpan): JsonSpan | undefined {
  let found: JsonSpan | undefined = whole;
  for (const step of steps) {
    if (found === undefined) return undefined;
    found = typeof step === 'number' ? findElement(text, found, step) : findMember(text, found, step);
  }
  return found;
}

/** Whether a value of valid JSON is an object. */
export function isObject(text: Buffer, value: JsonSpan | undefined): boolean {
  return value !== undefined && text[value.from] === OPEN_OBJECT;
}

/** The string, number or literal at a path in valid JSON, as it is written; undefined if there is none. In linear time, without a tree of the text. */
export function findScalar(text: Buffer, steps: readonly (string | number)[], whole = toWholeSpan(text)): string | undefined {
  const span = findAt(text, steps, whole);
  if (span === undefined || isOpening(text[span.from])) return undefined;
  const written = text.subarray(span.from, span.to);
  return isUtf8(written) ? written.toString('utf8').trim() : undefined;
}

/** The same, parsed. */
export function readScalar(text: Buffer, steps: readonly (string | number)[], whole?: JsonSpan): unknown {
  const found = findScalar(text, steps, whole);
  return found === undefined ? undefined : JSON.parse(found);
}

/** Reads the scalar at `item` of each element of the array at `list`, in order; undefined if the array is missing or empty. */
export function readScalars(text: Buffer, list: readonly (string | number)[], item: readonly (string | number)[]) {
  const array = findAt(text, list, toWholeSpan(text));
  const found = array === undefined ? [] : Array.from(listElements(text, array), (element) => readScalar(text, item, element));
  return found.length === 0 ? undefined : found;
}

function findElement(text: Buffer, array: JsonSpan, index: number): JsonSpan | undefined {
  let at = 0;
  for (const element of listElements(text, array)) if (at++ === index) return element;
  return undefined;
}

/** The string in quotes between two offsets. */
function readString(text: Buffer, from: number, to: number): string {
  const content = text.toString('utf8', from + 1, to - 1);
  return content.includes('\\') ? (JSON.parse(`"${content}"`) as string) : content;
}

/** The closing quote of the string whose content starts at `from`. */
function findStringEnd(text: Buffer, from: number): number {
  let at = from;
  while (at < text.length && text[at] !== QUOTE) at += text[at] === BACKSLASH ? 2 : 1;
  return at;
}

function skipSpace(text: Buffer, from: number): number {
  let at = from;
  for (let byte = text[at]; byte === SPACE || byte === 0x0a || byte === 0x0d || byte === 0x09; byte = text[at]) at++;
  return at;
}

function skipSeparator(text: Buffer, from: number): number {
  const at = skipSpace(text, from);
  return text[at] === COMMA ? skipSpace(text, at + 1) : at;
}

function skipValue(text: Buffer, from: number): number {
  const first = text[from];
  if (first === QUOTE) return findStringEnd(text, from + 1) + 1;
  return isOpening(first) ? skipNested(text, from) : skipLiteral(text, from);
}

function skipNested(text: Buffer, from: number): number {
  let depth = 0;
  for (let at = from; at < text.length; at++) {
    const byte = text[at];
    if (byte === QUOTE) at = findStringEnd(text, at + 1);
    else if (isOpening(byte)) depth++;
    else if (isClosing(byte) && --depth === 0) return at + 1;
  }
  return text.length;
}

/** A number, `true`, `false` or `null`. */
function skipLiteral(text: Buffer, from: number): number {
  let at = from;
  for (; at < text.length; at++) {
    const byte = text[at] ?? 0;
    if (byte <= SPACE || byte === COMMA || isClosing(byte)) break;
  }
  return at;
}

function isOpening(byte: number | undefined): boolean {
  return byte === OPEN_LIST || byte === OPEN_OBJECT;
}

function isClosing(byte: number | undefined): boolean {
  return byte === CLOSE_LIST || byte === CLOSE_OBJECT;
}

// The check of the whole text: the grammar of RFC 8259, in linear time.

const [MINUS, PLUS, POINT, ZERO, NINE] = [0x2d, 0x2b, 0x2e, 0x30, 0x39];
const [UPPER_E, LOWER_E] = [0x45, 0x65];
const LITERALS = ['true', 'false', 'null'].map((text) => Buffer.from(text));
const LEVELS_A_BYTE = 8;
/** Instead of an offset: the text is not JSON. */
const NONE = -1;

/** Which of the open levels are objects: a bit for each. */
class Levels {
  #bits = new Uint8Array(LEVELS_A_BYTE);
  #depth = 0;

  get isEmpty(): boolean {
    return this.#depth === 0;
  }

  /** The innermost one. */
  get isObject(): boolean {
    const at = this.#depth - 1;
    return (((this.#bits[Math.floor(at / LEVELS_A_BYTE)] ?? 0) >> (at % LEVELS_A_BYTE)) & 1) === 1;
  }

  open(isObject: boolean): void {
    const index = Math.floor(this.#depth / LEVELS_A_BYTE);
    if (index === this.#bits.length) {
      const larger = new Uint8Array(2 * index);
      larger.set(this.#bits);
      this.#bits = larger;
    }
    const bit = 1 << (this.#depth % LEVELS_A_BYTE);
    const others = (this.#bits[index] ?? 0) & ~bit;
    this.#bits[index] = isObject ? others | bit : others;
    this.#depth++;
  }

  close(): void {
    this.#depth--;
  }

  isClosing(byte: number | undefined): boolean {
    return byte === (this.isObject ? CLOSE_OBJECT : CLOSE_LIST);
  }
}

/** Whether the whole text is one value. In strings, bytes that are not UTF-8 are accepted. */
export function isJson(text: Buffer): boolean {
  const levels = new Levels();
  let at = skipSpace(text, 0);
  while (at !== NONE) {
    const byte = text[at];
    if (byte === OPEN_OBJECT || byte === OPEN_LIST) {
      levels.open(byte === OPEN_OBJECT);
      at = skipSpace(text, at + 1);
      if (!levels.isClosing(text[at])) {
        at = levels.isObject ? skipName(text, at) : at;
        continue;
      }
    } else at = skipScalar(text, at);
    at = skipToNext(text, at, levels);
    if (levels.isEmpty) return at === text.length;
  }
  return false;
}

/** From the end of a value, or the end of an empty level, to the next value; to the end of the text after the last one. */
function skipToNext(text: Buffer, from: number, levels: Levels): number {
  let at = from === NONE ? NONE : skipSpace(text, from);
  while (at !== NONE && !levels.isEmpty) {
    if (levels.isClosing(text[at])) {
      levels.close();
      at = skipSpace(text, at + 1);
    } else if (text[at] === COMMA) {
      const next = skipSpace(text, at + 1);
      return levels.isObject ? skipName(text, next) : next;
    } else return NONE;
  }
  return at;
}

/** From the name of a member to its value. */
function skipName(text: Buffer, from: number): number {
  const end = text[from] === QUOTE ? skipString(text, from) : NONE;
  const colon = end === NONE ? NONE : skipSpace(text, end);
  return text[colon] === COLON ? skipSpace(text, colon + 1) : NONE;
}

function skipScalar(text: Buffer, from: number): number {
  const byte = text[from];
  if (byte === QUOTE) return skipString(text, from);
  if (byte === MINUS || isDigit(byte)) return skipNumber(text, from);
  for (const literal of LITERALS) if (byte === literal[0]) return skipLiteralOf(text, from, literal);
  return NONE;
}

function skipLiteralOf(text: Buffer, from: number, literal: Buffer): number {
  for (let at = 1; at < literal.length; at++) if (text[from + at] !== literal[at]) return NONE;
  return from + literal.length;
}

function skipString(text: Buffer, from: number): number {
  let at = from + 1;
  while (at !== NONE && text[at] !== QUOTE) {
    if (text[at] === BACKSLASH) at = skipEscape(text, at + 1);
    else at = (text[at] ?? 0) < SPACE ? NONE : at + 1;
  }
  return at === NONE ? NONE : at + 1;
}

/** From the character after the backslash. */
function skipEscape(text: Buffer, from: number): number {
  if (text[from] !== UNICODE) return ESCAPES.has(text[from] ?? 0) ? from + 1 : NONE;
  return Number.isNaN(readHex(text, from + 1)) ? NONE : from + 5;
}

function skipNumber(text: Buffer, from: number): number {
  let at = text[from] === MINUS ? from + 1 : from;
  if (text[at] === ZERO) at++;
  else at = skipDigits(text, at);
  if (at !== NONE && text[at] === POINT) at = skipDigits(text, at + 1);
  if (at === NONE || (text[at] !== UPPER_E && text[at] !== LOWER_E)) return at;
  return skipDigits(text, text[at + 1] === MINUS || text[at + 1] === PLUS ? at + 2 : at + 1);
}

/** At least one. */
function skipDigits(text: Buffer, from: number): number {
  let at = from;
  while (isDigit(text[at])) at++;
  return at === from ? NONE : at;
}

function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= ZERO && byte <= NINE;
}
