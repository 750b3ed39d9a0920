/** Decides whether a user and a password belong together: from the cache, or by a hash off the event loop. */
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import type { BasicCredentials } from './basic.ts';
import type { HashPool } from './hash-pool.ts';
import type { Bytes } from './password-hash.ts';
import type { LivePassword, UserSet } from './user-set.ts';
import { VerifiedCache, type VerifiedCacheOptions } from './verified-cache.ts';

/** Where the answer came from; for the hit ratio. */
export type CacheOutcome = 'hit' | 'miss' | 'joined';

/** Nothing was checked: too many are being checked already, or the attempts are used up for so long. */
export type NotChecked = { readonly notChecked: 'busy' } | { readonly notChecked: 'banned'; readonly left: Milliseconds };

/** The password that fits, or `undefined` where none does. */
export type VerifyResult = LivePassword | undefined | NotChecked;

/** An attempt that was counted before it is made, or the ban that forbids it. */
export type Attempt =
  | { readonly kind: 'taken' /** Uncounts it, because it did not fail. */; refund(): Promise<void> }
  | { readonly kind: 'banned'; readonly left: Milliseconds };

/** Counts an attempt of the client and the user. */
export type TakeAttempt = () => Promise<Attempt>;

/** What a verifier stands on. */
export interface VerifierParts {
  readonly pool: HashPool;
  readonly clock: Clock;
  readonly cache: VerifiedCacheOptions;
  readonly onCache: (outcome: CacheOutcome) => void;
}

/** Something that lasts, such as a tunnel, and ends with the password that opened it. */
interface Session {
  readonly user: string;
  readonly stored: string;
  readonly end: () => void;
  cancelExpiry: CancelTimer;
}

/** The longest time that a timer of Node.js takes. */
const LONGEST_TIMER_MS: Milliseconds = 2 ** 31 - 1;
/** For passwords that any network proved: a new network needs an attempt, but no second hash. */
const ANY_NETWORK = '';

/** Verifies the credentials of one realm. */
export class Verifier {
  readonly #parts: VerifierParts;
  readonly #cache: VerifiedCache;
  readonly #shared: VerifiedCache;
  /** Attempts under way, by network and credentials: a browser that opens ten connections at once makes one. */
  readonly #flights = new Map<string, Promise<VerifyResult>>();
  /** Hashes under way, by credentials alone: many clients that share one user cost one hash at once. */
  readonly #hashes = new Map<string, Promise<VerifyResult>>();
  readonly #sessions = new Set<Session>();
  #users: UserSet;

  constructor(users: UserSet, parts: VerifierParts) {
    this.#users = users;
    this.#parts = parts;
    this.#cache = new VerifiedCache(parts.cache, parts.clock);
    this.#shared = new VerifiedCache(parts.cache, parts.clock);
  }

  /** False while the realm's users cannot be read: then nothing can be said of anybody. */
  get isAvailable(): boolean {
    return this.#users.size > 0;
  }

  /** The most memory that checking a password takes. */
  get largestHash(): Bytes {
    return this.#users.largestHash;
  }

