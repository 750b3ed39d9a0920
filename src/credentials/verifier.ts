/** Answers whether a user and a password belong together: from memory where it was found before, else by a hash off the event loop. */
import type { Clock, Milliseconds } from '../core/clock.ts';
import type { BasicCredentials } from './basic.ts';
import type { HashPool } from './hash-pool.ts';
import type { LivePassword, UserSet } from './user-set.ts';
import { VerifiedCache, type VerifiedCacheOptions } from './verified-cache.ts';

/** Where the answer came from; for the hit ratio. */
export type CacheOutcome = 'hit' | 'miss' | 'joined';

/** Nothing was checked: too many are being checked already, or the attempts are used up for so long. */
export type NotChecked = { readonly notChecked: 'busy' } | { readonly notChecked: 'banned'; readonly left: Milliseconds };

/** The password that fits, or `undefined` where none does. */
export type VerifyResult = LivePassword | undefined | NotChecked;

/** What an attempt costs whoever makes it. */
export interface AttemptBudget {
  /** Takes one; else how long none is left. */
  take(): Promise<Milliseconds>;
  /** Gives it back: it did not fail. */
  refund(): Promise<void>;
}

/** What a verifier stands on. */
export interface VerifierParts {
  readonly pool: HashPool;
  readonly clock: Clock;
  readonly cache: VerifiedCacheOptions;
  readonly onCache: (outcome: CacheOutcome) => void;
}

/** Verifies the credentials of one realm. */
export class Verifier {
  readonly #parts: VerifierParts;
  readonly #cache: VerifiedCache;
  /** Checks under way: a browser that opens ten connections at once costs one hash. */
  readonly #flights = new Map<string, Promise<VerifyResult>>();
  #users: UserSet;

  constructor(users: UserSet, parts: VerifierParts) {
    this.#users = users;
    this.#parts = parts;
    this.#cache = new VerifiedCache(parts.cache, parts.clock);
  }

  /** Takes over a new set; who was removed, or has another password now, is unknown to the next request. */
  replace(users: UserSet): void {
    this.#users = users;
  }

  /** The password found good before, without any work worth speaking of. */
  recall({ user, password }: BasicCredentials): LivePassword | undefined {
    const passwords = this.#users.find(user, this.#parts.clock.now());
    const known = passwords.find(({ hash }) => this.#cache.has(this.#cache.toKey(user, password, hash.text)));
    if (known !== undefined) this.#parts.onCache('hit');
    return known;
  }

  /** Checks by hash. Requests that send the same at the same time make one attempt. Rejects where nothing can be said. */
  verify(credentials: BasicCredentials, budget: AttemptBudget): Promise<VerifyResult> {
    const { user, password } = credentials;
    const passwords = this.#users.find(user, this.#parts.clock.now());
    const flight = this.#cache.toKey(user, password, passwords.map(({ hash }) => hash.text).join('\n'));
    const underWay = this.#flights.get(flight);
    if (underWay !== undefined) {
      this.#parts.onCache('joined');
      return underWay;
    }
    const result = this.#attempt(credentials, passwords, budget).finally(() => this.#flights.delete(flight));
    this.#flights.set(flight, result);
    return result;
  }

  async #attempt(
    credentials: BasicCredentials,
    passwords: readonly LivePassword[],
    budget: AttemptBudget,
  ): Promise<VerifyResult> {
    const left = await budget.take();
    if (left > 0) return { notChecked: 'banned', left };
    this.#parts.onCache('miss');
    const result = await this.#check(credentials, passwords);
    if (result !== undefined) await budget.refund();
    return result;
  }

  async #check({ user, password }: BasicCredentials, passwords: readonly LivePassword[]): Promise<VerifyResult> {
    const hashes = passwords.map(({ hash: { algorithm, text } }) => ({ algorithm, text }));
    const result = await this.#parts.pool.check({ hashes, decoys: this.#users.toDecoys(passwords), password });
    if (result === 'busy') return { notChecked: 'busy' };
    const stored = passwords[result]?.hash.text;
    // Who was removed while the hash was being checked is a stranger by now.
    const fit = this.#users.find(user, this.#parts.clock.now()).find(({ hash }) => hash.text === stored);
    if (fit !== undefined) this.#cache.add(this.#cache.toKey(user, password, fit.hash.text));
    return fit;
  }
}
