/** Reads JSON that anyone may have sent: what it would become in memory is bounded before it is parsed. */

/** Pods nest about 15 levels deep, with the managedFields that tell who set what. */
const DEEPEST = 64;
/**
 * A review of a pod of 100 containers has about 10,000. Each becomes 40 to 250 bytes of heap (`[]` the least, objects of keys that
 * are all different the most), where one byte of the text is enough for it.
 */
const MOST_VALUES = 131_072;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPENING: ReadonlySet<number> = new Set([0x5b, 0x7b]);
const CLOSING: ReadonlySet<number> = new Set([0x5d, 0x7d]);

/** The value; undefined where it is no JSON in UTF-8, nests too deeply or holds too many values. */
export function parseBounded(content: Buffer): unknown {
  if (!isModest(content)) return undefined;
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(content)) as unknown;
  } catch {
    return undefined;
  }
}

/** Counts without reading: what is no JSON may count wrongly, and then fails to parse as early as it is counted. */
function isModest(content: Buffer): boolean {
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
    if (depth > DEEPEST || values > MOST_VALUES) return false;
  }
  return true;
}

/** Where the string that begins at `from` ends. */
function findEnd(content: Buffer, from: number): number {
  let at = from;
  while (at < content.length && content[at] !== QUOTE) at += content[at] === BACKSLASH ? 2 : 1;
  return at;
}
