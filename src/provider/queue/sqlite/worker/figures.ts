/** Figures of the store, without a scan of it. */
import type { EpochMilliseconds } from '../../../../core/clock.ts';
import type { EndpointBacklog, QueueStats } from '../../delivery-queue.ts';
import type { Bounds } from './append.ts';
import type { StoreMemory } from './lanes.ts';

/** One short search for each endpoint with a backlog. */
export function readStats(memory: StoreMemory, { maxEvents, maxBytes }: Bounds, now: EpochMilliseconds): QueueStats {
  const { dead, skipped, events, bytes } = memory.counters;
  let oldest = Number.POSITIVE_INFINITY;
  for (const lane of memory.lanes) oldest = Math.min(oldest, memory.firstDue(lane) ?? oldest);
  return {
    waiting: memory.countWaiting(),
    dead,
    skipped,
    ...(oldest <= now && { oldestDue: oldest }),
    events,
    bytes,
    maxEvents,
    maxBytes,
    sweepFinds: 0,
  };
}

/** The backlog of each of `endpoints`. */
export function readBacklogs(memory: StoreMemory, endpoints: readonly string[], now: EpochMilliseconds): EndpointBacklog[] {
  return endpoints.map((name) => {
    const lane = memory.find(name);
    const first = lane === undefined ? undefined : memory.firstDue(lane);
    return { waiting: lane?.waiting ?? 0, ...(first !== undefined && first <= now && { oldestDue: first }) };
  });
}
