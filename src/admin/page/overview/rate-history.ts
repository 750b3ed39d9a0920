/** Rates over time, from the counters of repeated overviews. */
import type { Overview } from '../../console/overview-schemas.ts';

/** Decisions per second between two overviews. */
export interface RatePoint {
  /** Unix milliseconds. */
  readonly at: number;
  readonly accepted: number;
  readonly rejected: number;
}

interface Counters {
  readonly at: number;
  readonly accepted: number;
  readonly rejected: number;
}

/** At 5 s each: 10 minutes. */
const MAX_POINTS = 120;

/** One history for each route. */
export class RateHistory {
  readonly #last = new Map<string, Counters>();
  readonly #points = new Map<string, readonly RatePoint[]>();

  /** The counters start again with the process; then a point is missing. */
  add({ at, routes }: Overview): void {
    const time = Date.parse(at);
    for (const { name, sinceStart } of routes) {
      const rejected = Object.values(sinceStart.rejected).reduce((sum, count) => sum + count, 0);
      const next = { at: time, accepted: sinceStart.accepted, rejected };
      const point = toPoint(this.#last.get(name), next);
      this.#last.set(name, next);
      if (point !== undefined) this.#points.set(name, [...this.of(name), point].slice(-MAX_POINTS));
    }
  }

  of(route: string): readonly RatePoint[] {
    return this.#points.get(route) ?? [];
  }
}

function toPoint(before: Counters | undefined, { at, accepted, rejected }: Counters): RatePoint | undefined {
  if (before === undefined || at <= before.at || accepted < before.accepted || rejected < before.rejected) return undefined;
  const seconds = (at - before.at) / 1_000;
  return { at, accepted: (accepted - before.accepted) / seconds, rejected: (rejected - before.rejected) / seconds };
}
