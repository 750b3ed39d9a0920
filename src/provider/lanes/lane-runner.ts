/**
 * Runs lanes for a delivery queue, within limits that all lanes of the process share. Deliveries to endpoints that are disabled or do not exist are
 * skipped, but only once that is certain.
 */
import { ClockSteps } from '../../core/clock-steps.ts';
import type { Endpoint } from '../endpoints/endpoint.ts';
import type { Lane, LaneAbsence, LaneResult, LaneState } from '../queue/delivery-queue.ts';
import type { LaneContext, LaneParts } from './end-attempt.ts';
import { LaneRun } from './lane-run.ts';
import { toPause } from './lane-state.ts';
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
  const context = { random: Math.random, steps: new ClockSteps(clock), ...parts, budget, slots };
  return {
    /** For `DeliveryQueue.serve`. */
    async run(lane: Lane): Promise<LaneResult> {
      const endpoint = registry.get(lane.endpoint);
      if (endpoint === undefined && registry.isElsewhere?.(lane.endpoint) === true) return leaveAbsent(context);
      if (endpoint === undefined || endpoint.disabled !== undefined) return serveAbsent(context, lane, endpoint);
      // No replica may skip its deliveries soon, although its config may not have the endpoint yet.
      if (lane.state?.absence !== undefined) await lane.settle([], { ...lane.state, absence: undefined });
      return new LaneRun(context, lane, endpoint).run();
    },
    /** Changes the size of the largest body that a delivery can have. */
    setMaxBody: (bytes: number): void => budget.setLargest(bytes + DELIVERY_EXTRA_BYTES),
    get slots(): SlotFigures {
      return slots.figures;
    },
  };
}

/**
 * An endpoint that another replica enabled is known here within a second, or after 10 s if the message about it is lost. Deliveries that became
 * due in this time may have been accepted or replayed since then.
 */
const DISABLED_GRACE_MS = 15_000;
/** An endpoint that is unknown here can be in the config of a newer replica; a rolling update takes minutes. */
const UNKNOWN_GRACE_MS = 15 * 60_000;
const RECHECK_MS = 5_000;
/** Without a look for so long, the endpoint may have been there meanwhile. */
const MAX_GAP_MS = 30_000;
const SKIP_BATCH = 32;
const SKIP_SLICE_MS = 5_000;

/** Leaves the lane to another replica. */
export function leaveAbsent({ clock }: LaneContext): LaneResult {
  return { notBefore: clock.now() + RECHECK_MS, isLeft: true };
}

/** Serves the lane of an endpoint that is disabled, or undefined: not known. The lane's state has what other replicas found before. */
export async function serveAbsent(context: LaneContext, lane: Lane, endpoint: Endpoint | undefined): Promise<LaneResult> {
  const kind = endpoint === undefined ? 'unknown' : 'disabled';
  const grace = kind === 'unknown' ? UNKNOWN_GRACE_MS : DISABLED_GRACE_MS;
  const now = context.clock.now();
  const known = lane.state ?? { failures: 0, isProven: false, since: endpoint?.enabledAt ?? 0 };
  // A replica that knows the endpoint does not look at it while it is paused.
  if (kind === 'unknown' && toPause(known, now) !== undefined) return leaveAbsent(context);
  const { absence: before } = known;
  // Starts again after a time in which nobody looked, or that another clock measured: the endpoint may have been there meanwhile.
  const isContinued = before?.kind === kind && Math.abs(now - before.seenAt) <= MAX_GAP_MS && before.since <= now;
  const absence: LaneAbsence = { kind, since: isContinued ? before.since : now, seenAt: now };
  const state = { ...known, absence };
  if (now - absence.since >= grace) return skipAll(context, lane, state, endpoint?.tenant);
  await lane.settle([], state);
  return leaveAbsent(context);
}

async function skipAll(context: LaneContext, lane: Lane, state: LaneState, tenant: string | undefined): Promise<LaneResult> {
  const { clock, hooks } = context;
  const end = clock.monotonic() + SKIP_SLICE_MS;
  while (!lane.signal.aborted && clock.monotonic() < end) {
    const { taken, skipped, isLast } = await skipSome(context, lane, state, tenant);
    if (skipped > 0) hooks.onSkipped(lane.endpoint, skipped);
    if (skipped < taken) return leaveAbsent(context);
    if (isLast) break;
  }
  return {};
}

/** Some deliveries may be too young to be skipped. `isLast`: no others are due. */
async function skipSome({ budget, slots, clock }: LaneContext, lane: Lane, state: LaneState, tenant: string | undefined) {
  const now = clock.now();
  const reserved =
    budget.reserve(SKIP_BATCH, tenant) || ((await slots.waitForMemory(SKIP_BATCH, tenant, SKIP_SLICE_MS).granted) ?? 0);
  if (reserved === 0) return { taken: 0, skipped: 0, isLast: true };
  try {
    const deliveries = await lane.take(reserved, now);
    const old = deliveries.filter(({ due }) => due <= now - DISABLED_GRACE_MS);
    const settled = old.map(({ event, attempt }) => ({ event, attempt, at: now, settlement: { kind: 'skipped' } as const }));
    if (settled.length > 0) await lane.settle(settled, state);
    return { taken: deliveries.length, skipped: old.length, isLast: deliveries.length < reserved };
  } finally {
    budget.settle(reserved, 0, tenant);
  }
}
