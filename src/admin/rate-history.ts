/**
 * How many requests each route accepted and rejected in the last ten minutes. The counters are read at an interval, so that requests do nothing
 * for it, and a console can show them as soon as it is opened.
 */
import type { CancelTimer, Clock, EpochMilliseconds, Milliseconds } from '../core/clock.ts';

/** The decisions about a route's requests since the start. */
export interface DecisionTotals {
  readonly accepted: number;
  readonly rejected: number;
}

/** Decisions per interval, oldest first. */
export interface RouteRates {
  /** The end of the newest interval. */
  readonly until: EpochMilliseconds;
  readonly accepted: readonly number[];
  readonly rejected: readonly number[];
}

/** Dependencies of the history. */
export interface RateHistoryParts {
  readonly clock: Clock;
  /** The names of the active routes. */
  readonly routes: () => readonly string[];
  readonly totals: (route: string) => DecisionTotals;
}

export const RATE_INTERVAL_MS: Milliseconds = 10_000;
/** Ten minutes. */
export const MAX_INTERVALS = 60;
/** The first of the config: each takes half a KiB. */
export const MAX_RATED_ROUTES = 200;

interface Samples {
  last: DecisionTotals;
  /** Two numbers for each interval, in a ring. */
  readonly counts: Uint32Array;
  length: number;
}

/** The history of all routes. */
export class RateHistory {
  readonly #parts: RateHistoryParts;
  readonly #routes = new Map<string, Samples>();
  readonly #cancel: CancelTimer;
  #sampledAt: EpochMilliseconds;
  /** The number of samples; the position in all rings. */
  #turn = 0;

  /** Starts at once; `close` ends it. */
  constructor(parts: RateHistoryParts) {
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
    const read = (offset: 0 | 1): number[] =>
      Array.from({ length }, (_, i) => counts[toIndex(this.#turn - length + i) + offset] as number);
    return { until: this.#sampledAt, accepted: read(0), rejected: read(1) };
  }

  #sample(): void {
    const { clock, routes, totals } = this.#parts;
    const active = routes().slice(0, MAX_RATED_ROUTES);
    const names = new Set(active);
    for (const name of this.#routes.keys()) if (!names.has(name)) this.#routes.delete(name);
    for (const name of active) {
      const now = totals(name);
      const known = this.#routes.get(name);
      if (known === undefined) this.#routes.set(name, { last: now, counts: new Uint32Array(2 * MAX_INTERVALS), length: 0 });
      else addInterval(known, now, toIndex(this.#turn));
    }
    this.#turn++;
    this.#sampledAt = clock.now();
  }
}

function toIndex(turn: number): number {
  return 2 * (turn % MAX_INTERVALS);
}

function addInterval(samples: Samples, now: DecisionTotals, index: number): void {
  const { counts, last } = samples;
  counts[index] = toIncrease(last.accepted, now.accepted);
  counts[index + 1] = toIncrease(last.rejected, now.rejected);
  samples.last = now;
  samples.length = Math.min(samples.length + 1, MAX_INTERVALS);
}

/** The counters of a route start again if a reload changes its scheme. */
function toIncrease(before: number, now: number): number {
  return now < before ? now : now - before;
}
