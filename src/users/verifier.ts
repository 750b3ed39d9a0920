/** Verifies user names and passwords: from a cache of valid ones, or by hashing off the event loop. */
import { createSecretKey, randomBytes } from 'node:crypto';
import type { Bytes } from '../core/bytes.ts';
import { type CancelTimer, type Clock, type Milliseconds, within } from '../core/clock.ts';
import { createHmacFunction } from '../core/hmac.ts';
import type { BasicCredentials } from './basic.ts';
import type { HashOwner, HashPool } from './hash-pool.ts';
import type { LivePassword, UserSet } from './user-set.ts';

/** How the result was found; for the hit ratio. */
export type CacheOutcome = 'hit' | 'miss' | 'joined';

/** The password was not checked: the client's share of the queue is full, or the client or user is banned for `left`. */
type NotChecked = { readonly notChecked: 'busy' } | { readonly notChecked: 'banned'; readonly left: Milliseconds };

/** The matching password, or undefined if none matches. */
type PasswordResult = LivePassword | undefined | NotChecked;

/** Counts an attempt before the password is checked. */
export interface CountAttempt {
  /** The client, the user, or both. */
  readonly keys: readonly string[];
  /** Counts it; or the ban that forbids it. */
  take(): Promise<
    | { readonly kind: 'taken' /** Reverts the count, because the attempt did not fail. */; refund(): Promise<void> }
    | { readonly kind: 'banned'; readonly left: Milliseconds }
  >;
}

/** A long-lived connection, such as a tunnel, that ends when the password that opened it is revoked. */
interface LoginSession {
  readonly user: string;
  readonly stored: string;
  readonly end: () => void;
  cancelExpiry: CancelTimer;
}

/** For passwords that any network sent: a new network needs an attempt, but no second hash. */
const ANY_NETWORK = '';

/**
 * How long a banned attempt waits for others that are still being checked. After a start or a new password, no password is proved yet, and
 * many clients of one user, or users of one network, may come at once.
 */
const MAX_BAN_WAIT_MS: Milliseconds = 5_000;
/** More attempts do not wait. */
const MAX_BAN_WAITS = 1_000;

/** Verifies the credentials of one realm. */
export class PasswordVerifier {
  readonly #parts;
  readonly #cache: VerifiedCache;
  readonly #shared: VerifiedCache;
  /** Attempts in progress, by network and credentials: a browser that opens ten connections at once makes one attempt. */
  readonly #flights = new Map<string, Promise<PasswordResult>>();
  /** Hashes in progress, by credentials alone: many clients that share one user cost one hash at a time, and one where they are known. */
  readonly #hashes = new Map<string, Promise<PasswordResult>>();
  /** Checks that an attempt was counted for, by what it counts for; `next` resolves when the next one ends. */
  readonly #counted = new Map<string, { running: number; next: PromiseWithResolvers<void> }>();
  #waiting = 0;
  readonly #sessions = new Set<LoginSession>();
  #users: UserSet;

  constructor(
    users: UserSet,
    parts: {
      readonly realm: string;
      readonly pool: HashPool;
      readonly clock: Clock;
      readonly cache: VerifiedCacheOptions;
      readonly onCache: (outcome: CacheOutcome) => void;
    },
  ) {
    this.#users = users;
    this.#parts = parts;
    this.#cache = new VerifiedCache(parts.cache, parts.clock);
    this.#shared = new VerifiedCache(parts.cache, parts.clock);
  }

  /** False while the realm's users cannot be read; no password can then be checked. */
  get isAvailable(): boolean {
    return this.#users.size > 0;
  }

  /** Maximum memory for checking a password. */
  get largestHash(): Bytes {
    return this.#users.largestHash;
  }

