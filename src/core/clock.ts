/** The only place that reads time; everything else is handed a Clock, so tests never sleep. */
import { runTimer } from './safe-events.ts';

/** A length of time in milliseconds. */
export type Milliseconds = number;
/** A point in time in milliseconds since 1970-01-01T00:00:00Z. */
export type EpochMilliseconds = number;

/** Cancels a timer; calling it twice, or after the timer fired, does nothing. */
export type CancelTimer = () => void;

/** Time as the rest of the code sees it. */
export interface Clock {
  /** Wall-clock time; may jump. For comparing with timestamps that others wrote. */
  now(): EpochMilliseconds;
  /** Time that never goes back, with a fraction. For durations. */
  monotonic(): Milliseconds;
  /** Runs `action` once after `delay`; does not keep the process alive. */
  after(delay: Milliseconds, action: () => void): CancelTimer;
  /** Runs `action` every `interval`; does not keep the process alive. */
  every(interval: Milliseconds, action: () => void): CancelTimer;
}

/** RFC 3339, in UTC with milliseconds. */
export function toInstant(at: EpochMilliseconds): string {
  return new Date(at).toISOString();
}

/** The machine's own clock. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(delay, action) {
    const timer = setTimeout(runTimer, delay, action);
    timer.unref();
    return () => clearTimeout(timer);
  },
  every(interval, action) {
    const timer = setInterval(runTimer, interval, action);
    timer.unref();
    return () => clearInterval(timer);
  },
};

const MAX_TIMER_MS: Milliseconds = 2_147_483_647;

/** Keeps the process alive until it is cancelled: for a command that neither listens nor reads, as timers alone do not. */
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

/** Waits for `work`, but no longer than `atMost`; false where that was not enough. */
export async function within(clock: Clock, atMost: Milliseconds, work: Promise<unknown>): Promise<boolean> {
  let cancel = (): void => undefined;
  const late = new Promise<false>((resolve) => {
    cancel = clock.after(atMost, () => resolve(false));
  });
  const isDone = await Promise.race([work.then(() => true as const), late]);
  cancel();
  return isDone;
}
