/** Detects a blocked event loop: a process whose timers are late for long cannot serve, even if it still responds now and then. */
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';

const CHECK_INTERVAL_MS: Milliseconds = 1_000;
/** Longer than an occasional full garbage collection or CPU throttling. */
const LATE_MS: Milliseconds = 1_000;
/** A few long pauses do not justify a restart: the machine was suspended or is busy, and a restart would add load. */
export const STUCK_AFTER_MS: Milliseconds = 30_000;

/** Runs a timer every second and measures how late it fires. */
export class EventLoopMonitor {
  readonly #clock: Clock;
  readonly #stop: CancelTimer;
  #lastCheck: Milliseconds;
  /** Since when every check has been late. */
  #lateSince: Milliseconds | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#lastCheck = clock.monotonic();
    this.#stop = clock.every(CHECK_INTERVAL_MS, () => this.#check());
  }

  /** How long the event loop has been late, if so long that only a restart helps; otherwise undefined. */
  get stuckFor(): Milliseconds | undefined {
    const late = this.#lateSince === undefined ? 0 : this.#clock.monotonic() - this.#lateSince;
    return late < STUCK_AFTER_MS ? undefined : late;
  }

  close(): void {
    this.#stop();
  }

  #check(): void {
    const now = this.#clock.monotonic();
    const isLate = now - this.#lastCheck - CHECK_INTERVAL_MS > LATE_MS;
    // A pause counts from its end: the following checks show whether it was the only one.
    this.#lateSince = isLate ? (this.#lateSince ?? now) : undefined;
    this.#lastCheck = now;
  }
}
