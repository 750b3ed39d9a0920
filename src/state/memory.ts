/** The SeenIds and NewestVersions of one process: bounded, and nothing is forgotten before its expiry. */
import type { CancelTimer, Clock, Milliseconds } from '../core/clock.ts';
import { Counts, ROUTE_TO_FREE } from '../core/collections.ts';
import type { EnterRequest, EnterResult, LeaveRequest, NewestVersions } from './newest-versions.ts';
import { type ClaimRequest, type ClaimResult, type Forgotten, type SeenIds, StoreUnavailable } from './seen-ids.ts';

/** An entry of an `ExpiringMap`. */
interface Expiring {
  /** Monotonic time from which the entry counts as absent. It must not change: `put` another entry instead. */
  readonly expiresAt: Milliseconds;
}

/** How routes share a store. */
interface StoreShares {
  /** If there are several routes, one of them holds at most three times what is free. By default there are. */
  readonly isShared?: () => boolean;
  /** A new entry was rejected: the store is full, or its route has reached its share. */
  readonly onFull?: (limit: StoreLimit) => void;
}

/** A limit of a store, in the metrics. */
export type StoreLimit = 'store' | 'store_share';

/** The bounds of a map. */
interface MapBounds extends StoreShares {
  readonly maxEntries: number;
  /** The noun for the entries in the error of a full map, such as `IDs`. */
  readonly what: string;
}

/** Expired entries are removed with up to this delay. The delay affects only memory: `get` never returns an expired entry. */
const BUCKET_MS = 1_000;

/** Follows the route in each key (`toKey` of the dedup gate). */
const TAGGED = /:[dhiko]\d*:.*/s;

/**
 * A bounded map whose entries expire; no entry is removed before its expiry. Keys are kept in buckets by the second of their expiry, so that no
 * operation iterates over all entries.
 */
export class ExpiringMap<Entry extends Expiring> {
  readonly #clock: Clock;
  readonly #bounds: MapBounds;
  readonly #entries = new Map<string, Entry>();
  /** Bucket number → keys whose entry expires in that second: one for each entry. */
  readonly #buckets = new Map<number, Set<string>>();
  /** Entries of each route. */
  readonly #routes = new Counts();
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

