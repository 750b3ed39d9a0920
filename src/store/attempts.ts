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
   * lasts. Never rejects: a store that is away is made up for by what this process knows.
   */
  take(keys: readonly string[], rule: AttemptsRule): Promise<Milliseconds>;
  /** Gives the attempt back, as it did not fail. */
  refund(keys: readonly string[], rule: AttemptsRule): Promise<void>;
}
