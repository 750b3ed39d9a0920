/** The promise that guessing is slow: of all attempts that a key makes, so many are let through, then none until its ban is over. */
import type { Milliseconds } from '../core/clock.ts';

/** How many attempts are let through. */
export interface AttemptsRule {
  /** Attempts that may fail within `per`. */
  readonly failures: number;
  readonly per: Milliseconds;
  /** How long nothing is let through once they are used up. */
  readonly ban: Milliseconds;
}

/** Attempts by key (a client, a user), shared by all replicas where the store is. */
export interface Attempts {
  /**
   * Takes one attempt of each key before the work that it costs: 0 where all had one left, else how long the longest ban still
   * lasts. Rejects with StoreUnavailable.
   */
  take(keys: readonly string[], rule: AttemptsRule): Promise<Milliseconds>;
  /** Gives the attempt back, as it did not fail. Rejects with StoreUnavailable. */
  refund(keys: readonly string[], rule: AttemptsRule): Promise<void>;
}

/** Counts in the shared store; while that is away this process counts for itself, so that guessing never becomes free. Never rejects. */
export function withFallback(shared: Attempts, own: Attempts): Attempts {
  return {
    take: (keys, rule) => shared.take(keys, rule).catch(() => own.take(keys, rule)),
    refund: (keys, rule) => shared.refund(keys, rule).catch(() => own.refund(keys, rule)),
  };
}
