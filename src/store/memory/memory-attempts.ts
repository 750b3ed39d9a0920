/** Attempts in this process: bounded, so that a flood of addresses cannot fill the memory. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import type { Attempts, AttemptsRule } from '../attempts.ts';

interface Count {
  failures: number;
  /** End of the window, or of the ban. */
  endsAt: Milliseconds;
}

/** Creates the counts; beyond `maxKeys` the key that was heard of longest ago is forgotten. */
export function createMemoryAttempts(clock: Clock, options: { readonly maxKeys: number }): Attempts {
  return new MemoryAttempts(clock, options.maxKeys);
}

class MemoryAttempts implements Attempts {
  readonly #clock: Clock;
  readonly #maxKeys: number;
  /** In the order of their last attempt. */
  readonly #counts = new Map<string, Count>();

  constructor(clock: Clock, maxKeys: number) {
    this.#clock = clock;
    this.#maxKeys = maxKeys;
  }

  async take(keys: readonly string[], rule: AttemptsRule): Promise<Milliseconds> {
    const now = this.#clock.monotonic();
    const counts = keys.map((key) => this.#find(key, now, rule));
    const bans = counts.map((count) => (count.failures >= rule.failures ? count.endsAt - now : 0));
    const longest = Math.max(0, ...bans);
    // A banned attempt is not made, so it counts for nobody.
    if (longest > 0) return longest;
    for (const count of counts) {
      count.failures++;
      if (count.failures >= rule.failures) count.endsAt = now + rule.ban;
    }
    return 0;
  }

  async refund(keys: readonly string[], rule: AttemptsRule): Promise<void> {
    const now = this.#clock.monotonic();
    for (const key of keys) {
      const count = this.#counts.get(key);
      if (count === undefined || count.failures === 0) continue;
      if (count.failures === rule.failures) count.endsAt = now + rule.per;
      count.failures--;
    }
  }

  #find(key: string, now: Milliseconds, { per }: AttemptsRule): Count {
    const known = this.#counts.get(key);
    this.#counts.delete(key);
    const count = known !== undefined && now < known.endsAt ? known : { failures: 0, endsAt: now + per };
    const [oldest] = this.#counts.keys();
    if (oldest !== undefined && this.#counts.size >= this.#maxKeys) this.#counts.delete(oldest);
    this.#counts.set(key, count);
    return count;
  }
}
