/** The users of all realms while the gate runs: one pool of threads, one count of attempts, a verifier for each realm. */
import type { RealmConfig } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import { HashPool, type HashPoolLimits } from '../credentials/hash-pool.ts';
import { UserSet } from '../credentials/user-set.ts';
import { type CacheOutcome, Verifier } from '../credentials/verifier.ts';
import type { RealmRead } from './users.ts';

/** Lives as long as the gate; a reload gives its verifiers new users. */
export class Realms {
  readonly #pool: HashPool;
  readonly #clock: Clock;
  readonly #onCache: (outcome: CacheOutcome) => void;
  #verifiers = new Map<string, Verifier>();

  constructor(limits: HashPoolLimits, clock: Clock, onCache: (outcome: CacheOutcome) => void) {
    this.#pool = new HashPool(limits);
    this.#clock = clock;
    this.#onCache = onCache;
  }

  /**
   * Takes over the realms of a new config. A realm that stays keeps its cache and its sessions: otherwise a reload would let bans
   * lock out users who are logged in.
   */
  take(reads: readonly RealmRead[], settings: ReadonlyMap<string, RealmConfig>): void {
    const before = this.#verifiers;
    this.#verifiers = new Map(
      reads.map(({ realm, set }) => {
        const cache = settings.get(realm)?.cache ?? { ttl: 0, maxEntries: 0 };
        const kept = before.get(realm);
        kept?.configure(cache);
        kept?.replace(set);
        return [realm, kept ?? new Verifier(set, { pool: this.#pool, clock: this.#clock, cache, onCache: this.#onCache })];
      }),
    );
    for (const [realm, verifier] of before) if (!this.#verifiers.has(realm)) verifier.replace(new UserSet([]));
  }

  /** Takes over new users of one realm. */
  replace({ realm, set }: RealmRead): void {
    this.#verifiers.get(realm)?.replace(set);
  }

  verifier(realm: string): Verifier {
    const verifier = this.#verifiers.get(realm);
    if (verifier === undefined) throw new Error(`no users were read for the realm ${realm}`);
    return verifier;
  }

  /** Passwords that are being checked or wait for it. */
  get pending(): number {
    return this.#pool.pending;
  }

  close(): Promise<void> {
    return this.#pool.close();
  }
}
