/** Bounds the memory of password hashing: each thread needs a fixed amount, plus the memory of the hash. */
import type { Bytes } from '../core/bytes.ts';

/** The stack, heap and code of one thread: the measured growth of the process per thread, minus the memory of its hash (docs/adr/0006). */
const THREAD_BYTES: Bytes = 16 * 1024 * 1024;
/** The rest is for request bodies, connections and the heap. */
const CONTAINER_SHARE = 0.4;

/** The share of the container's memory that password hashing may use; undefined if the container has no limit. */
export function toHashBudget(containerBytes: Bytes | undefined): Bytes | undefined {
  return containerBytes === undefined ? undefined : Math.floor(containerBytes * CONTAINER_SHARE);
}

/** The largest hash that one thread can check within the budget. */
export function toLargestHash(budget: Bytes | undefined): Bytes {
  return budget === undefined ? Number.POSITIVE_INFINITY : Math.max(0, budget - THREAD_BYTES);
}

/** How many threads may check hashes of up to `largestHash` at once; at least one. */
export function toThreadCount(wanted: number, budget: Bytes | undefined, largestHash: Bytes): number {
  if (budget === undefined) return wanted;
  return Math.max(1, Math.min(wanted, Math.floor(budget / (THREAD_BYTES + largestHash))));
}
