/** Caches which client networks sent which valid passwords, so that a browser's hundred requests cost one hash. */
import { createSecretKey, randomBytes } from 'node:crypto';
import type { Clock, Milliseconds } from '../core/clock.ts';
import { createHmacFunction } from '../core/hmac.ts';
import type { BasicCredentials } from './basic.ts';

/** Bounds of the cache. */
export interface VerifiedCacheOptions {
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
 * Caches only positive results, bounded, and stores no passwords: digests are HMACs with a random key of this process. When the cache
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
    const others = this.#entries.get(key)?.proofs.filter((each) => each.digest !== digest && now < each.knownUntil) ?? [];
    this.#delete(key, network);
    if (this.#entries.size >= this.#options.maxEntries) this.#evict(network);
    this.#entries.set(key, { network, proofs: [proof, ...others].slice(0, MAX_PROOFS), misses: 0 });
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
