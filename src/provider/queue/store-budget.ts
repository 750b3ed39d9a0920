/**
 * Bounds what operations of the store hold in memory at once. Each is counted before it is sent, with all that it makes of what it gets, and with
 * the bodies of its result: a request of some bytes can create thousands of deliveries, or read an event of any size.
 */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import { WaitLine } from '../../core/throttle.ts';

const MAX_WAIT_MS: Milliseconds = 5_000;

/** Whether an operation had to wait too long for others: back pressure, no outage. */
export function isQueueBusy(thrown: unknown): boolean {
  return thrown instanceof SidegateError && thrown.code === 'queue_busy';
}

export class StoreBudget {
  readonly #line: WaitLine<number, true>;
  readonly #most: number;
  #used = 0;

  /** An operation that costs more than `most` runs alone. */
  constructor(most: number, clock: Clock) {
    this.#most = most;
    this.#line = new WaitLine(clock);
  }

  /** Runs an operation once there is room for it; groups that wait take turns. `onWait`: not at once. Rejects with a SidegateError `queue_busy` if that takes too long. */
  async run<T>(cost: number, operation: () => Promise<T>, group: string | undefined, onWait?: () => void): Promise<T> {
    if (this.#line.length > 0 || !this.#take(cost)) {
      onWait?.();
      if ((await this.#line.join(cost, group, MAX_WAIT_MS).granted) === undefined)
        throw new SidegateError('system', 'queue_busy', 'too many operations wait for the store of the queue');
    }
    try {
      return await operation();
    } finally {
      this.#used -= cost;
      for (let { first } = this.#line; first !== undefined && this.#take(first.request); { first } = this.#line) first.end(true);
    }
  }

  #take(cost: number): boolean {
    if (this.#used > 0 && this.#used + cost > this.#most) return false;
    this.#used += cost;
    return true;
  }
}
