/** A rate limit that allows bursts, queues in which groups take turns, and what tenants and operations share. */
import type { CancelTimer, Clock, Milliseconds } from './clock.ts';
import { Counts } from './collections.ts';
import { SidegateError } from './errors.ts';

/** A rate limit that allows bursts: `rate` tokens per second, of which at most `burst` accumulate. */
export class TokenBucket {
  readonly #rate: number;
  readonly #burst: number;
  readonly #clock: Clock;
  #tokens: number;
  #filledAt: Milliseconds;

  constructor(rate: number, burst: number, clock: Clock) {
    this.#rate = rate;
    this.#burst = burst;
    this.#clock = clock;
    this.#tokens = burst;
    this.#filledAt = clock.monotonic();
  }

  /** Takes a token; returns false if there is none. */
  take(): boolean {
    const now = this.#clock.monotonic();
    this.#tokens = Math.min(this.#burst, this.#tokens + ((now - this.#filledAt) / 1_000) * this.#rate);
    this.#filledAt = now;
    if (this.#tokens < 1) return false;
    this.#tokens--;
    return true;
  }
}

/** A queue in which groups take turns: a group with many entries delays only its own. */
export class TurnQueue<Entry> {
  /** The next one first; of each group, too. */
  readonly #groups = new Map<string, Set<Entry>>();
  readonly #groupOf = new Map<Entry, string>();

  get size(): number {
    return this.#groupOf.size;
  }

  /** Undefined if the queue is empty. */
  get first(): Entry | undefined {
    for (const entry of this) return entry;
    return undefined;
  }

