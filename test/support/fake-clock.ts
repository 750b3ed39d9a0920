/** A clock that stands still until it is told to move, for tests of what time does. */
import type { CancelTimer, Clock, Milliseconds } from '../../src/core/clock.ts';

interface Timer {
  at: Milliseconds;
  readonly interval: Milliseconds | undefined;
  readonly action: () => void;
}

/** Runs due timers in order, and lets promises settle in between. */
export class FakeClock implements Clock {
  #now: number;
  #monotonic = 0;
  readonly #timers = new Set<Timer>();

  constructor(now = 1_800_000_000_000) {
    this.#now = now;
  }

  now(): number {
    return this.#now;
  }

  monotonic(): Milliseconds {
    return this.#monotonic;
  }

  after(delay: Milliseconds, action: () => void): CancelTimer {
    return this.#add({ at: this.#monotonic + delay, interval: undefined, action });
  }

  every(interval: Milliseconds, action: () => void): CancelTimer {
    return this.#add({ at: this.#monotonic + interval, interval, action });
  }

  /** How many timers are set. */
  get timers(): number {
    return this.#timers.size;
  }

  /** Moves on by `duration`, running what becomes due on the way. */
  async advance(duration: Milliseconds): Promise<void> {
    const end = this.#monotonic + duration;
    for (;;) {
      const next = [...this.#timers].filter(({ at }) => at <= end).sort((a, b) => a.at - b.at)[0];
      if (next === undefined) break;
      this.#moveTo(next.at);
      if (next.interval === undefined) this.#timers.delete(next);
      else next.at += next.interval;
      next.action();
      await settle();
    }
    this.#moveTo(end);
    await settle();
  }

  /** Sets the wall clock. */
  step(by: Milliseconds): void {
    this.#now += by;
  }

  /** Moves on while code runs, as if it took `duration`: nothing else runs meanwhile. */
  pass(duration: Milliseconds): void {
    this.#moveTo(this.#monotonic + duration);
  }

  #add(timer: Timer): CancelTimer {
    this.#timers.add(timer);
    return () => {
      this.#timers.delete(timer);
    };
  }

  #moveTo(at: Milliseconds): void {
    this.#now += at - this.#monotonic;
    this.#monotonic = at;
  }
}

/** Lets everything that is ready run. */
export async function settle(): Promise<void> {
  for (let i = 0; i < 10; i++) await new Promise((resolve) => setImmediate(resolve));
}
