/** Limits password guesses: a key with too many failed attempts within a window is banned. */
import type { Clock, Milliseconds } from '../core/clock.ts';

/** How many attempts are allowed. */
export interface AttemptsRule {
  /** Failed attempts within `per` that lead to a ban. */
  readonly failures: number;
  readonly per: Milliseconds;
  /** Duration of a ban. */
  readonly ban: Milliseconds;
}

/** The counters of one attempt, checked in this order: a banned client must not touch the counters of users. */
export type AttemptKeys = readonly [string] | readonly [client: string, user: string];

/** An attempt that was counted before the password is checked, or the ban that forbids it. */
export type LoginAttempt =
  | {
      readonly kind: 'taken';
      /** Reverts the count, because the attempt did not fail. */
      refund(): Promise<void>;
    }
  | { readonly kind: 'banned'; readonly key: string; readonly left: Milliseconds };

/** Attempts by key; replicas share them if they share the store. */
export interface Attempts {
  /**
   * Counts one attempt for every key, in one atomic step. If a key is banned, nothing is counted, and a ban is never extended.
   * `take` and `refund` reject with StoreUnavailable. A `left` is greater than 0.
   */
  take(keys: AttemptKeys, rule: AttemptsRule): Promise<LoginAttempt>;
  /** The remaining ban of a key, or 0. Rejects with StoreUnavailable. */
  findBan(key: string, rule: AttemptsRule): Promise<Milliseconds>;
  /** Forgets the failed attempts of a key, and thus its ban; false if there were none. Rejects with StoreUnavailable. */
  lift(key: string): Promise<boolean>;
}

/**
 * Counts in the shared store. While the store is unavailable, this process counts for itself, so that guessing never becomes
 * free. A refund that the store does not take is dropped: given to another counter, it would allow one more guess. Only `lift` rejects.
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
    findBan: (key, rule) => shared.findBan(key, rule).catch(() => own.findBan(key, rule)),
    async lift(key) {
      const wasOwn = await own.lift(key);
      return (await shared.lift(key)) || wasOwn;
    },
  };
}

/**
 * How long a ban is cached. Short, because a ban can be lifted in the store: if the attempts that caused it turn out to be
 * successful (a ban counts attempts that are still being checked), or if an operator deletes the key.
 */
const BAN_CACHE_MS: Milliseconds = 1_000;

/** Caches bans, so that a banned client costs at most one round trip per second. Any entry may be evicted at the cost of a round trip. */
export function withBanCache(shared: Attempts, clock: Clock, { maxBans }: { readonly maxBans: number }): Attempts {
  const bans = new Map<string, { readonly cachedUntil: Milliseconds; readonly endsAt: Milliseconds }>();
  const refund = async (keys: AttemptKeys, taken: LoginAttempt & { readonly kind: 'taken' }): Promise<void> => {
    await taken.refund();
    // Afterwards: a reply that says `banned`, for an attempt before, may have come meanwhile.
    for (const key of keys) bans.delete(key);
  };
  return {
    async take(keys, rule) {
      const now = clock.monotonic();
      for (const key of keys) {
        const ban = bans.get(key);
        if (ban === undefined) continue;
        if (now < ban.cachedUntil) return { kind: 'banned', key, left: ban.endsAt - now };
        bans.delete(key);
      }
      const result = await shared.take(keys, rule);
      if (result.kind === 'taken') return { kind: 'taken', refund: () => refund(keys, result) };
      const { key, left } = result;
      const [oldest] = bans.keys();
      if (oldest !== undefined && bans.size >= maxBans) bans.delete(oldest);
      bans.set(key, { endsAt: now + left, cachedUntil: now + Math.min(left, BAN_CACHE_MS) });
      return result;
    },
    findBan: (key, rule) => shared.findBan(key, rule),
    async lift(key) {
      const hadFailures = await shared.lift(key);
      bans.delete(key);
      return hadFailures;
    },
  };
}