  /** Applies a new set of users. Removed users and changed passwords are rejected from the next request on; their sessions end now. */
  replace(users: UserSet): void {
    this.#users = users;
    // A check that started with the old set must not decide requests that arrive later.
    this.#flights.clear();
    this.#hashes.clear();
    for (const session of this.#sessions) this.#endIfRevoked(session);
  }

  /** Applies new bounds of the caches. */
  configure(cache: VerifiedCacheOptions): void {
    this.#cache.configure(cache);
    this.#shared.configure(cache);
  }

  /** The password that this network sent recently: no hash and no attempt are needed, and bans do not apply. */
  recall(credentials: BasicCredentials, network: string): LivePassword | undefined {
    const proof = this.#cache.find(network, credentials.user, this.#cache.toDigest(credentials, network));
    if (proof === undefined || !this.#cache.isFresh(proof)) return undefined;
    const known = this.#findLive(credentials.user, proof.stored);
    if (known !== undefined) this.#parts.onCache('hit');
    return known;
  }

  /** Checks the credentials. Concurrent requests of one network with the same credentials share one attempt. Rejects if the check fails. */
  verify(credentials: BasicCredentials, network: string, count: CountAttempt): Promise<PasswordResult> {
    const digest = this.#cache.toDigest(credentials, network);
    return this.#join(this.#flights, digest, () => this.#attempt(credentials, network, digest, count));
  }

  /** Whether the user still has the password. */
  isLive(user: string, { hash }: LivePassword): boolean {
    return this.#findLive(user, hash.text) !== undefined;
  }

  /** Calls `end` once, when the user is removed or the password becomes invalid, or now if it already is. The result unsubscribes. */
  onRevoked(user: string, { hash, notAfter }: LivePassword, end: () => void): () => void {
    const session: LoginSession = { user, stored: hash.text, end, cancelExpiry: () => undefined };
    this.#sessions.add(session);
    this.#watchExpiry(session, notAfter);
    this.#endIfRevoked(session);
    return () => this.#drop(session);
  }

  async #attempt(credentials: BasicCredentials, network: string, digest: string, count: CountAttempt): Promise<PasswordResult> {
    const { user } = credentials;
    const proof = this.#cache.find(network, user, digest);
    // Proved before, so this is not a guess. Bans and counters do not apply; otherwise an attacker could lock out the user.
    const known = proof === undefined ? undefined : this.#findLive(user, proof.stored);
    if (known !== undefined) return this.#remember(network, digest, user, await this.#hash(credentials, network, true));
    const { clock } = this.#parts;
    const end = clock.monotonic() + MAX_BAN_WAIT_MS;
    for (;;) {
      const attempt = await count.take();
      if (attempt.kind === 'taken') {
        const check = this.#checkCounted(credentials, network, attempt);
        this.#note(count.keys, check);
        return this.#remember(network, digest, user, await check);
      }
      // A ban counts attempts that are still being checked, and is lifted if they were right.
      const checks = count.keys.flatMap((key) => this.#counted.get(key)?.next.promise ?? []);
      const left = end - clock.monotonic();
      if (checks.length === 0 || left <= 0 || this.#waiting >= MAX_BAN_WAITS) {
        this.#cache.countMiss(network, user);
        return { notChecked: 'banned', left: attempt.left };
      }
      this.#waiting++;
      await within(clock, left, Promise.race(checks));
      this.#waiting--;
    }
  }

  async #checkCounted(
    credentials: BasicCredentials,
    network: string,
    attempt: { refund(): Promise<void> },
  ): Promise<PasswordResult> {
    // After the attempt is counted: before it, a client could try any number of passwords against the proofs of others.
    const result = this.#recallShared(credentials) ?? (await this.#hash(credentials, network, false));
    if (result !== undefined) await attempt.refund();
    return result;
  }

  #note(keys: readonly string[], check: Promise<PasswordResult>): void {
    for (const key of keys) {
      const checks = this.#counted.get(key) ?? { running: 0, next: Promise.withResolvers<void>() };
      checks.running++;
      this.#counted.set(key, checks);
      const end = (): void => {
        checks.running--;
        checks.next.resolve();
        checks.next = Promise.withResolvers();
        if (checks.running === 0) this.#counted.delete(key);
      };
      check.then(end, end);
    }
  }

  #remember(network: string, digest: string, user: string, result: PasswordResult): PasswordResult {
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

