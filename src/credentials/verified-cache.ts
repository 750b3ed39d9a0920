/** Remembers which credentials were found good, so that a browser's hundred requests cost one hash. */
import { hash, randomBytes } from 'node:crypto';
import type { Clock, Milliseconds } from '../core/clock.ts';

/** Bounds of the cache. */
export interface VerifiedCacheOptions {
  readonly ttl: Milliseconds;
  readonly maxEntries: number;
}

/** Of SHA-256, in bytes. */
const BLOCK = 64;
const DIGEST = 32;

/**
 * Positives only, bounded, and nothing in it is a password: its keys are HMACs under a random key of this process. The stored
 * hash is part of the key, so a changed or removed password is unknown at once.
 */
export class VerifiedCache {
  readonly #options: VerifiedCacheOptions;
  readonly #clock: Clock;
  /** RFC 2104's key, xored with its two pads. */
  readonly #inner: string;
  readonly #outer = Buffer.alloc(BLOCK + DIGEST);
  /** In the order of use. */
  readonly #expiries = new Map<string, Milliseconds>();

  constructor(options: VerifiedCacheOptions, clock: Clock) {
    this.#options = options;
    this.#clock = clock;
    // A whole block of seven-bit bytes: 448 bits, and the inner pad can stand before the fields in one string.
    const key = randomBytes(BLOCK).map((byte) => byte & 0x7f);
    this.#inner = Buffer.from(key.map((byte) => byte ^ 0x36)).toString('latin1');
    this.#outer.set(key.map((byte) => byte ^ 0x5c));
  }

  /**
   * What these credentials are known by: HMAC-SHA-256 of the fields. Every one is preceded by its length, so that no character
   * moves from one to the next. By two plain hashes, as createHmac costs twice as much, and garbage, at every request.
   */
  toKey(user: string, password: Buffer, stored: string): string {
    const fields = `${user.length}:${user}${password.length}:${password.toString('latin1')}${stored.length}:${stored}`;
    this.#outer.write(hash('sha256', this.#inner + fields, 'binary'), BLOCK, 'latin1');
    return hash('sha256', this.#outer, 'base64');
  }

  has(key: string): boolean {
    const expiry = this.#expiries.get(key);
    if (expiry === undefined) return false;
    this.#expiries.delete(key);
    if (this.#clock.monotonic() >= expiry) return false;
    this.#expiries.set(key, expiry);
    return true;
  }

  add(key: string): void {
    if (this.#options.ttl === 0 || this.#options.maxEntries === 0) return;
    this.#expiries.delete(key);
    const [oldest] = this.#expiries.keys();
    if (oldest !== undefined && this.#expiries.size >= this.#options.maxEntries) this.#expiries.delete(oldest);
    this.#expiries.set(key, this.#clock.monotonic() + this.#options.ttl);
  }

  get size(): number {
    return this.#expiries.size;
  }
}
