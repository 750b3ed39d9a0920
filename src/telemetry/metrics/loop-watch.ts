/** Sees whether the event loop still gets round: a gate whose every turn is late for long serves nobody, though it may yet answer. */
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';

const BEAT_MS: Milliseconds = 1_000;
/** Above what a full garbage collection, or a processor that is shared, costs now and then. */
const LATE_MS: Milliseconds = 1_000;
/** One long pause is no reason to restart, nor are several: the machine slept, or is busy, and a restart would only add to it. */
const STUCK_AFTER_MS: Milliseconds = 30_000;

/** Beats once a second, and knows how late the beats are. */
export class LoopWatch {
  readonly #clock: Clock;
  readonly #stop: CancelTimer;
  #lastBeat: Milliseconds;
  /** Since when each beat has been late. */
  #lateSince: Milliseconds | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#lastBeat = clock.monotonic();
    this.#stop = clock.every(BEAT_MS, () => this.#beat());
  }

  /** For how long the loop has not got round in time, where that is so long that only a restart helps; else undefined. */
  get stuckFor(): Milliseconds | undefined {
    const late = this.#lateSince === undefined ? 0 : this.#clock.monotonic() - this.#lateSince;
    return late < STUCK_AFTER_MS ? undefined : late;
  }

  close(): void {
    this.#stop();
  }

  #beat(): void {
    const now = this.#clock.monotonic();
    const isLate = now - this.#lastBeat - BEAT_MS > LATE_MS;
    // A pause counts from its end: it is over, and what comes next shows whether it was the only one.
    this.#lateSince = isLate ? (this.#lateSince ?? now) : undefined;
    this.#lastBeat = now;
  }
}
