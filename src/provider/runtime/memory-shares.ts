/** Divides the memory of the container between events that are accepted and deliveries that are sent. */

/** How many bytes each part may hold, before copies. */
export interface MemoryShares {
  readonly accepting: number;
  /** Deliveries that wait or have young attempts. */
  readonly waiting: number;
  /** Deliveries of slow attempts. */
  readonly slow: number;
}

const MIB = 1024 * 1024;
/** The memory of a process that accepts and sends small events (bench/RESULTS-provider-memory.md). */
const BASE_BYTES = 88 * MIB;
/** An event is copied on its way to the store; with garbage and the buffers of the store, about eight times its size was measured. */
const ACCEPTING_SHARE = 1 / 16;
/** A body that is sent is in one buffer. */
const WAITING_SHARE = 1 / 8;
const SLOW_SHARE = 1 / 4;
/** Without a limit, or with a large one. */
const MAX_SHARES: MemoryShares = { accepting: 16 * MIB, waiting: 32 * MIB, slow: 64 * MIB };

/** Returns shares that can be too small for a single large event: their users make an exception for it. `limit`: in bytes; undefined: there is none. */
export function toMemoryShares(limit: number | undefined): MemoryShares {
  if (limit === undefined) return MAX_SHARES;
  const rest = Math.max(0, limit - BASE_BYTES);
  return {
    accepting: Math.min(Math.floor(rest * ACCEPTING_SHARE), MAX_SHARES.accepting),
    waiting: Math.min(Math.floor(rest * WAITING_SHARE), MAX_SHARES.waiting),
    slow: Math.min(Math.floor(rest * SLOW_SHARE), MAX_SHARES.slow),
  };
}
