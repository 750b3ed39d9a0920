/** Remembers which client networks proved which passwords, so that a browser's hundred requests cost one hash. */
import { hash, randomBytes } from 'node:crypto';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import type { BasicCredentials } from './basic.ts';

/** Bounds of the cache. */
export interface VerifiedCacheOptions {
  /** How long a password is not hashed again; 0: it is hashed each time. */
  readonly ttl: Milliseconds;
  /** Users, counted once for each of their networks. */
  readonly maxEntries: number;
}

/** A password that a client network proved. */
export interface Proof {
  readonly digest: string;
  /** The stored hash that it fitted: after a change of the hash, nothing is proved. */
  readonly stored: string;
  /** Until then no hash is needed. */
  readonly freshUntil: Milliseconds;
  /** Until then no ban applies. */
  knownUntil: Milliseconds;
}

interface Entry {
  readonly network: string;
  proofs: readonly Proof[];
  /** Wrong passwords that the network sent for the user while it was banned. */
  misses: number;
}

/** Of SHA-256, in bytes. */
const BLOCK = 64;
const DIGEST = 32;
/** Since the last request: whoever is logged in keeps access while others get the user name or the network banned. */
const KNOWN_MS: Milliseconds = 60 * 60_000;
/** A user has at most two passwords at once. */
const MAX_PROOFS = 2;
/**
 * Wrong passwords for one user from one banned network. More, and the network's proofs of that user end: a client cannot be told
 * from its neighbour behind a NAT, and could try passwords against the neighbour's proof as fast as responses come.
 */
const MAX_MISSES = 100;

/**
 * Positive results only, bounded, and no passwords: digests are HMACs under a random key of this process. When the cache is full, an
 * entry of the network with more entries makes room, so that one client cannot evict the entries of all others.
 */
export class VerifiedCache {
  #options: VerifiedCacheOptions;
  readonly #clock: Clock;
  /** RFC 2104's key, xored with its two pads. */
  readonly #inner: string;
  readonly #outer = Buffer.alloc(BLOCK + DIGEST);
  /** In the order of use. */
  readonly #entries = new Map<string, Entry>();
  /** The keys of each network's entries, in the order of their making. */
  readonly #networks = new Map<string, Set<string>>();

  constructor(options: VerifiedCacheOptions, clock: Clock) {
    this.#options = options;
    this.#clock = clock;
    // A whole block of seven-bit bytes: 448 bits, and the inner pad can stand before the fields in one string.
    const key = randomBytes(BLOCK).map((byte) => byte & 0x7f);
    this.#inner = Buffer.from(key.map((byte) => byte ^ 0x36)).toString('latin1');
    this.#outer.set(key.map((byte) => byte ^ 0x5c));
  }

  /** Applies new bounds; a smaller cache drops the entries that were used longest ago. */
  configure(options: VerifiedCacheOptions): void {
    this.#options = options;
    for (const [key, { network }] of this.#entries) {
      if (this.#entries.size <= options.maxEntries) return;
      this.#delete(key, network);
    }
  }

  /**
   * HMAC-SHA-256 of the fields. Every one is preceded by its length, so that no character moves from one to the next. By two plain
   * hashes, as createHmac costs twice as much, and garbage, at every request.
   */
  toDigest({ user, password }: BasicCredentials, network: string): string {
    const fields = `${network.length}:${network}${user.length}:${user}${password.length}:${password.toString('latin1')}`;
    this.#outer.write(hash('sha256', this.#inner + fields, 'binary'), BLOCK, 'latin1');
    return hash('sha256', this.#outer, 'base64');
  }

  /** The proof with this digest, unless it has expired. */
  find(network: string, user: string, digest: string): Proof | undefined {
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

  isFresh(proof: Proof): boolean {
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

  /** The network that adds pays, if it has more entries than the network of the entry that was used longest ago. */
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

/** Neither has a control character. */
function toKey(network: string, user: string): string {
  return `${network}\n${user}`;
}
