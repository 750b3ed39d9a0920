/** Limits password guesses: a key with too many failed attempts within a window is banned. Counts in the shared store or in this process. */
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

interface FailureCount {
  failures: number;
  /** End of the window, or of the ban. */
  endsAt: Milliseconds;
}

/** When a new key may retry if all keys are banned. */
const FULL_RETRY_MS: Milliseconds = 1_000;

/**
 * Creates the counters of one process, in bounded memory: a flood of addresses or user names never ends a ban early. At `maxKeys`, a new key replaces the least recently used counter, never a ban. If all keys are banned,
 * attempts of new keys are rejected: dropping a ban would allow unlimited guesses. `onFull` reports that.
 */
export function createMemoryAttempts(clock: Clock, maxKeys: number, onFull?: () => void): Attempts {
  return new MemoryAttempts(clock, maxKeys, onFull);
}

class MemoryAttempts implements Attempts {
  readonly #clock: Clock;
  readonly #maxKeys: number;
  readonly #onFull: (() => void) | undefined;
  /** Below their limit, in the order of their last attempt. */
  readonly #counts = new Map<string, FailureCount>();
  readonly #bans = new Map<string, FailureCount>();
  #nextPrune: Milliseconds = 0;

  constructor(clock: Clock, maxKeys: number, onFull: (() => void) | undefined) {
    this.#clock = clock;
    this.#maxKeys = maxKeys;
    this.#onFull = onFull;
  }

  async take(keys: AttemptKeys, rule: AttemptsRule): Promise<LoginAttempt> {
    const now = this.#clock.monotonic();
    for (const key of keys) {
      const left = this.#findBan(key, now);
      if (left > 0) return { kind: 'banned', key, left };
    }
    // Reserve all keys before counting any: a rejected attempt must not count for any key.
    for (const key of keys) if (!this.#reserve(key, keys[0], now)) return { kind: 'banned', key, left: FULL_RETRY_MS };
    for (const key of keys) this.#count(key, now, rule);
    return { kind: 'taken', refund: async () => this.#refund(keys, rule) };
  }

  async findBan(key: string): Promise<Milliseconds> {
    return this.#findBan(key, this.#clock.monotonic());
  }

  async lift(key: string): Promise<boolean> {
    const wasCounted = this.#counts.delete(key);
    return this.#bans.delete(key) || wasCounted;
  }

  #findBan(key: string, now: Milliseconds): Milliseconds {
    const ban = this.#bans.get(key);
    if (ban === undefined) return 0;
    if (now < ban.endsAt) return ban.endsAt - now;
    this.#bans.delete(key);
    return 0;
  }

  #count(key: string, now: Milliseconds, { failures, per, ban }: AttemptsRule): void {
    const known = this.#counts.get(key);
    const count = known !== undefined && now < known.endsAt ? known : { failures: 0, endsAt: now + per };
    count.failures++;
    this.#counts.delete(key);
    if (count.failures < failures) {
      this.#counts.set(key, count);
      return;
    }
    count.endsAt = now + ban;
    this.#bans.set(key, count);
  }

  #refund(keys: AttemptKeys, { per }: AttemptsRule): void {
    const now = this.#clock.monotonic();
    for (const key of keys) {
      const ban = this.#bans.get(key);
      const count = ban ?? this.#counts.get(key);
      if (count === undefined) continue;
      count.failures--;
      this.#bans.delete(key);
      this.#counts.delete(key);
      // The attempt may have been the one that caused the ban.
      if (ban !== undefined) count.endsAt = now + per;
      if (count.failures > 0) this.#counts.set(key, count);
    }
  }

  /** Moves or adds the key to the end of the counters; false if they are full. */
  #reserve(key: string, client: string, now: Milliseconds): boolean {
    const known = this.#counts.get(key);
    const isFull = this.#counts.size + this.#bans.size >= this.#maxKeys;
    if (known === undefined && isFull && !this.#makeRoom(client, now)) {
      this.#onFull?.();
      return false;
    }
    this.#counts.delete(key);
    this.#counts.set(key, known ?? { failures: 0, endsAt: now });
    return true;
  }

  #makeRoom(client: string, now: Milliseconds): boolean {
    this.#pruneBans(now);
    if (this.#counts.size + this.#bans.size < this.#maxKeys) return true;
    const [oldest] = this.#counts.keys();
    // Not the attempt's own client: its next guesses would count from 0.
    if (oldest === undefined || oldest === client) return false;
    return this.#counts.delete(oldest);
  }

  /** Runs at most once per second, because it iterates over all bans. */
  #pruneBans(now: Milliseconds): void {
    if (now < this.#nextPrune) return;
    this.#nextPrune = now + FULL_RETRY_MS;
    for (const [key, { endsAt }] of this.#bans) if (endsAt <= now) this.#bans.delete(key);
  }
}
