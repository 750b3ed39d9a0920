/**
 * How many requests each route handled, failed to handle and rejected in the last ten minutes. The counters are read at an interval, so that requests do nothing
 * for it, and a console can show them as soon as it is opened.
 */
import type { CancelTimer, Clock, EpochMilliseconds, Milliseconds } from '../core/clock.ts';

/** The decisions about a route's requests since the start, and its responses with an error: those to rejected and to failed requests. */
export interface DecisionTotals {
  readonly allowed: number;
  readonly rejected: number;
  readonly errors: number;
}

/** Requests per interval, oldest first. `accepted`: without those that failed. */
export interface RouteRates {
  /** The end of the newest interval. */
  readonly until: EpochMilliseconds;
  readonly accepted: readonly number[];
  readonly failed: readonly number[];
  readonly rejected: readonly number[];
}

export const RATE_INTERVAL_MS: Milliseconds = 10_000;
/** Ten minutes. */
export const MAX_INTERVALS = 60;
/** The first of the config: each takes 720 bytes. */
export const MAX_RATED_ROUTES = 200;

const TOTALS = ['allowed', 'rejected', 'errors'] as const satisfies readonly (keyof DecisionTotals)[];

interface Samples {
  last: DecisionTotals;
  /** Numbers for each interval, in the order of `TOTALS`, in a ring. */
  readonly counts: Uint32Array;
  length: number;
}

/** The history of all routes. */
export class RateHistory {
  readonly #parts;
  readonly #routes = new Map<string, Samples>();
  readonly #cancel: CancelTimer;
  #sampledAt: EpochMilliseconds;
  /** The number of samples; the position in all rings. */
  #turn = 0;

  /** Starts at once; `close` ends it. */
  constructor(parts: {
    readonly clock: Clock;
    /** The names of the active routes. */
    readonly routes: () => readonly string[];
    readonly totals: (route: string) => DecisionTotals;
  }) {
    this.#parts = parts;
    this.#sampledAt = parts.clock.now();
    this.#sample();
    this.#cancel = parts.clock.every(RATE_INTERVAL_MS, () => this.#sample());
  }

  close(): void {
    this.#cancel();
  }

  /** Undefined for a route that is not recorded; empty until the first interval is over. */
  of(route: string): RouteRates | undefined {
    const samples = this.#routes.get(route);
    if (samples === undefined) return undefined;
    const { counts, length } = samples;
    const accepted: number[] = [];
    const failed: number[] = [];
    const rejected: number[] = [];
    for (let i = length; i > 0; i--) {
      const at = toIndex(this.#turn - i);
      const [allow = 0, deny = 0, errors = 0] = counts.subarray(at, at + TOTALS.length);
      // A request is decided before its response is counted, which may be in a later interval.
      const failures = Math.max(0, errors - deny);
      failed.push(failures);
      accepted.push(Math.max(0, allow - failures));
      rejected.push(deny);
    }
    return { until: this.#sampledAt, accepted, failed, rejected };
  }

  #sample(): void {
    const { clock, routes, totals } = this.#parts;
    const active = routes().slice(0, MAX_RATED_ROUTES);
    const names = new Set(active);
    for (const name of this.#routes.keys()) if (!names.has(name)) this.#routes.delete(name);
    for (const name of active) {
      const now = totals(name);
      const known = this.#routes.get(name);
      if (known === undefined)
        this.#routes.set(name, { last: now, counts: new Uint32Array(TOTALS.length * MAX_INTERVALS), length: 0 });
      else addInterval(known, now, toIndex(this.#turn));
    }
    this.#turn++;
    this.#sampledAt = clock.now();
  }
}

function toIndex(turn: number): number {
  return TOTALS.length * (turn % MAX_INTERVALS);
}

function addInterval(samples: Samples, now: DecisionTotals, index: number): void {
  const { counts, last } = samples;
  for (const [offset, name] of TOTALS.entries()) counts[index + offset] = toIncrease(last[name], now[name]);
  samples.last = now;
  samples.length = Math.min(samples.length + 1, MAX_INTERVALS);
}

/** The counters of a route start again if a reload changes its scheme. */
function toIncrease(before: number, now: number): number {
  return now < before ? now : now - before;
}
