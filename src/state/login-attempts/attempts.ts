/** Bounds password guesses: each key may fail so many times within a window, then it is banned. */
import type { Clock, Milliseconds } from '../../core/clock.ts';

/** How many attempts are allowed. */
export interface AttemptsRule {
  /** Attempts that may fail within `per`. */
  readonly failures: number;
  readonly per: Milliseconds;
  /** How long a key is banned once they are used up. */
  readonly ban: Milliseconds;
}

/** The counters of one attempt, checked in this order: a banned client must not touch the counters of users. */
export type AttemptKeys = readonly [string] | readonly [client: string, user: string];

/** An attempt that was counted before its work is done, or the ban that forbids it. */
export type AttemptResult =
  | {
      readonly kind: 'taken';
      /** Uncounts the attempt, because it did not fail. */
      refund(): Promise<void>;
    }
  | { readonly kind: 'banned'; readonly key: string; readonly left: Milliseconds };

/** Attempts by key, shared by all replicas where the store is. */
export interface Attempts {
  /**
   * Counts one attempt for every key, in one atomic step. If a key is banned, nothing is counted, and a ban is never extended.
   * `take` and `refund` reject with StoreUnavailable. A `left` is greater than 0.
   */
  take(keys: AttemptKeys, rule: AttemptsRule): Promise<AttemptResult>;
}

/**
 * Counts in the shared store. While the store is unavailable, this process counts for itself, so that guessing never becomes
 * free. A refund that the store does not take is dropped: given to another counter, it would allow one more guess. Never rejects.
 */
export function withFallback(shared: Attempts, own: Attempts): Attempts {
  return {
    async take(keys, rule) {
      try {
        const result = await shared.take(keys, rule);
        if (result.kind === 'banned') return result;
        return { kind: 'taken', refund: () => result.refund().catch(() => undefined) };
      } catch {
        return own.take(keys, rule);
      }
    },
  };
}

/**
 * How long a ban is believed without asking the store. Short, because the store can lift a ban: when the attempts that caused it
 * turn out to be good (a ban counts attempts that are still being checked), or when an operator deletes the key.
 */
const BELIEVED_MS: Milliseconds = 1_000;

/** Remembers bans, so that a banned client costs at most one round trip a second. Forgetting one costs a round trip, so any may be evicted. */
export function withBanCache(shared: Attempts, clock: Clock, { maxBans }: { readonly maxBans: number }): Attempts {
  const bans = new Map<string, { readonly believedUntil: Milliseconds; readonly endsAt: Milliseconds }>();
  const refund = (keys: AttemptKeys, taken: AttemptResult & { readonly kind: 'taken' }): Promise<void> => {
    for (const key of keys) bans.delete(key);
    return taken.refund();
  };
  return {
    async take(keys, rule) {
      const now = clock.monotonic();
      for (const key of keys) {
        const ban = bans.get(key);
        if (ban === undefined) continue;
        if (now < ban.believedUntil) return { kind: 'banned', key, left: ban.endsAt - now };
        bans.delete(key);
      }
      const result = await shared.take(keys, rule);
      if (result.kind === 'taken') return { kind: 'taken', refund: () => refund(keys, result) };
      const { key, left } = result;
      const [oldest] = bans.keys();
      if (oldest !== undefined && bans.size >= maxBans) bans.delete(oldest);
      bans.set(key, { endsAt: now + left, believedUntil: now + Math.min(left, BELIEVED_MS) });
      return result;
    },
  };
}
