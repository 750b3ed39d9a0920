/** The simulator's clock: it stops while the gate works, and jumps ahead while the gate waits. */
import { type CancelTimer, type Clock, type EpochMilliseconds, type Milliseconds, systemClock } from '../../core/clock.ts';
import { runNextTurn } from '../../core/safe-events.ts';

interface Timer {
  at: Milliseconds;
  readonly interval: Milliseconds | undefined;
  readonly action: () => void;
}

/** Turns of the event loop in which whatever can go on goes on. */
const TURNS = 20;
/** In real time; a password is the slowest thing that a request can ask for. */
const LONGEST_WORK_MS: Milliseconds = 30_000;

/** Starts at an instant, and goes on only when it is told to, or when nothing else could. */
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

  /** Goes on to `elapsed` since the start, through all that becomes due before; an earlier time changes nothing. */
  async goTo(elapsed: Milliseconds): Promise<void> {
    for (let next = this.#next(elapsed); next !== undefined; next = this.#next(elapsed)) {
      this.#run(next, elapsed);
      await settle();
    }
    this.#monotonic = Math.max(this.#monotonic, elapsed);
  }

  /** Waits for `work`; where it waits for a timer itself, that one is due at once. */
  async runUntil<T>(work: Promise<T>): Promise<T> {
    let isDone = false;
    const done = work.finally(() => {
      isDone = true;
    });
    done.catch(() => undefined);
    const startedAt = systemClock.monotonic();
    while (!isDone) {
      await settle();
      // Upkeep is nothing that a request waits for.
      const next = isDone ? undefined : this.#next(Number.POSITIVE_INFINITY, false);
      if (next !== undefined) await this.goTo(next.at);
      else if (systemClock.monotonic() - startedAt > LONGEST_WORK_MS) throw new Error('the gate came to no verdict');
    }
    return done;
  }

  #add(timer: Timer): CancelTimer {
    this.#timers.add(timer);
    return () => {
      this.#timers.delete(timer);
    };
  }

  #next(until: Milliseconds, withUpkeep = true): Timer | undefined {
    let next: Timer | undefined;
    for (const timer of this.#timers) {
      if (timer.at > until || (timer.interval !== undefined && !withUpkeep)) continue;
      if (next === undefined || timer.at < next.at) next = timer;
    }
    return next;
  }

  /** What is done again and again is done once for the whole leap: three days have a quarter of a million seconds. */
  #run(timer: Timer, until: Milliseconds): void {
    this.#monotonic = Math.max(this.#monotonic, timer.at);
    if (timer.interval === undefined) this.#timers.delete(timer);
    else timer.at = until + timer.interval;
    timer.action();
  }
}

/** Lets everything that is ready run. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < TURNS; turn++) await new Promise<void>(runNextTurn);
}