  /** Applies a new set of users. Removed users and changed passwords are unknown to the next request, and their sessions end now. */
  replace(users: UserSet): void {
    this.#users = users;
    // A check that began with the old set must not answer requests that come after it.
    this.#flights.clear();
    this.#hashes.clear();
    for (const session of this.#sessions) this.#endIfRevoked(session);
  }

  /** Applies new bounds of the caches. */
  configure(cache: VerifiedCacheOptions): void {
    this.#cache.configure(cache);
    this.#shared.configure(cache);
  }

  /** The password that this network proved a short time ago: no hash, no attempt, whatever is banned. */
  recall(credentials: BasicCredentials, network: string): LivePassword | undefined {
    const proof = this.#cache.find(network, credentials.user, this.#cache.toDigest(credentials, network));
    if (proof === undefined || !this.#cache.isFresh(proof)) return undefined;
    const known = this.#findLive(credentials.user, proof.stored);
    if (known !== undefined) this.#parts.onCache('hit');
    return known;
  }

  /** Checks the credentials. Requests of one network that send the same at the same time make one attempt. Rejects where nothing can be said. */
  verify(credentials: BasicCredentials, network: string, take: TakeAttempt): Promise<VerifyResult> {
    const digest = this.#cache.toDigest(credentials, network);
    return this.#join(this.#flights, digest, () => this.#attempt(credentials, network, digest, take));
  }

  /** Calls `end` once, as soon as the user is removed or the password is no longer valid; now, if that is so. The result stops it. */
  onRevoked(user: string, { hash, notAfter }: LivePassword, end: () => void): () => void {
    const session: Session = { user, stored: hash.text, end, cancelExpiry: () => undefined };
    this.#sessions.add(session);
    this.#watchExpiry(session, notAfter);
    this.#endIfRevoked(session);
    return () => this.#drop(session);
  }

  async #attempt(credentials: BasicCredentials, network: string, digest: string, take: TakeAttempt): Promise<VerifyResult> {
    const { user } = credentials;
    const proof = this.#cache.find(network, user, digest);
    // Proved before: no guess, so neither a ban nor a counter applies, or others could lock out the user.
    const known = proof === undefined ? undefined : this.#findLive(user, proof.stored);
    if (known !== undefined) return this.#remember(network, digest, user, await this.#hash(credentials));
    const attempt = await take();
    if (attempt.kind === 'banned') {
      this.#cache.countMiss(network, user);
      return { notChecked: 'banned', left: attempt.left };
    }
    // After the attempt is counted: before, a client could try any number of passwords against what others proved.
    const result = this.#recallShared(credentials) ?? (await this.#hash(credentials));
    if (result !== undefined) await attempt.refund();
    return this.#remember(network, digest, user, result);
  }

  #remember(network: string, digest: string, user: string, result: VerifyResult): VerifyResult {
    if (result !== undefined && 'hash' in result) this.#cache.add(network, user, digest, result.hash.text);
    return result;
  }

  #recallShared(credentials: BasicCredentials): LivePassword | undefined {
    const { user } = credentials;
    const proof = this.#shared.find(ANY_NETWORK, user, this.#shared.toDigest(credentials, ANY_NETWORK));
    if (proof === undefined || !this.#shared.isFresh(proof)) return undefined;
    const known = this.#findLive(user, proof.stored);
    if (known !== undefined) this.#parts.onCache('hit');
    return known;
  }

  #hash(credentials: BasicCredentials): Promise<VerifyResult> {
    const digest = this.#shared.toDigest(credentials, ANY_NETWORK);
    return this.#join(this.#hashes, digest, () => this.#check(credentials, digest));
  }

  async #check({ user, password }: BasicCredentials, digest: string): Promise<VerifyResult> {
    this.#parts.onCache('miss');
    const passwords = this.#users.find(user, this.#parts.clock.now());
    const hashes = passwords.map(({ hash: { algorithm, text } }) => ({ algorithm, text }));
    const result = await this.#parts.pool.check({ hashes, decoys: this.#users.toDecoys(passwords), password });
    if (result === 'busy') return { notChecked: 'busy' };
    const stored = passwords[result]?.hash.text;
    // The user may have been removed while the hash was checked.
    const fit = stored === undefined ? undefined : this.#findLive(user, stored);
    if (fit !== undefined) this.#shared.add(ANY_NETWORK, user, digest, fit.hash.text);
    return fit;
  }

  #join(under: Map<string, Promise<VerifyResult>>, key: string, begin: () => Promise<VerifyResult>): Promise<VerifyResult> {
    const underWay = under.get(key);
    if (underWay !== undefined) {
      this.#parts.onCache('joined');
      return underWay;
    }
    const result: Promise<VerifyResult> = begin().finally(() => {
      // A new set of users clears the map, and another may be under way by now.
      if (under.get(key) === result) under.delete(key);
    });
    under.set(key, result);
    return result;
  }

  #findLive(user: string, stored: string): LivePassword | undefined {
    return this.#users.find(user, this.#parts.clock.now()).find(({ hash }) => hash.text === stored);
  }

  #watchExpiry(session: Session, notAfter: number | undefined): void {
    if (notAfter === undefined) return;
    const left = Math.min(Math.max(notAfter - this.#parts.clock.now(), 0), LONGEST_TIMER_MS);
    session.cancelExpiry = this.#parts.clock.after(left, () => {
      if (!this.#endIfRevoked(session)) this.#watchExpiry(session, notAfter);
    });
  }

  #endIfRevoked(session: Session): boolean {
    if (!this.#sessions.has(session) || this.#findLive(session.user, session.stored) !== undefined) return false;
    this.#drop(session);
    session.end();
    return true;
  }

  #drop(session: Session): void {
    this.#sessions.delete(session);
    session.cancelExpiry();
  }
}
