/**
 * Runs lanes for a delivery queue, within limits that all lanes of the process share. Deliveries to endpoints that are disabled or do not exist are
 * skipped, but only once that is certain.
 */
import { ClockSteps } from '../../core/clock.ts';
import { MemoryBudget } from '../../core/throttle.ts';
import { type Endpoint, toIdentity } from '../endpoints/endpoint.ts';
import type { Lane, LaneResult, LaneState } from '../queue/delivery-queue.ts';
import { isAbandoned, leaveLane, takeDue, toAbsence } from './absence.ts';
import type { LaneContext, LaneParts } from './end-attempt.ts';
import { LaneRun } from './lane-run.ts';
import { toPause } from './lane-state.ts';
import { type SlotFigures, type SlotLimits, SlotPool } from './slot-pool.ts';

/** How many lanes to serve at once: each attempt in flight holds one, and those that wait for a slot must not hold up the others. */
export function toLaneCount({ maxConnections }: Pick<SlotLimits, 'maxConnections'>): number {
  return 2 * maxConnections;
}

export type LaneRunner = ReturnType<typeof createLaneRunner>;

export function createLaneRunner(parts: LaneParts) {
  const { clock, registry, settings } = parts;
  const budget = new MemoryBudget(settings.maxWaitingBytes, clock);
  const slots = new SlotPool(settings, budget, clock);
  const context = { random: Math.random, steps: new ClockSteps(clock), ...parts, budget, slots, away: new Set<string>() };
  return {
    /** For `DeliveryQueue.serve`. */
    async run(lane: Lane): Promise<LaneResult> {
      const endpoint = registry.get(lane.endpoint);
      if (endpoint === undefined && registry.isElsewhere?.(lane.endpoint) === true) return leaveLane(context);
      if (endpoint === undefined || endpoint.disabled !== undefined) return serveAbsent(context, lane, endpoint);
      // No replica may skip its deliveries soon, although its config may not have the endpoint, or this tenant of it, yet.
      const { state } = lane;
      if (state?.absence !== undefined && state.absence.kind !== toIdentity(endpoint))
        await lane.settle([], { ...state, absence: undefined });
      return new LaneRun(context, lane, endpoint).run();
    },
    get slots(): SlotFigures {
      return slots.figures;
    },
  };
}

const SKIP_BATCH = 32;
const SKIP_SLICE_MS = 5_000;

/** Serves the lane of an endpoint that is disabled, or undefined: not known. */
async function serveAbsent(context: LaneContext, lane: Lane, endpoint: Endpoint | undefined): Promise<LaneResult> {
  const now = context.clock.now();
  const known = lane.state ?? { failures: 0, isProven: false, since: endpoint?.enabledAt ?? 0 };
  if (endpoint !== undefined) return skipAll(context, lane, { ...known, absence: undefined }, endpoint);
  // A replica that knows the endpoint does not look at it while it is paused.
  if (toPause(known, now) !== undefined) return leaveLane(context);
  const state = { ...known, absence: toAbsence(known.absence, 'unknown', now) };
  if (isAbandoned(state.absence)) return skipAll(context, lane, state, undefined);
  await lane.settle([], state);
  return leaveLane(context);
}

/** Of an unknown endpoint, some deliveries may be too young to be skipped. */
async function skipAll(context: LaneContext, lane: Lane, state: LaneState, endpoint: Endpoint | undefined): Promise<LaneResult> {
  const { clock, hooks, registry } = context;
  const end = clock.monotonic() + SKIP_SLICE_MS;
  while (!lane.signal.aborted && clock.monotonic() < end) {
    const taken = await takeDue(context, lane, SKIP_BATCH, undefined, 'heads');
    const isCurrent = registry.get(lane.endpoint) === endpoint;
    const old = taken.filter(({ due }) => isCurrent && (state.absence === undefined || isAbandoned(state.absence, due)));
    const at = clock.now();
    const settled = old.map(({ event, attempt }) => ({ event, attempt, at, settlement: { kind: 'skipped' } as const }));
    if (settled.length > 0) {
      await lane.settle(settled, state);
      hooks.onSkipped(lane.endpoint, settled.length);
    }
    if (settled.length < taken.length) return leaveLane(context);
    if (taken.length < SKIP_BATCH) break;
  }
  return {};
}
