/** The lease of a lane, and how many lanes run at once. */
import type { Milliseconds } from '../../../core/clock.ts';

/** The lease of one lane; it ends unless it is renewed. */
export class Lease {
  /** BullMQ locked the job with it. */
  readonly token: string;
  readonly #aborting = new AbortController();
  #until: Milliseconds;
  #isLost = false;

  /** `until`: in monotonic time. */
  constructor(token: string, until: Milliseconds) {
    this.token = token;
    this.#until = until;
  }

  /** Aborts when the lease is lost, or the queue stops. */
  get signal(): AbortSignal {
    return this.#aborting.signal;
  }

  get isLost(): boolean {
    return this.#isLost;
  }

  get until(): Milliseconds {
    return this.#until;
  }

  renew(until: Milliseconds): void {
    this.#until = until;
  }

  /** The queue stops: the run ends early, and may still settle. */
  abort(): void {
    this.#aborting.abort();
  }

  /** Another run may have started: this one may not settle. */
  lose(): void {
    this.#isLost = true;
    this.#aborting.abort();
  }
}

/** Limits how many lanes run at once over all shards. */
export class Slots {
  readonly #waiting: (() => void)[] = [];
  #free: number;

  constructor(count: number) {
    this.#free = count;
  }

  async enter(): Promise<void> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  leave(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#free++;
    else next();
  }

  /** Lets all in that wait: they see that the queue stops. */
  open(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
    this.#free = Number.POSITIVE_INFINITY;
  }
}
