/** Notices that the wall clock was set ahead: what is then irreversible has to wait until it is certain that the new time is right. */
import type { Clock, Milliseconds } from './clock.ts';

/** Slewing and small corrections are less. */
const MAX_CORRECTION_MS: Milliseconds = 60_000;
/** A wrong time that lasts longer is taken for the right one. */
const DOUBT_MS: Milliseconds = 3_600_000;

export class ClockSteps {
  readonly #clock: Clock;
  /** Wall-clock time minus monotonic time, as it was when nothing was in doubt. */
  #offset: Milliseconds;
  #doubtedSince: Milliseconds | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#offset = clock.now() - clock.monotonic();
  }

  /** The clock is another one from now on. */
  restart(): void {
    this.#offset = this.#clock.now() - this.#clock.monotonic();
    this.#doubtedSince = undefined;
  }

  /** Whether the clock was set ahead in the last hour, and not back again. */
  isAhead(): boolean {
    const monotonic = this.#clock.monotonic();
    const offset = this.#clock.now() - monotonic;
    if (offset > this.#offset + MAX_CORRECTION_MS) {
      this.#doubtedSince ??= monotonic;
      if (monotonic - this.#doubtedSince < DOUBT_MS) return true;
    }
    this.#offset = offset;
    this.#doubtedSince = undefined;
    return false;
  }
}
