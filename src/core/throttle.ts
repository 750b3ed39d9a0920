/** A rate limit that allows bursts, and queues in which groups take turns. */
import type { Clock, Milliseconds } from './clock.ts';

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
