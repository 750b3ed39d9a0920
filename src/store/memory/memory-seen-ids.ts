/** Seen ids of one process: bounded, and never forgetting an id before its time. */
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { type ClaimRequest, type ClaimResult, type SeenIds, StoreUnavailable } from '../seen-ids.ts';

/** Bounds of the store. */
export interface MemoryOptions {
  /** Most ids at once, claimed and handled together. */
  readonly maxIds: number;
}

interface Entry {
  isHandled: boolean;
  token: string;
  readonly fingerprint: string;
  /** Monotonic; from then on the entry counts as absent. */
  expiresAt: Milliseconds;
}

/** Ids expire within this of their time; it only delays when room is freed, never what a claim is told. */
const BUCKET_MS = 1_000;

/** Builds the store. Expiry is kept in buckets of a second, so that nothing ever walks over all ids. */
export function createMemorySeenIds(clock: Clock, options: MemoryOptions): SeenIds {
  return new MemorySeenIds(clock, options.maxIds);
}

class MemorySeenIds implements SeenIds {
  readonly #clock: Clock;
  readonly #maxIds: number;
  readonly #entries = new Map<string, Entry>();
  /** Bucket number → keys whose entry was to expire in it when they were put there. */
  readonly #buckets = new Map<number, string[]>();
  readonly #stopSweep: CancelTimer;
  #swept: number;
  #isClosed = false;

  constructor(clock: Clock, maxIds: number) {
    this.#clock = clock;
    this.#maxIds = maxIds;
    this.#swept = toBucket(clock.monotonic());
    this.#stopSweep = clock.every(BUCKET_MS, () => this.#sweep());
  }

  async claim(request: ClaimRequest): Promise<ClaimResult> {
    this.#checkOpen();
    const now = this.#clock.monotonic();
    const entry = this.#live(request.key, now);
    if (entry === undefined) {
      this.#put(request.key, {
        isHandled: false,
        token: request.token,
        fingerprint: request.fingerprint,
        expiresAt: now + request.leaseMs,
      });
      return { state: 'new' };
    }
    const sameContent = entry.fingerprint === request.fingerprint;
    return entry.isHandled
      ? { state: 'handled', sameContent }
      : { state: 'in-progress', remainingMs: entry.expiresAt - now, sameContent };
  }

  async confirm(key: string, token: string, fingerprint: string, retentionMs: Milliseconds): Promise<boolean> {
    this.#checkOpen();
    const now = this.#clock.monotonic();
    const entry = this.#live(key, now);
    if (entry !== undefined && (entry.isHandled || entry.token !== token)) return false;
    this.#put(key, { isHandled: true, token: '', fingerprint, expiresAt: now + retentionMs });
    return true;
  }

  async release(key: string, token: string): Promise<boolean> {
    this.#checkOpen();
    const entry = this.#live(key, this.#clock.monotonic());
    if (entry === undefined || entry.isHandled || entry.token !== token) return false;
    this.#entries.delete(key);
    return true;
  }

  isUp(): boolean {
    return !this.#isClosed;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#stopSweep();
  }

  #checkOpen(): void {
    if (this.#isClosed) throw new StoreUnavailable('unreachable', 'the memory store is closed');
  }

  #live(key: string, now: Milliseconds): Entry | undefined {
    const entry = this.#entries.get(key);
    return entry !== undefined && now < entry.expiresAt ? entry : undefined;
  }

  #put(key: string, entry: Entry): void {
    if (!this.#entries.has(key) && this.#entries.size >= this.#maxIds) {
      this.#sweep();
      // Forgetting an id that is still live would let a replay of it through.
      if (this.#entries.size >= this.#maxIds)
        throw new StoreUnavailable('full', `the memory store holds ${this.#maxIds} live ids`);
    }
    this.#entries.set(key, entry);
    const bucket = toBucket(entry.expiresAt);
    const keys = this.#buckets.get(bucket);
    if (keys === undefined) this.#buckets.set(bucket, [key]);
    else keys.push(key);
  }

  /** Empties the buckets that are past; an entry that was put again later stands in a later bucket, too, and stays. */
  #sweep(): void {
    const now = this.#clock.monotonic();
    const current = toBucket(now);
    for (; this.#swept < current; this.#swept++) {
      for (const key of this.#buckets.get(this.#swept) ?? []) {
        const entry = this.#entries.get(key);
        if (entry !== undefined && entry.expiresAt <= now) this.#entries.delete(key);
      }
      this.#buckets.delete(this.#swept);
    }
  }
}

function toBucket(at: Milliseconds): number {
  return Math.floor(at / BUCKET_MS);
}