  /**
   * Throws StoreUnavailable (`full`) if the key is new, and the map is full or its route has reached its share. `isHandled`: the share does not count, as
   * the event would be handled again.
   */
  put(key: string, entry: Entry, isHandled = false): void {
    this.#checkOpen();
    if (this.#entries.has(key)) this.#leaveBucket(key);
    else this.#add(key.replace(TAGGED, ''), isHandled);
    this.#entries.set(key, entry);
    const bucket = toBucket(entry.expiresAt);
    const keys = this.#buckets.get(bucket);
    if (keys === undefined) this.#buckets.set(bucket, new Set([key]));
    else keys.add(key);
  }

  delete(key: string): void {
    this.#checkOpen();
    this.#leaveBucket(key);
    if (this.#entries.delete(key)) this.#routes.add(key.replace(TAGGED, ''), -1);
  }

  close(): void {
    this.#isClosed = true;
    this.#stopSweep();
  }

  /** Counts a new entry. */
  #add(route: string, isHandled: boolean): void {
    // Removing an entry that has not expired would allow the replay that it prevents.
    this.#sweep();
    const { maxEntries, what, isShared, onFull } = this.#bounds;
    const count = this.#routes.of(route);
    const free = maxEntries - this.#entries.size;
    const isFull = free <= 0;
    if (isFull || (!isHandled && count >= ROUTE_TO_FREE * free && isShared?.() !== false)) {
      onFull?.(isFull ? 'store' : 'store_share');
      const used = isFull ? '(' : `for this sender (${count} of `;
      throw new StoreUnavailable('full', `the memory store is full ${used}${maxEntries} ${what})`);
    }
    this.#routes.add(route, 1);
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
    const current = toBucket(this.#clock.monotonic());
    // The clock of a worker is zero until its first request.
    if (this.#entries.size === 0) this.#swept = current;
    for (; this.#swept < current; this.#swept++) for (const key of this.#buckets.get(this.#swept) ?? []) this.delete(key);
  }
}

function toBucket(at: Milliseconds): number {
  return Math.floor(at / BUCKET_MS);
}

// Dedup.

interface SeenEntry {
  readonly isHandled: boolean;
  readonly token: string;
  readonly fingerprint: string;
  readonly expiresAt: Milliseconds;
}

/** Creates the store. */
export function createMemorySeenIds(
  clock: Clock,
  options: StoreShares & {
    /** Maximum number of IDs, claimed and handled together. */
    readonly maxIds: number;
  },
): SeenIds {
  return new MemorySeenIds(clock, { ...options, maxEntries: options.maxIds, what: 'IDs' });
}

class MemorySeenIds implements SeenIds {
  readonly #clock: Clock;
  readonly #entries: ExpiringMap<SeenEntry>;

  constructor(clock: Clock, bounds: MapBounds) {
    this.#clock = clock;
    this.#entries = new ExpiringMap(clock, bounds);
  }

  async claim({ key, token, fingerprint, leaseMs }: ClaimRequest): Promise<ClaimResult> {
    const now = this.#clock.monotonic();
    const entry = this.#entries.get(key);
    if (entry === undefined || (!entry.isHandled && entry.token === token)) {
      this.#entries.put(key, { isHandled: false, token, fingerprint, expiresAt: now + leaseMs });
      return { state: 'new' };
    }
    const { isHandled, expiresAt, fingerprint: stored } = entry;
    return { state: isHandled ? 'handled' : 'in-progress', remainingMs: expiresAt - now, fingerprint: stored };
  }

  async confirm(key: string, token: string, fingerprint: string, retentionMs: Milliseconds): Promise<boolean> {
    const entry = this.#entries.get(key);
    if (entry !== undefined && (entry.isHandled || entry.token !== token)) return false;
    const expiresAt = this.#clock.monotonic() + retentionMs;
    this.#entries.put(key, { isHandled: true, token: '', fingerprint, expiresAt }, true);
    return true;
  }

  async release(key: string, token: string): Promise<boolean> {
    const entry = this.#entries.get(key);
    if (entry === undefined || entry.isHandled || entry.token !== token) return false;
    this.#entries.delete(key);
    return true;
  }

  async forget(key: string): Promise<Forgotten> {
    const entry = this.#entries.get(key);
    if (entry === undefined) return { was: 'absent' };
    this.#entries.delete(key);
    return { was: entry.isHandled ? 'handled' : 'in-progress', fingerprint: entry.fingerprint };
  }

  isUp(): boolean {
    return this.#entries.isOpen;
  }

  async close(): Promise<void> {
    this.#entries.close();
  }
}

// Order.

interface Newest {
  readonly version: string;
  /** Monotonic, like all times here. */
  readonly until: Milliseconds;
}

/** The event that the app is handling. */
interface ResourceHolder {
  readonly token: string;
  readonly until: Milliseconds;
}

interface Resource {
  readonly newest: Newest | undefined;
  readonly holder: ResourceHolder | undefined;
  readonly expiresAt: Milliseconds;
}

/** Creates the store. */
export function createMemoryNewestVersions(
  clock: Clock,
  options: StoreShares & {
    /** Maximum number of resources. */
    readonly maxResources: number;
  },
): NewestVersions {
  return new MemoryNewestVersions(clock, { ...options, maxEntries: options.maxResources, what: 'resources' });
}

class MemoryNewestVersions implements NewestVersions {
  readonly #clock: Clock;
  readonly #resources: ExpiringMap<Resource>;

  constructor(clock: Clock, bounds: MapBounds) {
    this.#clock = clock;
    this.#resources = new ExpiringMap(clock, bounds);
  }

  async enter({ key, version, token, leaseMs }: EnterRequest): Promise<EnterResult> {
    const now = this.#clock.monotonic();
    const { newest, holder } = this.#read(key, now);
    if (newest !== undefined && version < newest.version) return { state: 'stale' };
    if (holder !== undefined && holder.token !== token) return { state: 'busy', remainingMs: holder.until - now };
    this.#write(key, newest, { token, until: now + leaseMs });
    return { state: 'entered' };
  }

  async leave({ key, token, handled }: LeaveRequest): Promise<boolean> {
    const now = this.#clock.monotonic();
    const { newest, holder } = this.#read(key, now);
    const isHolder = holder?.token === token;
    if (!isHolder && handled === undefined) return false;
    const raised = handled === undefined ? newest : raise(newest, { version: handled.version, until: now + handled.retentionMs });
    this.#write(key, raised, isHolder ? undefined : holder, handled !== undefined);
    return isHolder || holder === undefined;
  }

  async close(): Promise<void> {
    this.#resources.close();
  }

  /** The parts that have not expired; each has its own expiry. */
  #read(key: string, now: Milliseconds): Pick<Resource, 'newest' | 'holder'> {
    const resource = this.#resources.get(key);
    return { newest: toLive(resource?.newest, now), holder: toLive(resource?.holder, now) };
  }

  #write(key: string, newest: Newest | undefined, holder: ResourceHolder | undefined, isHandled = false): void {
    const expiresAt = Math.max(newest?.until ?? 0, holder?.until ?? 0);
    if (newest === undefined && holder === undefined) this.#resources.delete(key);
    else this.#resources.put(key, { newest, holder, expiresAt }, isHandled);
  }
}

function toLive<Part extends { readonly until: Milliseconds }>(part: Part | undefined, now: Milliseconds): Part | undefined {
  return part !== undefined && now < part.until ? part : undefined;
}

function raise(newest: Newest | undefined, handled: Newest): Newest {
  if (newest === undefined || handled.version > newest.version) return handled;
  return handled.version < newest.version || handled.until < newest.until ? newest : handled;
}
