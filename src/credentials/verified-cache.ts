/** Remembers which credentials were found good, so that a browser's hundred requests cost one hash. */
import { createHmac, createSecretKey, type KeyObject, randomBytes } from 'node:crypto';
import type { Clock, Milliseconds } from '../core/clock.ts';

/** Bounds of the cache. */
export interface VerifiedCacheOptions {
  readonly ttl: Milliseconds;
  readonly maxEntries: number;
}

/**
 * Positives only, bounded, and nothing in it is a password: its keys are HMACs under a random key of this process. The stored
 * hash is part of the key, so a changed or removed password is unknown at once.
 */
export class VerifiedCache {
  readonly #options: VerifiedCacheOptions;
  readonly #clock: Clock;
  readonly #key: KeyObject = createSecretKey(randomBytes(32));
  /** In the order of use. */
  readonly #expiries = new Map<string, Milliseconds>();

  constructor(options: VerifiedCacheOptions, clock: Clock) {
    this.#options = options;
    this.#clock = clock;
  }

  /** What these credentials are known by. Every part is preceded by its length, so that no byte moves from one to the next. */
  toKey(user: string, password: Buffer, stored: string): string {
    const mac = createHmac('sha256', this.#key);
    for (const part of [Buffer.from(user), password, Buffer.from(stored)]) mac.update(`${part.length}:`).update(part);
    return mac.digest('base64');
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