  /** The next one of each group. */
  *firsts(): Iterable<Entry> {
    for (const [first] of this.#groups.values()) if (first !== undefined) yield first;
  }

  /** Adds an entry at the end of its group. One that is in the queue keeps its place. */
  add(group: string, entry: Entry): void {
    if (this.#groupOf.has(entry)) return;
    this.#groupOf.set(entry, group);
    this.#groups.set(group, (this.#groups.get(group) ?? new Set()).add(entry));
  }

  /** Removes an entry. `isServed`: its group has had its turn. */
  remove(entry: Entry, isServed: boolean): void {
    const name = this.#groupOf.get(entry);
    const group = name === undefined ? undefined : this.#groups.get(name);
    if (name === undefined || group === undefined) return;
    this.#groupOf.delete(entry);
    group.delete(entry);
    if (isServed || group.size === 0) this.#groups.delete(name);
    if (isServed && group.size > 0) this.#groups.set(name, group);
  }

  clear(): void {
    this.#groups.clear();
    this.#groupOf.clear();
  }

  *[Symbol.iterator](): Iterator<Entry> {
    for (const group of this.#groups.values()) yield* group;
  }
}

/** A caller in a `WaitLine`. */
export interface LinePlace<Request, Grant> {
  readonly request: Request;
  readonly end: (grant: Grant | undefined) => void;
}

/** The wait of one caller. */
export interface Waiting<Grant> {
  /** Undefined if the caller left, or waited too long. */
  readonly granted: Promise<Grant | undefined>;
  leave(): void;
}

/** Callers that wait: groups take turns, and those of each wait in the order in which they came. */
export class WaitLine<Request, Grant> {
  readonly #clock: Clock;
  readonly #places = new TurnQueue<LinePlace<Request, Grant>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get length(): number {
    return this.#places.size;
  }

  get places(): Iterable<LinePlace<Request, Grant>> {
    return this.#places;
  }

  /** Of each group, in turns. */
  firsts(): Iterable<LinePlace<Request, Grant>> {
    return this.#places.firsts();
  }

  get first(): LinePlace<Request, Grant> | undefined {
    return this.#places.first;
  }

  /** `group`: the tenant, for one. `atMost`: how long to wait; by default until the caller leaves. */
  join(request: Request, group: string | undefined, atMost?: Milliseconds): Waiting<Grant> {
    const { promise, resolve } = Promise.withResolvers<Grant | undefined>();
    const place: LinePlace<Request, Grant> = {
      request,
      end: (grant) => {
        cancel?.();
        this.#places.remove(place, grant !== undefined);
        resolve(grant);
      },
    };
    const cancel = atMost === undefined ? undefined : this.#clock.after(atMost, () => place.end(undefined));
    this.#places.add(group ?? '', place);
    return { granted: promise, leave: () => place.end(undefined) };
  }
}

/** The parts of something that tenants share. If there are several, a tenant gets more only while it then holds at most what is free. */
export class TenantParts extends Counts {
  /** The first that asked. */
  #first: string | undefined;
  #hasOthers = false;
  #sum = 0;

  /** All tenants hold so much. */
  get sum(): number {
    return this.#sum;
  }

  override add(tenant: string, change: number): void {
    this.#sum += change;
    super.add(tenant, change);
  }

  /** How many of `size` each the tenant may have in addition to what it holds, of `free`. */
  most(tenant: string, size: number, free: number): number {
    this.#first ??= tenant;
    this.#hasOthers ||= this.#first !== tenant;
    return Math.floor(this.#hasOthers ? (free - this.of(tenant) + size) / (2 * size) : free / size);
  }
}

// Bounds the bytes of the deliveries that lanes hold, over all lanes: a lane reserves memory before it takes deliveries. Tenants have parts.

const MIN_BYTES = 1024 * 1024;

interface MemoryRequest {
  readonly most: number;
  readonly size: number;
  readonly tenant: string | undefined;
}

export class MemoryBudget {
  readonly #line: WaitLine<MemoryRequest, number>;
  readonly #parts = new TenantParts();
  /** A quarter of the memory: a larger delivery counts as so much, so that one tenant's leave room for those of others. The queue reads it only while the process has room. */
  readonly #largest: number;
  #free: number;

  constructor(bytes: number, clock: Clock) {
    this.#free = Math.max(bytes, MIN_BYTES);
    this.#largest = Math.floor(this.#free / 4);
    this.#line = new WaitLine(clock);
  }

  /** Returns the bytes that a delivery of this size takes of the memory. */
  toShare(bytes: number): number {
    return Math.min(bytes, this.#largest);
  }

  /** Bytes that can be reserved; negative if deliveries were larger than expected. */
  get free(): number {
    return this.#free;
  }

  get waiting(): number {
    return this.#line.length;
  }

  /** Reserves memory for up to `most` deliveries of this size. Returns for how many; 0: the caller has to wait. Those that wait, and could have it, come first. */
  reserve({ most, size, tenant = '' }: MemoryRequest): number {
    const share = this.toShare(size);
    const reserved = Math.max(0, Math.min(share < size ? 1 : most, this.#parts.most(tenant, share, this.#free)));
    this.#hold(reserved * share, tenant);
    return reserved;
  }

  wait(request: MemoryRequest): Waiting<number> {
    return this.#line.join(request, request.tenant);
  }

  /** Replaces a reservation for deliveries of this size by what was taken. */
  settle(reserved: number, size: number, bytes: number, tenant = ''): void {
    this.release(reserved * this.toShare(size) - bytes, tenant);
  }

  release(bytes: number, tenant = ''): void {
    this.#hold(-bytes, tenant);
    while (this.#line.length > 0 && this.#free > 0 && this.#admitOne());
  }

  #hold(bytes: number, tenant: string): void {
    this.#free -= bytes;
    this.#parts.add(tenant, bytes);
  }

  /** The next one whose tenant may have more. */
  #admitOne(): boolean {
    for (const { request, end } of this.#line.firsts()) {
      const reserved = this.reserve(request);
      if (reserved === 0) continue;
      end(reserved);
      return true;
    }
    return false;
  }
}

// Bounds what operations of the store hold in memory at once. Each is counted before it is sent, with all that it makes of what it gets, and with
// the bodies of its result: a request of some bytes can create thousands of deliveries, or read an event of any size.

const MAX_WAIT_MS: Milliseconds = 5_000;
/** Memory can become free without an operation that ends. */
const LOOK_MS: Milliseconds = 50;
/** For a larger operation, the process must have room for all copies of what it stores or reads. */
export const LARGE_BYTES = 1024 * 1024;

/** The memory of the process. */
export interface FreeMemory {
  /** Whether so many bytes are free. */
  hasRoom(bytes: number): boolean;
}

export class StoreBudget {
  readonly #line: WaitLine<number, true>;
  readonly #most: number;
  readonly #clock: Clock;
  readonly #memory: FreeMemory | undefined;
  readonly #copies: number;
  #used = 0;
  #cancelLook: CancelTimer | undefined;

  /** An operation that costs more than `most` runs alone. `copies`: of each byte that it costs. */
  constructor(most: number, clock: Clock, memory?: FreeMemory, copies = 1) {
    this.#most = most;
    this.#clock = clock;
    this.#memory = memory;
    this.#copies = copies;
    this.#line = new WaitLine(clock);
  }

  /** Runs an operation once there is room for it; groups that wait take turns. `onWait`: not at once. Rejects with a SidegateError `queue_busy` if that takes too long. */
  async run<T>(cost: number, operation: () => Promise<T>, group: string | undefined, onWait?: () => void): Promise<T> {
    if (this.#line.length > 0 || !this.hasRoom(cost) || !this.#take(cost)) {
      onWait?.();
      const { granted } = this.#line.join(cost, group, MAX_WAIT_MS);
      this.#admit();
      if ((await granted) === undefined)
        throw new SidegateError('system', 'queue_busy', 'too many operations wait for the store of the queue, or for memory');
    }
    try {
      return await operation();
    } finally {
      this.#used -= cost;
      this.#admit();
    }
  }

  #take(cost: number): boolean {
    if (this.#used > 0 && this.#used + cost > this.#most) return false;
    this.#used += cost;
    return true;
  }

  /** Whether the process has memory for an operation now. */
  hasRoom(cost: number): boolean {
    return cost <= LARGE_BYTES || this.#memory?.hasRoom(this.#copies * cost) !== false;
  }

  /** Half of it, or half of that and so on: as much as the process has memory for now. */
  fit(cost: number): number {
    let fits = cost;
    while (!this.hasRoom(fits)) fits /= 2;
    return fits;
  }

  #admit(): void {
    for (let next = this.#findNext(); next !== undefined && this.#take(next.request); next = this.#findNext()) next.end(true);
    if (this.#line.length === 0 || this.#cancelLook !== undefined) return;
    this.#cancelLook = this.#clock.after(LOOK_MS, () => {
      this.#cancelLook = undefined;
      this.#admit();
    });
  }

  /** Those for which the process has no room hold up only their group. */
  #findNext() {
    for (const place of this.#line.firsts()) if (this.hasRoom(place.request)) return place;
    return undefined;
  }
}
