/** Bounds how many requests are with the apps at once; a few more may queue, the rest is told to come again. */
import type { CancelTimer, Clock, Milliseconds } from '../core/clock.ts';

/** How the wait for a place ended. */
export type CapacityResult = 'entered' | 'queue_full' | 'queue_timeout' | 'closed';

/** Bounds of the house. */
export interface CapacityLimits {
  readonly maxInFlight: number;
  readonly maxQueued: number;
  readonly queueTimeout: Milliseconds;
}

interface Waiting {
  readonly resolve: (result: CapacityResult) => void;
  readonly cancel: CancelTimer;
}

/** Told how both numbers change, for the gauges. */
export interface CapacityEvents {
  onInFlight(delta: 1 | -1): void;
  onQueued(delta: 1 | -1): void;
}

/** Counts places; only verified requests ever ask for one, so strangers cannot use them up. */
export class Capacity {
  readonly #limits: CapacityLimits;
  readonly #clock: Clock;
  readonly #events: CapacityEvents;
  readonly #queue = new Set<Waiting>();
  #inFlight = 0;
  #isClosed = false;

  constructor(limits: CapacityLimits, clock: Clock, events: CapacityEvents) {
    this.#limits = limits;
    this.#clock = clock;
    this.#events = events;
  }

  /** Takes a place now (`entered`), or gives a promise of how the wait ends. Who entered must leave. */
  enter(): CapacityResult | Promise<CapacityResult> {
    if (this.#isClosed) return 'closed';
    if (this.#inFlight < this.#limits.maxInFlight) {
      this.#inFlight++;
      this.#events.onInFlight(1);
      return 'entered';
    }
    if (this.#queue.size >= this.#limits.maxQueued) return 'queue_full';
    return new Promise((resolve) => {
      const waiting: Waiting = {
        resolve,
        cancel: this.#clock.after(this.#limits.queueTimeout, () => this.#unqueue(waiting, 'queue_timeout')),
      };
      this.#queue.add(waiting);
      this.#events.onQueued(1);
    });
  }

  /** Gives the place to whoever waits longest. */
  leave(): void {
    const [next] = this.#queue;
    if (next !== undefined) {
      this.#unqueue(next, 'entered');
      return;
    }
    this.#inFlight--;
    this.#events.onInFlight(-1);
  }

  /** Turns away all who wait, now and later: nothing more goes to the apps. */
  close(): void {
    this.#isClosed = true;
    for (const waiting of this.#queue) this.#unqueue(waiting, 'closed');
  }

  /** How many are inside. */
  get inFlight(): number {
    return this.#inFlight;
  }

  #unqueue(waiting: Waiting, result: CapacityResult): void {
    if (!this.#queue.delete(waiting)) return;
    waiting.cancel();
    this.#events.onQueued(-1);
    waiting.resolve(result);
  }
}
