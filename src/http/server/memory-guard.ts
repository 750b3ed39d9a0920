/** Rejects work before the container reaches its memory limit: the kernel would kill the process, with all its requests. */
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';

/** The memory state that code checks before it allocates. */
export interface MemoryPressure {
  /** The bytes that the process may use; undefined: the limit is unknown. */
  readonly limit: number | undefined;
  /** The workers that share the limit; each has a part of what the connections may hold. */
  readonly workers: number;
  /** Large bodies are rejected. */
  readonly isTight: boolean;
  /** Objects in use fill nearly as much of the heap as they may: idle connections are closed. */
  readonly isHeapTight: boolean;
  /** The exhausted resource, if any: everything new is rejected. */
  readonly shortage: 'heap' | 'memory' | undefined;
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
    /** The workers of the process. */
    readonly workers: number;
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
    this.#stop = parts.clock.every(CHECK_INTERVAL_MS, () => {
      if (parts.limit !== undefined) this.#check();
      this.#checkHeap();
    });
  }

  get limit(): number | undefined {
    return this.#parts.limit;
  }

  get workers(): number {
    return this.#parts.workers;
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
  isTight: false,
  isHeapTight: false,
  shortage: undefined,
  onBytes: () => undefined,
  onGarbage: () => undefined,
};
