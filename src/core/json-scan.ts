/** Scans JSON text without parsing it: bounds its size in memory, and finds the bytes of its parts. */

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

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_LIST = 0x5b;
const CLOSE_LIST = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const SPACE = 0x20;

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

/** The value of a valid JSON text, with the whitespace after it. */
export function toWholeSpan(text: Buffer): JsonSpan {
  return { from: skipSpace(text, 0), to: text.length };
}

/** The members of an object in valid JSON; none if the value is not an object. */
export function* listMembers(text: Buffer, object: JsonSpan): Generator<JsonMember> {
  if (text[object.from] !== OPEN_OBJECT) return;
  let at = skipSpace(text, object.from + 1);
  while (text[at] === QUOTE) {
    const end = findStringEnd(text, at + 1) + 1;
    const name = readString(text, at, end);
    const from = skipSpace(text, skipSpace(text, end) + 1);
    const to = skipValue(text, from);
    yield { name, from: at, value: { from, to } };
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
  let found: JsonSpan | undefined;
  for (const member of listMembers(text, object)) if (member.name === name) found = member.value;
  return found;
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

/** Whether there is an object at a path in valid JSON. */
export function isObject(text: Buffer, steps: readonly (string | number)[]): boolean {
  const span = findAt(text, steps, toWholeSpan(text));
  return span !== undefined && text[span.from] === OPEN_OBJECT;
}

/** The string, number or literal at a path in valid JSON, as it is written; undefined if there is none. In linear time, without a tree of the text. */
export function findScalar(text: Buffer, steps: readonly (string | number)[], whole = toWholeSpan(text)): string | undefined {
  const span = findAt(text, steps, whole);
  return span === undefined || isOpening(text[span.from]) ? undefined : text.toString('utf8', span.from, span.to).trim();
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
  while (at < text.length && (text[at] ?? 0) <= SPACE) at++;
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
