/** The simulator's clock: it stands still while the gate works, and advances to the next timer while the gate waits. */
import { type CancelTimer, type Clock, type EpochMilliseconds, type Milliseconds, systemClock } from '../../core/clock.ts';
import { runNextTurn } from '../../core/safe-events.ts';

interface Timer {
  at: Milliseconds;
  readonly interval: Milliseconds | undefined;
  readonly action: () => void;
}

/** Turns of the event loop after which all pending work is done. */
const TURNS = 20;
/** In real time; hashing a password is the slowest work. */
const MAX_WORK_MS: Milliseconds = 30_000;

/** Advances only on request, or when the gate waits for a timer. */
export class SimulatedClock implements Clock {
  readonly #startedAt: EpochMilliseconds;
  #monotonic: Milliseconds = 0;
  readonly #timers = new Set<Timer>();

  constructor(startedAt: EpochMilliseconds) {
    this.#startedAt = startedAt;
  }

  now(): EpochMilliseconds {
    return this.#startedAt + this.#monotonic;
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

  /** Advances to `elapsed` since the start and runs all timers that become due; an earlier time has no effect. */
  async goTo(elapsed: Milliseconds): Promise<void> {
    for (let next = this.#next(elapsed); next !== undefined; next = this.#next(elapsed)) {
      this.#run(next, elapsed);
      await settle();
    }
    this.#monotonic = Math.max(this.#monotonic, elapsed);
  }

  /** Waits for `work`; if it waits for a timer, advances to that timer. */
  async runUntil<T>(work: Promise<T>): Promise<T> {
    let isDone = false;
    const done = work.finally(() => {
      isDone = true;
    });
    done.catch(() => undefined);
    const startedAt = systemClock.monotonic();
    while (!isDone) {
      await settle();
      // Requests do not wait for periodic timers.
      const next = isDone ? undefined : this.#next(Number.POSITIVE_INFINITY, false);
      if (next !== undefined) await this.goTo(next.at);
      else if (systemClock.monotonic() - startedAt > MAX_WORK_MS) throw new Error('sidegate did not decide in time');
    }
    return done;
  }

  #add(timer: Timer): CancelTimer {
    this.#timers.add(timer);
    return () => {
      this.#timers.delete(timer);
    };
  }

  #next(until: Milliseconds, withPeriodic = true): Timer | undefined {
    let next: Timer | undefined;
    for (const timer of this.#timers) {
      if (timer.at > until || (timer.interval !== undefined && !withPeriodic)) continue;
      if (next === undefined || timer.at < next.at) next = timer;
    }
    return next;
  }

  /** Runs a periodic timer only once per advance: three days have a quarter of a million seconds. */
  #run(timer: Timer, until: Milliseconds): void {
    this.#monotonic = Math.max(this.#monotonic, timer.at);
    if (timer.interval === undefined) this.#timers.delete(timer);
    else timer.at = until + timer.interval;
    timer.action();
  }
}

/** Lets all pending work run. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < TURNS; turn++) await new Promise<void>(runNextTurn);
}
