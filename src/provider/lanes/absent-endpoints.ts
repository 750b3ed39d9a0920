/** Deliveries to endpoints that are disabled or do not exist: they are skipped, but only once it is certain. */
import type { Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import type { Endpoint } from '../endpoints/endpoint.ts';
import type { Lane, LaneResult, LaneState } from '../queue/delivery-queue.ts';
import type { LaneHooks } from './lane-hooks.ts';
import type { MemoryBudget } from './memory-budget.ts';
import type { SlotPool } from './slot-pool.ts';

/** An endpoint that another replica enabled is known here within seconds. */
const DISABLED_GRACE_MS = 10_000;
/** An endpoint that is unknown here can be in the config of a newer replica; a rolling update takes minutes. */
const UNKNOWN_GRACE_MS = 15 * 60_000;
const RECHECK_MS = 5_000;
/** Without a look for so long, the endpoint may have been there meanwhile. */
const MAX_GAP_MS = 30_000;
const SKIP_BATCH = 32;
const SWEEP_AT = 1_000;
const SKIP_SLICE_MS = 5_000;

interface Absence {
  readonly kind: 'disabled' | 'unknown';
  readonly since: Milliseconds;
  seenAt: Milliseconds;
}

export interface AbsenceParts {
  readonly clock: Clock;
  readonly budget: MemoryBudget;
  readonly slots: SlotPool;
  readonly hooks: Pick<LaneHooks, 'onSkipped'>;
}

export class AbsentEndpoints {
  readonly #parts: AbsenceParts;
  readonly #absences = new Map<string, Absence>();

  constructor(parts: AbsenceParts) {
    this.#parts = parts;
  }

  /** The endpoint is there. */
  forget(endpoint: string): void {
    this.#absences.delete(endpoint);
  }

  /** Leaves the lane to another replica. */
  leave(): LaneResult {
    return { notBefore: this.#parts.clock.now() + RECHECK_MS };
  }

  /** Serves the lane of an endpoint that is disabled, or undefined: not known. */
  async serve(lane: Lane, endpoint: Endpoint | undefined): Promise<LaneResult> {
    const kind = endpoint === undefined ? 'unknown' : 'disabled';
    const grace = kind === 'unknown' ? UNKNOWN_GRACE_MS : DISABLED_GRACE_MS;
    if (this.#observe(lane.endpoint, kind) < grace) return this.leave();
    return this.#skipAll(lane, lane.state ?? { failures: 0, isProven: false, since: endpoint?.enabledAt ?? 0 });
  }

  /** For how long the endpoint has been absent without a break. */
  #observe(endpoint: string, kind: Absence['kind']): Milliseconds {
    const now = this.#parts.clock.monotonic();
    if (this.#absences.size > SWEEP_AT) this.#sweep(now);
    const known = this.#absences.get(endpoint);
    if (known === undefined || known.kind !== kind || now - known.seenAt > MAX_GAP_MS) {
      this.#absences.set(endpoint, { kind, since: now, seenAt: now });
      return 0;
    }
    known.seenAt = now;
    return now - known.since;
  }

  #sweep(now: Milliseconds): void {
    for (const [endpoint, { seenAt }] of this.#absences) if (now - seenAt > MAX_GAP_MS) this.#absences.delete(endpoint);
  }

  async #skipAll(lane: Lane, state: LaneState): Promise<LaneResult> {
    const { clock, hooks } = this.#parts;
    const end = clock.monotonic() + SKIP_SLICE_MS;
    while (!lane.signal.aborted && clock.monotonic() < end) {
      const { isLast, count } = await this.#skipSome(lane, state, clock.now());
      if (count > 0) hooks.onSkipped(lane.endpoint, count);
      if (isLast) break;
    }
    return {};
  }

  async #skipSome(lane: Lane, state: LaneState, now: EpochMilliseconds): Promise<{ isLast: boolean; count: number }> {
    const { budget, slots } = this.#parts;
    const reserved = budget.reserve(SKIP_BATCH) || ((await slots.waitForMemory(SKIP_BATCH, SKIP_SLICE_MS).granted) ?? 0);
    if (reserved === 0) return { isLast: true, count: 0 };
    try {
      const deliveries = await lane.take(reserved, now);
      const settled = deliveries.map(({ event, attempt }) => ({
        event,
        attempt,
        at: now,
        settlement: { kind: 'skipped' } as const,
      }));
      if (settled.length > 0) await lane.settle(settled, state);
      return { isLast: settled.length < reserved, count: settled.length };
    } finally {
      budget.settle(reserved, 0);
    }
  }
}
