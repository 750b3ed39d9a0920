/** Refuses work before the container's memory limit is reached: the kernel would end the process, and every request with it. */
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';

/** What those who take memory ask. */
export interface MemoryPressure {
  /** Large bodies are refused. */
  readonly isTight: boolean;
  /** Nothing new is taken. */
  readonly isFull: boolean;
  /** Counts bytes that were received, so that a flood is measured more often than once a second. */
  onBytes(bytes: number): void;
}

/** What the guard is given. */
export interface MemoryGuardParts {
  readonly clock: Clock;
  /** Bytes that the process may use; undefined: no limit is known, and nothing is refused. */
  readonly limit: number | undefined;
  /** The share of the limit from which on large bodies are refused; new requests are from halfway between it and the limit. */
  readonly shed: number;
  /** Bytes that cannot be given up: the process's own memory and what the kernel holds for it. */
  readonly read: () => number;
  /** Collects garbage now. */
  readonly collect: () => void;
}

const CHECK_INTERVAL_MS: Milliseconds = 1_000;
/** A measurement costs some ten microseconds. */
const CHECK_BYTES = 1024 * 1024;
/** How far below `shed` garbage is collected: buffers outside the heap do not make V8 collect soon enough. */
const COLLECT_MARGIN = 0.12;
const MIN_COLLECT_INTERVAL_MS: Milliseconds = 100;
const TIGHT_COLLECT_INTERVAL_MS: Milliseconds = 500;
const MAX_COLLECT_INTERVAL_MS: Milliseconds = 5_000;
/** A collection that freed less than this share of the limit was in vain, and the next one waits twice as long. */
const WORTHWHILE = 0.03;

/** Measures the process once a second, and for each mebibyte that comes in. */
export class MemoryGuard implements MemoryPressure {
  readonly #parts: MemoryGuardParts;
  readonly #stop: CancelTimer;
  #used = 0;
  #bytes = 0;
  #collectedAt: Milliseconds = Number.NEGATIVE_INFINITY;
  #collectInterval = MIN_COLLECT_INTERVAL_MS;
  /** Frees what can be freed; called while memory is tight. */
  onTight: () => void = () => undefined;

  constructor(parts: MemoryGuardParts) {
    this.#parts = parts;
    this.#stop = parts.limit === undefined ? () => undefined : parts.clock.every(CHECK_INTERVAL_MS, () => this.#check());
  }

  /** Bytes that were in use when it was measured last. */
  get used(): number {
    return this.#used;
  }

  get isTight(): boolean {
    const { limit, shed } = this.#parts;
    return limit !== undefined && this.#used > limit * shed;
  }

  get isFull(): boolean {
    const { limit, shed } = this.#parts;
    return limit !== undefined && this.#used > (limit * (1 + shed)) / 2;
  }

  onBytes(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes >= CHECK_BYTES && this.#parts.limit !== undefined) this.#check();
  }

  close(): void {
    this.#stop();
  }

  #check(): void {
    const { limit = 0, shed, read } = this.#parts;
    this.#bytes = 0;
    this.#used = read();
    if (this.#used > limit * (shed - COLLECT_MARGIN)) this.#collect(limit);
    if (this.isTight) this.onTight();
  }

  #collect(limit: number): void {
    const { clock, collect, read } = this.#parts;
    // Before anything is refused for garbage, it is collected, however little the last time freed.
    const interval = this.isTight ? Math.min(TIGHT_COLLECT_INTERVAL_MS, this.#collectInterval) : this.#collectInterval;
    if (clock.monotonic() - this.#collectedAt < interval) return;
    const before = this.#used;
    collect();
    this.#used = read();
    this.#collectedAt = clock.monotonic();
    const isWorthwhile = before - this.#used > limit * WORTHWHILE;
    this.#collectInterval = isWorthwhile ? MIN_COLLECT_INTERVAL_MS : Math.min(this.#collectInterval * 2, MAX_COLLECT_INTERVAL_MS);
  }
}

/** For ports without a limit. */
export const NO_PRESSURE: MemoryPressure = { isTight: false, isFull: false, onBytes: () => undefined };
