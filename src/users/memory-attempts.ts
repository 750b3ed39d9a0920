/** Attempts of one process, in bounded memory: a flood of addresses or user names never ends a ban early. */
import type { Clock, Milliseconds } from '../core/clock.ts';
import type { AttemptKeys, Attempts, AttemptsRule, LoginAttempt } from './attempts.ts';

interface FailureCount {
  failures: number;
  /** End of the window, or of the ban. */
  endsAt: Milliseconds;
}

/** When a new key may retry if all keys are banned. */
const FULL_RETRY_MS: Milliseconds = 1_000;

/**
 * Creates the counters. At `maxKeys`, a new key replaces the least recently used counter, never a ban. If all keys are banned,
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