  #hash(credentials: BasicCredentials, network: string, isKnown: boolean): Promise<PasswordResult> {
    const digest = this.#shared.toDigest(credentials, ANY_NETWORK);
    const owner = { realm: this.#parts.realm, network, isKnown };
    // A known password must not wait for the turn of an unknown one.
    return this.#join(this.#hashes, `${digest}${isKnown}`, () => this.#check(credentials, digest, owner));
  }

  async #check({ user, password }: BasicCredentials, digest: string, owner: HashOwner): Promise<PasswordResult> {
    this.#parts.onCache('miss');
    const passwords = this.#users.find(user, this.#parts.clock.now());
    const hashes = passwords.map(({ hash: { algorithm, text } }) => ({ algorithm, text }));
    const result = await this.#parts.pool.check({ hashes, decoys: this.#users.toDecoys(passwords), password }, owner);
    if (result === 'busy') return { notChecked: 'busy' };
    const stored = passwords[result]?.hash.text;
    // The user may have been removed while the hash was checked.
    const match = stored === undefined ? undefined : this.#findLive(user, stored);
    if (match !== undefined) this.#shared.add(ANY_NETWORK, user, digest, match.hash.text);
    return match;
  }

  #join(
    running: Map<string, Promise<PasswordResult>>,
    key: string,
    begin: () => Promise<PasswordResult>,
  ): Promise<PasswordResult> {
    const joined = running.get(key);
    if (joined !== undefined) {
      this.#parts.onCache('joined');
      return joined;
    }
    const result: Promise<PasswordResult> = begin().finally(() => {
      // A new set of users clears the map, so another check may be in progress by now.
      if (running.get(key) === result) running.delete(key);
    });
    running.set(key, result);
    return result;
  }

  #findLive(user: string, stored: string): LivePassword | undefined {
    return this.#users.find(user, this.#parts.clock.now()).find(({ hash }) => hash.text === stored);
  }

  #watchExpiry(session: LoginSession, notAfter: number | undefined): void {
    if (notAfter === undefined) return;
    const left = Math.max(notAfter - this.#parts.clock.now(), 0);
    session.cancelExpiry = this.#parts.clock.after(left, () => {
      if (!this.#endIfRevoked(session)) this.#watchExpiry(session, notAfter);
    });
  }

  #endIfRevoked(session: LoginSession): boolean {
    if (!this.#sessions.has(session) || this.#findLive(session.user, session.stored) !== undefined) return false;
    this.#drop(session);
    session.end();
    return true;
  }

  #drop(session: LoginSession): void {
    this.#sessions.delete(session);
    session.cancelExpiry();
  }
}

/** Bounds of the cache. */
interface VerifiedCacheOptions {
  /** How long a password is not hashed again; 0: it is hashed for each request. */
  readonly ttl: Milliseconds;
  /** Maximum number of entries: one per user and network. */
  readonly maxEntries: number;
}

/** A valid password that a client network sent. */
interface PasswordProof {
  readonly digest: string;
  /** The stored hash that it matched. After the hash is changed, the proof is void. */
  readonly stored: string;
  /** Until then no hash is needed. */
  readonly freshUntil: Milliseconds;
  /** Until then no ban applies. */
  knownUntil: Milliseconds;
}

interface CacheEntry {
  readonly network: string;
  proofs: readonly PasswordProof[];
  /** Wrong passwords that the network sent for the user while it was banned. */
  misses: number;
}

const KEY_BYTES = 32;
/** Since the last request. A logged-in user keeps access while an attacker causes a ban of the user name or the network. */
const KNOWN_MS: Milliseconds = 60 * 60_000;
/** A user has at most two passwords at once. */
const MAX_PROOFS = 2;
/**
 * Wrong passwords for one user from one banned network. After that many, the network's proofs for the user are dropped: clients
 * behind one NAT cannot be distinguished, so an attacker could try passwords against a neighbor's proof at full speed.
 */
const MAX_MISSES = 100;

