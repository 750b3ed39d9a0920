/** Parses untrusted JSON: its size in memory is bounded before it is parsed. */
import { getHeapStatistics } from 'node:v8';
import { countMembers, type JsonBounds } from '../../core/json-scan.ts';

/** The largest pod that etcd stores (1.5 MiB) has up to 390,000 values, if each has four bytes of text; one with 100 containers has about 10,000. */
const MAX_VALUES = 393_216;
/** The most that was measured for a value: an object in an object, with a numeric key. A single byte of text is enough for one. */
const BYTES_PER_VALUE = 200;
/** Of the heap, for the values of one review. */
const HEAP_SHARE = 1 / 2;
/** Pods have about 15 levels, including managedFields. */
const BOUNDS: JsonBounds = { maxDepth: 64, maxValues: toMaxValues(getHeapStatistics().heap_size_limit) };

/** The most values of a review for a heap of so many bytes: 335,000 for the chart's memory limit of 256 MiB. */
export function toMaxValues(heapBytes: number): number {
  return Math.min(MAX_VALUES, Math.floor((heapBytes * HEAP_SHARE) / BYTES_PER_VALUE));
}

/** Whether the text is small enough to be parsed. */
export function isBounded(content: Buffer): boolean {
  return typeof countMembers(content, BOUNDS) === 'number';
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
