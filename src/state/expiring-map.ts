/** A bounded map whose entries expire; no entry is removed before its expiry. */
import type { CancelTimer, Clock, Milliseconds } from '../core/clock.ts';
import { StoreUnavailable } from './claims/seen-ids.ts';

/** An entry of the map. */
interface Expiring {
  /** Monotonic time from which the entry counts as absent. It must not change: `put` another entry instead. */
  readonly expiresAt: Milliseconds;
}

/** The bounds of a map. */
interface MapBounds {
  readonly maxEntries: number;
  /** The noun for the entries in the error of a full map, such as `IDs`. */
  readonly what: string;
}

/** Expired entries are removed with up to this delay. The delay affects only memory: `get` never returns an expired entry. */
const BUCKET_MS = 1_000;

/** Keys are kept in buckets by the second of their expiry, so that no operation iterates over all entries. */
export class ExpiringMap<Entry extends Expiring> {
  readonly #clock: Clock;
  readonly #bounds: MapBounds;
  readonly #entries = new Map<string, Entry>();
  /** Bucket number → keys whose entry expires in that second: one for each entry. */
  readonly #buckets = new Map<number, Set<string>>();
  readonly #stopSweep: CancelTimer;
  #swept: number;
  #isClosed = false;

  constructor(clock: Clock, bounds: MapBounds) {
    this.#clock = clock;
    this.#bounds = bounds;
    this.#swept = toBucket(clock.monotonic());
    this.#stopSweep = clock.every(BUCKET_MS, () => this.#sweep());
  }

  /** False after `close`; `get`, `put` and `delete` then throw StoreUnavailable. */
  get isOpen(): boolean {
    return !this.#isClosed;
  }

  /** The entry, unless it has expired. */
  get(key: string): Entry | undefined {
    this.#checkOpen();
    const entry = this.#entries.get(key);
    return entry !== undefined && this.#clock.monotonic() < entry.expiresAt ? entry : undefined;
  }

  /** Throws StoreUnavailable (`full`) if the key is new and the map is full. */
  put(key: string, entry: Entry): void {
    this.#checkOpen();
    const { maxEntries, what } = this.#bounds;
    if (!this.#entries.has(key) && this.#entries.size >= maxEntries) {
      this.#sweep();
      // Removing an entry that has not expired would allow the replay that it prevents.
      if (this.#entries.size >= maxEntries)
        throw new StoreUnavailable('full', `the memory store is full (${maxEntries} ${what})`);
    }
    this.#leaveBucket(key);
    this.#entries.set(key, entry);
    const bucket = toBucket(entry.expiresAt);
    const keys = this.#buckets.get(bucket);
    if (keys === undefined) this.#buckets.set(bucket, new Set([key]));
    else keys.add(key);
  }

  delete(key: string): void {
    this.#checkOpen();
    this.#leaveBucket(key);
    this.#entries.delete(key);
  }

  close(): void {
    this.#isClosed = true;
    this.#stopSweep();
  }

  #leaveBucket(key: string): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    const bucket = toBucket(entry.expiresAt);
    const keys = this.#buckets.get(bucket);
    keys?.delete(key);
    if (keys?.size === 0) this.#buckets.delete(bucket);
  }

  #checkOpen(): void {
    if (this.#isClosed) throw new StoreUnavailable('unreachable', 'the memory store is closed');
  }

  /** Removes expired entries. */
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
