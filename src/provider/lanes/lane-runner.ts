/** Runs lanes for a delivery queue, within limits that all lanes of the process share. */
import type { Lane, LaneResult } from '../queue/delivery-queue.ts';
import { endAbsence, leaveAbsent, serveAbsent } from './absent-endpoints.ts';
import type { LaneParts } from './end-attempt.ts';
import { LaneRun } from './lane-run.ts';
import { MemoryBudget } from './memory-budget.ts';
import { type SlotFigures, type SlotLimits, SlotPool } from './slot-pool.ts';

/** For the metadata, and the objects around it. */
const DELIVERY_EXTRA_BYTES = 66 * 1_024;

/** How many lanes to serve at once: each attempt in flight holds one, and those that wait for a slot must not hold up the others. */
export function toLaneCount({ maxConnections }: Pick<SlotLimits, 'maxConnections'>): number {
  return 2 * maxConnections;
}

export type LaneRunner = ReturnType<typeof createLaneRunner>;

export function createLaneRunner(parts: LaneParts) {
  const { clock, registry, settings } = parts;
  const budget = new MemoryBudget(settings.maxWaitingBytes, settings.maxEventSize + DELIVERY_EXTRA_BYTES, clock);
  const slots = new SlotPool(settings, budget, clock);
  const context = { random: Math.random, ...parts, budget, slots };
  return {
    /** For `DeliveryQueue.serve`. */
    async run(lane: Lane): Promise<LaneResult> {
      const endpoint = registry.get(lane.endpoint);
      if (endpoint === undefined && registry.isElsewhere?.(lane.endpoint) === true) return leaveAbsent(context);
      if (endpoint === undefined || endpoint.disabled !== undefined) return serveAbsent(context, lane, endpoint);
      await endAbsence(lane);
      return new LaneRun(context, lane, endpoint).run();
    },
    /** Changes the size of the largest body that a delivery can have. */
    setMaxBody: (bytes: number): void => budget.setLargest(bytes + DELIVERY_EXTRA_BYTES),
    get slots(): SlotFigures {
      return slots.figures;
    },
  };
}
