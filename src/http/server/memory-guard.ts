/** Rejects work before the kernel kills the process for its memory, and divides the memory for bodies between requests. */
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { Counts, ROUTE_TO_FREE } from '../../core/collections.ts';
import { toSite } from '../../core/ip-address.ts';

/** The memory state that code checks before it allocates. */
export interface MemoryPressure {
  /** The bytes that the process may use; undefined: the limit is unknown. */
  readonly limit: number | undefined;
  /** The workers that share the limit, and the ports of each; each port has a part of what the connections may hold. */
  readonly workers: number;
  readonly ports: number;
  /** Large bodies are rejected. */
  readonly isTight: boolean;
  /** Objects in use fill nearly as much of the heap as they may: idle connections are closed. */
  readonly isHeapTight: boolean;
  /** The exhausted resource, if any: everything new is rejected. */
  readonly shortage: 'heap' | 'memory' | undefined;
  /** Measures whether memory is not tight with so many more bytes. */
  hasRoom(bytes: number): boolean;
  /** Counts received bytes, so that memory is measured more often than once a second during a flood. */
  onBytes(bytes: number): void;
  /** Counts bytes that were given up, and are free only after a collection. */
  onGarbage(bytes: number): void;
}

const CHECK_INTERVAL_MS: Milliseconds = 1_000;
const MIN_HEAP_INTERVAL_MS: Milliseconds = 100;
/** The share of `heapShed` above which the heap is collected. */
const HEAP_TIGHT = 0.9;
/** If a collection leaves more than that, the next one for the heap is after so many times its duration. */
const HEAP_RESTS = 10;
/**
 * After each collection that the guard runs, the next one waits so many times its duration. V8 ends a process that spends more than 60 % of the time
 * with four collections in a row which leave its heap nearly full.
 */
const RESTS = 1.5;
/** A measurement takes about ten microseconds. */
const CHECK_BYTES = 1024 * 1024;
/** How far below `shed` garbage is collected: V8 does not collect buffers outside the heap soon enough. */
const COLLECT_MARGIN = 0.12;
const MIN_COLLECT_INTERVAL_MS: Milliseconds = 100;
const TIGHT_COLLECT_INTERVAL_MS: Milliseconds = 500;
const MAX_COLLECT_INTERVAL_MS: Milliseconds = 5_000;
/** How often the heap is shrunk while memory is only tight. After a flood it would otherwise stay tight, as V8 keeps a heap that it has grown. */
const SHRINK_INTERVAL_MS: Milliseconds = 10_000;
/** If a collection frees less than this share of the limit, the next one waits twice as long. */
const WORTHWHILE = 0.03;
/** So much known garbage, as a share of the limit, is collected at once. */
const MAX_GARBAGE = 0.06;

/** Measures the heap and the process once a second, and also for each mebibyte that arrives. */
export class MemoryGuard implements MemoryPressure {
  readonly limit: number | undefined;
  readonly workers: number;
  readonly ports: number;
  readonly #parts;
  readonly #stop: CancelTimer;
  readonly #sheds: (() => void)[] = [];
  #used = 0;
  #bytes = 0;
  #garbage = 0;
  #isHeapFull = false;
  /** The smallest share of the heap in use since the last collection for it, which is hardly garbage. */
  #heapLeft = 0;
  #heapCheckedAt: Milliseconds = Number.NEGATIVE_INFINITY;
  #heapRestsUntil: Milliseconds = Number.NEGATIVE_INFINITY;
  #restsUntil: Milliseconds = Number.NEGATIVE_INFINITY;
  #collectedAt: Milliseconds = Number.NEGATIVE_INFINITY;
  #shrunkAt: Milliseconds = Number.NEGATIVE_INFINITY;
  #collectInterval = MIN_COLLECT_INTERVAL_MS;

