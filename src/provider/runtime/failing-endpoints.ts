/** The endpoints whose breaker is open, as far as this replica knows. */
import type { Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';

/**
 * With a shared queue, a lane moves between replicas, and the one that made the last attempt knows best. A replica therefore forgets an
 * endpoint if the next attempt has been possible for so long, and another replica must have made it.
 */
const FORGET_AFTER_MS: Milliseconds = 10 * 60_000;

/** Remembers them for the metrics. */
export class FailingEndpoints {
  readonly #clock: Clock;
  readonly #isShared: boolean;
  readonly #until = new Map<string, EpochMilliseconds>();

  /** `isShared`: other replicas serve the same queue. */
  constructor(clock: Clock, isShared: boolean) {
    this.#clock = clock;
    this.#isShared = isShared;
  }

  /** An attempt failed; the next one does not start before `until`. */
  add(endpoint: string, until: EpochMilliseconds): void {
    this.#until.set(endpoint, until);
  }

  /** An attempt succeeded. */
  delete(endpoint: string): void {
    this.#until.delete(endpoint);
  }

  /** How many of these endpoints are failing; forgets all others. */
  count(endpoints: readonly string[]): number {
    const current = new Set(endpoints);
    const oldest = this.#isShared ? this.#clock.now() - FORGET_AFTER_MS : Number.NEGATIVE_INFINITY;
    for (const [endpoint, until] of this.#until) if (!current.has(endpoint) || until < oldest) this.#until.delete(endpoint);
    return this.#until.size;
  }
}