/**
 * Caches which client networks sent which valid passwords, so that a browser's hundred requests cost one hash. Only positive results, bounded, and stores no passwords: digests are HMACs with a random key of this process. When the cache
 * is full, it evicts an entry of the network with more entries, so that one client cannot evict the entries of all others.
 */
export class VerifiedCache {
  #options: VerifiedCacheOptions;
  readonly #clock: Clock;
  readonly #key = createSecretKey(randomBytes(KEY_BYTES));
  readonly #computeHmac = createHmacFunction('sha256');
  /** Least recently used first. */
  readonly #entries = new Map<string, CacheEntry>();
  /** The keys of each network's entries, oldest first. */
  readonly #networks = new Map<string, Set<string>>();

  constructor(options: VerifiedCacheOptions, clock: Clock) {
    this.#options = options;
    this.#clock = clock;
  }

  /** Applies new bounds; a smaller cache drops the least recently used entries. */
  configure(options: VerifiedCacheOptions): void {
    this.#options = options;
    for (const [key, { network }] of this.#entries) {
      if (this.#entries.size <= options.maxEntries) return;
      this.#delete(key, network);
    }
  }

  /** HMAC-SHA-256 of the fields. Each is preceded by its length, so that no character can move from one to the next. */
  toDigest({ user, password }: BasicCredentials, network: string): string {
    const name = Buffer.from(user);
    const lengths = `${network.length}:${network}${name.length}:${password.length}:`;
    return this.#computeHmac(this.#key, [lengths, name, password]).toString('base64');
  }

  /** The proof with this digest, unless it has expired. */
  find(network: string, user: string, digest: string): PasswordProof | undefined {
    const key = toKey(network, user);
    const entry = this.#entries.get(key);
    const proof = entry?.proofs.find((each) => each.digest === digest);
    if (entry === undefined || proof === undefined) return undefined;
    const now = this.#clock.monotonic();
    if (now >= proof.knownUntil) return undefined;
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    proof.knownUntil = now + KNOWN_MS;
    return proof;
  }

  isFresh(proof: PasswordProof): boolean {
    return this.#clock.monotonic() < proof.freshUntil;
  }

  add(network: string, user: string, digest: string, stored: string): void {
    if (this.#options.maxEntries === 0) return;
    const key = toKey(network, user);
    const now = this.#clock.monotonic();
    const proof = { digest, stored, freshUntil: now + this.#options.ttl, knownUntil: now + KNOWN_MS };
    const before = this.#entries.get(key);
    const others = before?.proofs.filter((each) => each.digest !== digest && now < each.knownUntil) ?? [];
    this.#delete(key, network);
    if (this.#entries.size >= this.#options.maxEntries) this.#evict(network);
    this.#entries.set(key, { network, proofs: [proof, ...others].slice(0, MAX_PROOFS), misses: before?.misses ?? 0 });
    const keys = this.#networks.get(network);
    if (keys === undefined) this.#networks.set(network, new Set([key]));
    else keys.add(key);
  }

  /** Counts a wrong password for the user from a banned network. */
  countMiss(network: string, user: string): void {
    const key = toKey(network, user);
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    entry.misses++;
    if (entry.misses >= MAX_MISSES) this.#delete(key, network);
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Evicts an entry of the adding network if it has more entries than the network of the least recently used entry. */
  #evict(network: string): void {
    const own = this.#networks.get(network);
    const [oldest] = this.#entries;
    if (oldest === undefined) return;
    const [key, entry] = oldest;
    const [ownKey] = own ?? [];
    if (ownKey !== undefined && (own?.size ?? 0) > (this.#networks.get(entry.network)?.size ?? 0)) this.#delete(ownKey, network);
    else this.#delete(key, entry.network);
  }

  #delete(key: string, network: string): void {
    this.#entries.delete(key);
    const keys = this.#networks.get(network);
    if (keys?.delete(key) === true && keys.size === 0) this.#networks.delete(network);
  }
}

/** Unambiguous, because neither part contains a control character. */
function toKey(network: string, user: string): string {
  return `${network}\n${user}`;
}
