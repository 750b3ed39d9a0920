/** Parses untrusted JSON: its size in memory is bounded before it is parsed. */
import { countMembers, type JsonBounds } from '../../core/json-scan.ts';

/**
 * Pods have about 15 levels, including managedFields. A review of a pod with 100 containers has about 10,000 values. Each takes 40 to 250
 * bytes of heap (least for `[]`, most for objects with distinct keys), although a single byte of text is enough for it.
 */
const BOUNDS: JsonBounds = { maxDepth: 64, maxValues: 131_072 };

/** The value; undefined if the text is not JSON in UTF-8, is nested too deeply or has too many values. */
export function parseBounded(content: Buffer): unknown {
  if (countMembers(content, BOUNDS) === undefined) return undefined;
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(content)) as unknown;
  } catch {
    return undefined;
  }
}
