/** The bounds that hold for all requests together: bytes buffered, pace of bodies, heap. */
import { getHeapStatistics } from 'node:v8';
import type { CancelTimer, Clock, Milliseconds } from '../core/clock.ts';
import type { Reason } from '../core/refusal.ts';

/** Which limit was hit; a closed set, used as a metric label. */
export type ListenLimit =
  | 'head_timeout'
  | 'body_idle'
  | 'body_rate'
  | 'body_total'
  | 'body_size'
  | 'header_bytes'
  | 'header_fields'
  | 'target'
  | 'connections'
  | 'buffer'
  | 'heap';

/** The limits on bodies while they come in. */
export interface BodyLimits {
  readonly bodyIdleTimeout: Milliseconds;
  /** Bytes per second, judged once `bodyIdleTimeout` has passed, so that honest slow starts live. */
  readonly bodyMinRate: number;
  readonly bodyTimeout: Milliseconds;
  readonly maxBufferedBytes: number;
}

/** A body under way, as the sweep sees it. */
export interface BodyInProgress {
  readonly startedAt: Milliseconds;
  lastByteAt: Milliseconds;
  received: number;
  /** Its end is bounded too, not its pace alone. */
  readonly hasCeiling: boolean;
  /** Whoever takes it asked for a pause: that it does not come is not the sender's doing. */
  readonly isPaused: boolean;
  /** Ends the read. */
  fail(reason: Reason): void;
}

/** Told about each limit that was hit. */
export type OnLimit = (limit: ListenLimit) => void;

const SWEEP_INTERVAL_MS = 1_000;

/** Watches every body under way once a second: one timer for all, so the hot path sets none. */
export class BodyWatch {
  readonly #limits: BodyLimits;
  readonly #clock: Clock;
  readonly #onLimit: OnLimit;
  readonly #bodies = new Set<BodyInProgress>();
  readonly #stop: CancelTimer;
  #buffered = 0;

  constructor(limits: BodyLimits, clock: Clock, onLimit: OnLimit) {
    this.#limits = limits;
    this.#clock = clock;
    this.#onLimit = onLimit;
    this.#stop = clock.every(SWEEP_INTERVAL_MS, () => this.#sweep());
  }

  add(body: BodyInProgress): void {
    this.#bodies.add(body);
  }

  remove(body: BodyInProgress): void {
    this.#bodies.delete(body);
  }

  /** Takes `bytes` of the common budget; false when it is spent. */
  reserve(bytes: number): boolean {
    if (this.#buffered + bytes > this.#limits.maxBufferedBytes) {
      this.#onLimit('buffer');
      return false;
    }
    this.#buffered += bytes;
    return true;
  }

  /** Gives `bytes` back. */
  free(bytes: number): void {
    this.#buffered -= bytes;
  }

  /** Bytes of content held now. */
  get buffered(): number {
    return this.#buffered;
  }

  now(): Milliseconds {
    return this.#clock.monotonic();
  }

  close(): void {
    this.#stop();
  }

  #sweep(): void {
    const now = this.#clock.monotonic();
    for (const body of this.#bodies) {
      const limit = this.#findBroken(body, now);
      if (limit === undefined) continue;
      this.#bodies.delete(body);
      this.#onLimit(limit);
      body.fail('body_timeout');
    }
  }

  #findBroken(body: BodyInProgress, now: Milliseconds): ListenLimit | undefined {
    if (body.isPaused) return undefined;
    const age = now - body.startedAt;
    if (now - body.lastByteAt > this.#limits.bodyIdleTimeout) return 'body_idle';
    if (body.hasCeiling && age > this.#limits.bodyTimeout) return 'body_total';
    if (age > this.#limits.bodyIdleTimeout && body.received < (age / 1000) * this.#limits.bodyMinRate) return 'body_rate';
    return undefined;
  }
}

/** Says whether the heap is too full to take on more; measured once a second. */
export class HeapGuard {
  readonly #stop: CancelTimer;
  #isFull = false;

  constructor(shedShare: number, clock: Clock) {
    this.#stop = clock.every(SWEEP_INTERVAL_MS, () => {
      const heap = getHeapStatistics();
      this.#isFull = heap.used_heap_size > heap.heap_size_limit * shedShare;
    });
  }

  get isFull(): boolean {
    return this.#isFull;
  }

  close(): void {
    this.#stop();
  }
}