  constructor(parts: {
    readonly clock: Clock;
    /** The bytes that the process may use; undefined: the limit is unknown, and nothing is rejected. */
    readonly limit: number | undefined;
    readonly workers: number;
    readonly ports: number;
    /** The share of the limit above which large bodies are rejected; new requests are rejected halfway between it and the limit. */
    readonly shed: number;
    /** The share of V8's heap limit above which new requests are rejected. */
    readonly heapShed: number;
    /** Returns the share of V8's heap limit that is in use. */
    readonly readHeap: () => number;
    /** Returns the bytes that cannot be reclaimed: the memory of the process and what the kernel holds for it. */
    readonly read: () => number;
    /** Runs the garbage collector. */
    readonly collect: () => void;
    /** Also shrinks the heap, which pauses the process for longer. */
    readonly collectAll: () => void;
  }) {
    this.#parts = parts;
    ({ limit: this.limit, workers: this.workers, ports: this.ports } = parts);
    this.#stop = parts.clock.every(CHECK_INTERVAL_MS, () => {
      if (parts.limit !== undefined) this.#check();
      this.#checkHeap();
    });
  }

  /** The bytes in use at the last measurement. */
  get used(): number {
    return this.#used;
  }

  get isTight(): boolean {
    const { limit, shed } = this.#parts;
    return limit !== undefined && this.#used > limit * shed;
  }

  get isHeapTight(): boolean {
    return this.#heapLeft > this.#parts.heapShed * HEAP_TIGHT;
  }

  get shortage(): 'heap' | 'memory' | undefined {
    if (this.#isHeapFull) return 'heap';
    return this.#isFull ? 'memory' : undefined;
  }

  get #isFull(): boolean {
    const { limit, shed } = this.#parts;
    return limit !== undefined && this.#used > (limit * (1 + shed)) / 2;
  }

  /** Adds a function that frees memory. It is called while memory is tight. */
  addShed(shed: () => void): void {
    this.#sheds.push(shed);
  }

  onBytes(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes < CHECK_BYTES) return;
    this.#bytes = 0;
    const { clock, limit } = this.#parts;
    if (limit !== undefined) this.#check();
    if (clock.monotonic() - this.#heapCheckedAt >= MIN_HEAP_INTERVAL_MS) this.#checkHeap();
  }

  hasRoom(bytes: number): boolean {
    const { limit, shed } = this.#parts;
    if (limit === undefined) return true;
    this.#check();
    if (this.#used + bytes > limit * shed) this.#collect(limit);
    return this.#used + bytes <= limit * shed;
  }

  onGarbage(bytes: number): void {
    const { limit } = this.#parts;
    this.#garbage += bytes;
    if (limit === undefined || this.#garbage < limit * MAX_GARBAGE) return;
    this.#collectedAt = Number.NEGATIVE_INFINITY;
    this.#check();
  }

  close(): void {
    this.#stop();
  }

  /** The memory is checked first: its collections may also shrink the heap, and the next one has to wait. */
  #checkHeap(): void {
    const { clock, heapShed, readHeap, collect } = this.#parts;
    const heap = readHeap();
    this.#heapLeft = Math.min(this.#heapLeft, heap);
    // Above a bound that it did not fill, there is garbage, because of which nothing must be rejected.
    const hasGarbage = [heapShed * HEAP_TIGHT, heapShed].some((bound) => heap > bound && this.#heapLeft <= bound);
    const isDue = hasGarbage || (this.isHeapTight && clock.monotonic() >= this.#heapRestsUntil);
    const duration = isDue ? this.#run(collect) : undefined;
    this.#heapCheckedAt = clock.monotonic();
    if (duration !== undefined) {
      this.#heapLeft = readHeap();
      this.#heapRestsUntil = this.#heapCheckedAt + HEAP_RESTS * duration;
    }
    this.#isHeapFull = (duration === undefined ? heap : this.#heapLeft) > heapShed;
  }

  #check(): void {
    const { limit = 0, shed, read } = this.#parts;
    this.#bytes = 0;
    this.#used = read();
    if (this.#used > limit * (shed - COLLECT_MARGIN)) this.#collect(limit);
    if (this.isTight) for (const shed of this.#sheds) shed();
  }

  /** Returns how long the collection took; undefined: it is too early for one. */
  #run(collect: () => void): Milliseconds | undefined {
    const { clock } = this.#parts;
    const startedAt = clock.monotonic();
    if (startedAt < this.#restsUntil) return undefined;
    collect();
    const duration = clock.monotonic() - startedAt;
    this.#restsUntil = startedAt + (1 + RESTS) * duration;
    return duration;
  }

  #collect(limit: number): void {
    const { clock, collect, collectAll, read } = this.#parts;
    // Collect before rejecting work because of garbage, even if the last collection freed little.
    const interval = this.isTight ? Math.min(TIGHT_COLLECT_INTERVAL_MS, this.#collectInterval) : this.#collectInterval;
    const now = clock.monotonic();
    if (now - this.#collectedAt < interval) return;
    const before = this.#used;
    const shrinks = this.#isFull || (this.isTight && now - this.#shrunkAt >= SHRINK_INTERVAL_MS);
    if (this.#run(shrinks ? collectAll : collect) === undefined) return;
    this.#garbage = 0;
    if (shrinks) this.#shrunkAt = now;
    this.#used = read();
    this.#collectedAt = clock.monotonic();
    const isWorthwhile = before - this.#used > limit * WORTHWHILE;
    this.#collectInterval = isWorthwhile ? MIN_COLLECT_INTERVAL_MS : Math.min(this.#collectInterval * 2, MAX_COLLECT_INTERVAL_MS);
  }
}

/** For ports without a limit. */
export const NO_PRESSURE: MemoryPressure = {
  limit: undefined,
  workers: 1,
  ports: 1,
  isTight: false,
  isHeapTight: false,
  shortage: undefined,
  hasRoom: () => true,
  onBytes: () => undefined,
  onGarbage: () => undefined,
};

// The memory for bodies counts allocated bytes. Neither one client nor the deliveries of one route can use up that of all others.

/** The limits for all bodies together. */
export interface BudgetLimits {
  readonly maxBufferedBytes: number;
  /** The maximum number of bodies above SMALL_BODY that are read at once. */
  readonly maxLargeBodies: number;
}

/** A body or a pause, which holds memory for a client. */
export interface Holder {
  readonly startedAt: Milliseconds;
  /** The network of the client (core/ip-address.ts). */
  readonly network: string;
  /** In bytes. */
  readonly held: number;
}

/** A body in the budget. */
export interface BudgetedBody extends Holder {
  /** The bytes that it counts for: the capacity of its buffer, or its whole declared size once that was granted. */
  held: number;
  /** Undefined if it is the only route, or unknown. */
  readonly route?: string | undefined;
  /**
   * `large`: it has a slot among the large bodies that are being read; `read`: it had one, and is held until the response is
   * sent.
   */
  state: BodyState;
}

/** The state of a body in the budget. */
export type BodyState = 'small' | 'large' | 'read';

/** In bytes; a body up to this size needs no slot. */
export const SMALL_BODY = 64 * 1024;
/** The share of the budget that is reserved for small bodies, so that common deliveries pass during a flood of large ones. */
const SMALL_SHARE = 1 / 4;
/** The share of the budget that requests may use which wait behind another one on their connection: nothing can evict them. */
const WAITING_SHARE = 1 / 8;
/** Each eviction frees at least this share of the budget: evicting one body for each chunk would take quadratic time. */
export const EVICTED_SHARE = 1 / 16;

/** The bodies of one route. */
interface RouteUse {
  held: number;
  largeHeld: number;
  largeCount: number;
}

/** The memory budget for bodies. */
export class BodyBudget {
  readonly #limits: BudgetLimits;
  #held = 0;
  #largeHeld = 0;
  #largeCount = 0;
  #waiting = 0;
  /** Only of routes of the config. */
  readonly #routes = new Map<string, RouteUse>();

  constructor(limits: BudgetLimits) {
    this.#limits = limits;
  }

  /** Bytes that all bodies hold. */
  get held(): number {
    return this.#held;
  }

  /** Increases the share of a small body to `bytes`; returns false if the budget is exhausted. */
  take(body: BudgetedBody, bytes: number): boolean {
    const more = bytes - body.held;
    if (more <= 0) return true;
    if (this.#missingOfAll(body, bytes) > 0 || this.isOverShare(body, bytes)) return false;
    this.#add(body, more);
    return true;
  }

  /** Whether other bodies of its route leave it no more than what other routes need. A single body of a route may use all that is left. */
  isOverShare(body: BudgetedBody, bytes: number): boolean {
    const use = body.route === undefined ? undefined : this.#routes.get(body.route);
    if (use === undefined || use.held === body.held) return false;
    const { maxBufferedBytes, maxLargeBodies } = this.#limits;
    const { held, state } = body;
    if (this.#missingOfRoute(body, bytes) > 0) return true;
    if (bytes <= SMALL_BODY) return false;
    if (state === 'small' && use.largeCount >= ROUTE_TO_FREE * (maxLargeBodies - this.#largeCount)) return true;
    const added = state === 'small' ? bytes : bytes - held;
    const free = maxBufferedBytes * (1 - SMALL_SHARE) - this.#largeHeld - added;
    return use.largeHeld > 0 && use.largeHeld + added > ROUTE_TO_FREE * free;
  }

  /**
   * Like `take`, for a large body, which also needs a slot; returns false if there is none, or if too little would be left for
   * small bodies.
   */
  takeLarge(body: BudgetedBody, bytes: number): boolean {
    const isNew = body.state === 'small';
    if (!isNew && bytes <= body.held) return true;
    if (isNew && !this.hasFreeSlot) return false;
    if (this.#missingOfLarge(body, bytes) > 0 || this.#missingOfAll(body, bytes) > 0 || this.isOverShare(body, bytes))
      return false;
    if (isNew) {
      const use = this.#findUse(body);
      body.state = 'large';
      this.#largeCount++;
      this.#largeHeld += body.held;
      if (use !== undefined) {
        use.largeCount++;
        use.largeHeld += body.held;
      }
    }
    this.#add(body, bytes - body.held);
    return true;
  }

  /** The body is read, and counts for `bytes` until it is released. */
  finish(body: BudgetedBody, bytes: number): void {
    this.#add(body, bytes - body.held);
    if (body.state !== 'large') return;
    body.state = 'read';
    this.#largeCount--;
    const use = this.#findUse(body);
    if (use !== undefined) use.largeCount--;
  }

  /** Releases all bytes that a body holds. */
  release(body: BudgetedBody): void {
    this.finish(body, 0);
    body.state = 'small';
  }

  /** Takes bytes for a request that waits for the response before it; returns false if such requests have used up their share. */
  takeForWaiting(bytes: number): boolean {
    const { maxBufferedBytes } = this.#limits;
    if (this.#waiting + bytes > maxBufferedBytes * WAITING_SHARE || this.#held + bytes > maxBufferedBytes) return false;
    this.#waiting += bytes;
    this.#held += bytes;
    return true;
  }

  /** Picks the connections to end to free `bytes`, if connections on which something waits have used up their share. */
  pickWaitingVictims<H extends Holder>(connections: readonly H[], bytes: number, now: Milliseconds): H[] {
    const share = this.#limits.maxBufferedBytes * WAITING_SHARE;
    return this.#waiting + bytes > share ? pickVictims(connections, Math.max(bytes, share * EVICTED_SHARE), now) : [];
  }

  releaseWaiting(bytes: number): void {
    this.#waiting -= bytes;
    this.#held -= bytes;
  }

  /** Whether another large body may be read, if there are enough bytes. */
  get hasFreeSlot(): boolean {
    return this.#largeCount < this.#limits.maxLargeBodies;
  }

  /** Whether `bytes` could ever be granted. */
  canHold(bytes: number): boolean {
    return bytes <= this.#limits.maxBufferedBytes;
  }

  /** How many bytes others have to free before the body can have `bytes`, by each limit; 0 or less: none, or only a slot is missing. */
  findMissing(body: BudgetedBody, bytes: number): number {
    const hasSlot = body.state !== 'small' || this.hasFreeSlot;
    const ofLarge = bytes > SMALL_BODY && hasSlot ? this.#missingOfLarge(body, bytes) : 0;
    return Math.max(this.#missingOfAll(body, bytes), this.#missingOfRoute(body, bytes), ofLarge);
  }

  /** Picks the unfinished bodies to evict to free `bytes`; `missing`: of `findMissing`. Those that began after `latest` are kept. */
  pickVictims<B extends BudgetedBody>(bodies: readonly B[], bytes: number, latest: Milliseconds, missing = 0): B[] {
    return pickVictims(bodies, Math.max(bytes, this.#limits.maxBufferedBytes * EVICTED_SHARE), latest, missing);
  }

  #missingOfAll(body: BudgetedBody, bytes: number): number {
    return this.#held - body.held + bytes - this.#limits.maxBufferedBytes;
  }

  /** Of the part for large bodies. A single one may use all of it. */
  #missingOfLarge(body: BudgetedBody, bytes: number): number {
    const others = body.state === 'small' ? this.#largeHeld : this.#largeHeld - body.held;
    return others > 0 ? others + bytes - this.#limits.maxBufferedBytes * (1 - SMALL_SHARE) : 0;
  }

  /** Of the share of the route: bytes that leave it are free then. */
  #missingOfRoute(body: BudgetedBody, bytes: number): number {
    const use = body.route === undefined ? undefined : this.#routes.get(body.route);
    if (use === undefined || use.held === body.held) return 0;
    const over = use.held - body.held + bytes + ROUTE_TO_FREE * this.#missingOfAll(body, bytes);
    return over / (ROUTE_TO_FREE + 1);
  }

  #add(body: BudgetedBody, bytes: number): void {
    body.held += bytes;
    this.#held += bytes;
    if (body.state !== 'small') this.#largeHeld += bytes;
    const use = this.#findUse(body);
    if (use === undefined) return;
    use.held += bytes;
    if (body.state !== 'small') use.largeHeld += bytes;
  }

  #findUse({ route }: BudgetedBody): RouteUse | undefined {
    if (route === undefined) return undefined;
    let use = this.#routes.get(route);
    if (use === undefined) {
      use = { held: 0, largeHeld: 0, largeCount: 0 };
      this.#routes.set(route, use);
    }
    return use;
  }
}

/**
 * Sums up what each client network holds. It runs only when memory is short, and takes less than a tenth of a millisecond for a thousand holders. Sums
 * that are kept up to date would cost each request.
 */
export function sumHeld(holders: Iterable<Holder>): ReadonlyMap<string, number> {
  const sums = new Map<string, number>();
  for (const { network, held } of holders) if (held > 0) sums.set(network, (sums.get(network) ?? 0) + held);
  return sums;
}

/** The client network that holds most; undefined if none holds anything. */
export function findHeaviest(sums: ReadonlyMap<string, number>): string | undefined {
  let heaviest: string | undefined;
  let most = 0;
  for (const [network, held] of sums)
    if (held > most) {
      heaviest = network;
      most = held;
    }
  return heaviest;
}

/**
 * Picks what to end to free `bytes`: the oldest of the client network that holds most, so that one client does not use up the memory of
 * others. If that frees less than `needed`, those of the next ones, too, in the order of what their sites hold: one client can have many networks.
 * Those that began after `latest` are kept.
 */
export function pickVictims<H extends Holder>(holders: readonly H[], bytes: number, latest: Milliseconds, needed = 0): H[] {
  const sums = sumHeld(holders);
  const heaviest = findHeaviest(sums);
  const old = holders.filter(({ held, startedAt }) => held > 0 && startedAt <= latest);
  const victims: H[] = [];
  let freed = 0;
  const pick = (candidates: readonly H[], enough: number): void => {
    for (const holder of candidates) {
      if (freed >= enough) return;
      victims.push(holder);
      freed += holder.held;
    }
  };
  const own = old.filter(({ network }) => network === heaviest);
  pick(own.sort(byAge), bytes);
  if (freed >= needed) return victims;
  const sites = new Counts();
  for (const [network, held] of sums) sites.add(toSite(network), held);
  const heldAround = new Map([...sums.keys()].map((network) => [network, sites.of(toSite(network))]));
  const toHeld = ({ network }: H): number => heldAround.get(network) ?? 0;
  const others = old.filter(({ network }) => network !== heaviest);
  pick(
    others.sort((a, b) => toHeld(b) - toHeld(a) || byAge(a, b)),
    needed,
  );
  return victims;
}

function byAge(a: Holder, b: Holder): number {
  return a.startedAt - b.startedAt;
}
