/** Parses untrusted JSON: its size in memory is bounded before it is parsed. */

/** Pods have about 15 levels, including managedFields. */
const MAX_DEPTH = 64;
/**
 * A review of a pod with 100 containers has about 10,000 values. Each takes 40 to 250 bytes of heap (least for `[]`, most for objects
 * with distinct keys), although a single byte of text is enough for it.
 */
const MAX_VALUES = 131_072;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPENING: ReadonlySet<number> = new Set([0x5b, 0x7b]);
const CLOSING: ReadonlySet<number> = new Set([0x5d, 0x7d]);

/** The value; undefined if the text is not JSON in UTF-8, is nested too deeply or has too many values. */
export function parseBounded(content: Buffer): unknown {
  if (!isBounded(content)) return undefined;
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(content)) as unknown;
  } catch {
    return undefined;
  }
}

/** Counts without parsing. The count can be wrong for invalid JSON, but then parsing fails at the same position. */
function isBounded(content: Buffer): boolean {
  let depth = 0;
  let values = 0;
  for (let at = 0; at < content.length; at++) {
    const byte = content[at] ?? 0;
    if (byte === QUOTE) at = findEnd(content, at + 1);
    else if (byte === COMMA) values++;
    else if (OPENING.has(byte)) {
      values++;
      depth++;
    } else if (CLOSING.has(byte)) depth--;
    if (depth > MAX_DEPTH || values > MAX_VALUES) return false;
  }
  return true;
}

/** The end of the string that starts at `from`. */
function findEnd(content: Buffer, from: number): number {
  let at = from;
  while (at < content.length && content[at] !== QUOTE) at += content[at] === BACKSLASH ? 2 : 1;
  return at;
}
