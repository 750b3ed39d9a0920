/** Parses untrusted JSON: its size in memory is bounded before it is parsed. */
import { countMembers, type JsonBounds } from '../../core/json-scan.ts';

/**
 * Pods have about 15 levels, including managedFields. A review of a pod with 100 containers has about 10,000 values; the largest pod that etcd stores
 * (1.5 MiB) has up to 390,000, if each has four bytes of text. A value needs at most 100 bytes of heap (most for objects with distinct keys), although a
 * single byte of text is enough for it.
 */
const BOUNDS: JsonBounds = { maxDepth: 64, maxValues: 393_216 };

/** Whether the text is small enough to be parsed. */
export function isBounded(content: Buffer): boolean {
  return countMembers(content, BOUNDS) !== undefined;
}

/** The value; undefined if the text is not JSON in UTF-8, is nested too deeply or has too many values. */
export function parseBounded(content: Buffer): unknown {
  if (!isBounded(content)) return undefined;
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(content)) as unknown;
  } catch {
    return undefined;
  }
}
