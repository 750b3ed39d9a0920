/** The only place that reads time. All other code takes a Clock, so that tests never sleep. Also durations, and how times are written. */
import { runTimer } from './safe-events.ts';

/** A length of time in milliseconds. */
export type Milliseconds = number;
/** A point in time in milliseconds since 1970-01-01T00:00:00Z. */
export type EpochMilliseconds = number;

/** Cancels a timer; calling it twice, or after the timer fired, does nothing. */
export type CancelTimer = () => void;

/** Time as the rest of the code sees it. */
export interface Clock {
  /** Wall-clock time, which may jump. Use it to compare with timestamps from other machines. */
  now(): EpochMilliseconds;
  /** Monotonic time with a fraction. Use it for durations. */
  monotonic(): Milliseconds;
  /** Runs `action` once after `delay`; does not keep the process alive. */
  after(delay: Milliseconds, action: () => void): CancelTimer;
  /** Runs `action` every `interval`; does not keep the process alive. */
  every(interval: Milliseconds, action: () => void): CancelTimer;
}

/** The system clock. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(delay, action) {
    if (delay > MAX_TIMER_MS) {
      let cancel = systemClock.after(MAX_TIMER_MS, () => {
        cancel = systemClock.after(delay - MAX_TIMER_MS, action);
      });
      return () => cancel();
    }
    const timer = setTimeout(runTimer, delay, action);
    // A number where the library runs without Node.
    timer.unref?.();
    return () => clearTimeout(timer);
  },
  every(interval, action) {
    const timer = setInterval(runTimer, Math.min(interval, MAX_TIMER_MS), action);
    timer.unref();
    return () => clearInterval(timer);
  },
};

/** The longest delay that the timers of Node support; they fire at once for a longer one. */
export const MAX_TIMER_MS: Milliseconds = 2_147_483_647;

/** Keeps the process alive until it is canceled, for a command without an open socket: timers of a Clock do not. */
export function keepAlive(): CancelTimer {
  const timer = setInterval(() => undefined, MAX_TIMER_MS);
  return () => clearInterval(timer);
}

/** Waits for `delay`. */
export function pause(clock: Clock, delay: Milliseconds): Promise<void> {
  return new Promise((resolve) => {
    clock.after(delay, resolve);
  });
}

/** Waits for `work`, but at most `atMost`. Resolves with false on timeout. */
export async function within(clock: Clock, atMost: Milliseconds, work: Promise<unknown>): Promise<boolean> {
  let cancel = (): void => undefined;
  const late = new Promise<false>((resolve) => {
    cancel = clock.after(atMost, () => resolve(false));
  });
  const isDone = await Promise.race([work.then(() => true as const), late]);
  cancel();
  return isDone;
}

// How times and durations are written.

/** For libraries that take no number. */
export function toDate(at: EpochMilliseconds): Date {
  return new Date(at);
}

/** RFC 3339, in UTC with milliseconds. */
export function toInstant(at: EpochMilliseconds): string {
  return new Date(at).toISOString();
}

/** The same for a time that may be unknown. */
export function toOptionalInstant(at: EpochMilliseconds | undefined): string | undefined {
  return at === undefined ? undefined : toInstant(at);
}

/** An HTTP date (IMF-fixdate, RFC 9110 §5.6.7), in whole seconds. */
export function toHttpDate(at: EpochMilliseconds): string {
  return new Date(at).toUTCString();
}

const DURATION = /^(\d{1,12}(?:\.\d{1,3})?)(ms|s|m|h|d)$/;
/** The units of durations, in milliseconds. */
export const DURATION_UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** A century: a time that far from now can still be counted in milliseconds by every store. */
export const MAX_DURATION: Milliseconds = 36_500 * 86_400_000;

/** Parses a duration such as `15s`, or says what is wrong. */
export function parseDuration(text: string): Milliseconds | { problem: string } {
  const match = DURATION.exec(text);
  if (match === null)
    return { problem: `"${text}" is not a duration; write a number with the unit ms, s, m, h or d, for example 15s` };
  const duration = Math.round(Number(match[1]) * (DURATION_UNITS[match[2] ?? ''] ?? 0));
  return duration <= MAX_DURATION ? duration : { problem: `${text} is too long; write at most 36500d` };
}

/** Slewing and small corrections are less. */
const MAX_CORRECTION_MS: Milliseconds = 60_000;
/** A wrong time that lasts longer is taken for the right one. */
const DOUBT_MS: Milliseconds = 3_600_000;

/** Notices that the wall clock was set ahead: what is then irreversible has to wait until it is certain that the new time is right. */
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
