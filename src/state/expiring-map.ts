/** A map whose entries count as absent from their time on: bounded, and never forgetting one before its time. */
import type { CancelTimer, Clock, Milliseconds } from '../core/clock.ts';
import { StoreUnavailable } from './claims/seen-ids.ts';

/** What a map may hold. */
export interface Expiring {
  /** Monotonic; from then on the entry counts as absent. It may be moved on in place by `put`, never back. */
  readonly expiresAt: Milliseconds;
}

/** How a map is bounded. */
export interface MapBounds {
  readonly most: number;
  /** For the error of a map that is full: `ids`. */
  readonly what: string;
}

/** Entries expire within this of their time; it only delays when room is freed, never what is found. */
const BUCKET_MS = 1_000;

/** Expiry is kept in buckets of a second, so that nothing ever walks over all entries. */
export class ExpiringMap<Entry extends Expiring> {
  readonly #clock: Clock;
  readonly #bounds: MapBounds;
  readonly #entries = new Map<string, Entry>();
  /** Bucket number → keys whose entry was to expire in it when they were put there. */
  readonly #buckets = new Map<number, string[]>();
  readonly #stopSweep: CancelTimer;
  #swept: number;
  #isClosed = false;

  constructor(clock: Clock, bounds: MapBounds) {
    this.#clock = clock;
    this.#bounds = bounds;
    this.#swept = toBucket(clock.monotonic());
    this.#stopSweep = clock.every(BUCKET_MS, () => this.#sweep());
  }

  /** False once it was closed; from then on `get`, `put` and `delete` throw StoreUnavailable. */
  get isOpen(): boolean {
    return !this.#isClosed;
  }

  /** The entry, unless its time is over. */
  get(key: string): Entry | undefined {
    this.#checkOpen();
    const entry = this.#entries.get(key);
    return entry !== undefined && this.#clock.monotonic() < entry.expiresAt ? entry : undefined;
  }

  /** Throws StoreUnavailable (`full`) where the key is new and no room is left. */
  put(key: string, entry: Entry): void {
    this.#checkOpen();
    const { most, what } = this.#bounds;
    if (!this.#entries.has(key) && this.#entries.size >= most) {
      this.#sweep();
      // Forgetting one that is still live would let through what it stands against.
      if (this.#entries.size >= most) throw new StoreUnavailable('full', `the memory store holds ${most} live ${what}`);
    }
    this.#entries.set(key, entry);
    const bucket = toBucket(entry.expiresAt);
    const keys = this.#buckets.get(bucket);
    if (keys === undefined) this.#buckets.set(bucket, [key]);
    else keys.push(key);
  }

  delete(key: string): void {
    this.#checkOpen();
    this.#entries.delete(key);
  }

  close(): void {
    this.#isClosed = true;
    this.#stopSweep();
  }

  #checkOpen(): void {
    if (this.#isClosed) throw new StoreUnavailable('unreachable', 'the memory store is closed');
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
