/** Bounds how slowly a client may read what it is sent: a response, or the bytes of an upgraded connection or a tunnel. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { type BlockedWriter, pauseUntilDrained, type ReadPause } from '../../core/read-pause.ts';

/** The minimum rate at which a client must read. */
export interface ReadLimits {
  /** The maximum time without any progress. */
  readonly sendTimeout: Milliseconds;
  /** Bytes per second, enforced once `enforcedAfter` was spent on waiting for the client. */
  readonly minRate: number;
  readonly enforcedAfter: Milliseconds;
  /** A client was disconnected because of one of them. */
  readonly onStall: () => void;
}

/** The reads of one client. */
export class ClientReads {
  readonly #limits: ReadLimits;
  readonly #clock: Clock;
  #sentBytes = 0;
  /** How long its writer has waited for the client so far. */
  #waited: Milliseconds = 0;
  #pause: ReadPause | undefined;

  constructor(limits: ReadLimits, clock: Clock) {
    this.#limits = limits;
    this.#clock = clock;
  }

  /** The current pause; undefined while the client reads. */
  get pause(): ReadPause | undefined {
    return this.#pause;
  }

  onSent(bytes: number): void {
    this.#sentBytes += bytes;
  }

  /** Pauses until the client takes more. A client that takes nothing for too long, or too little, is disconnected. */
  waitFor(client: BlockedWriter): ReadPause {
    // Chunks that were already read still arrive.
    if (this.#pause !== undefined) return this.#pause;
    const since = this.#clock.monotonic();
    const disconnect = (): void => {
      this.#limits.onStall();
      client.destroy();
    };
    const pause = pauseUntilDrained(client, this.#clock, this.#limits.sendTimeout, disconnect);
    this.#pause = pause;
    pause.onOver(() => {
      this.#pause = undefined;
      this.#waited += this.#clock.monotonic() - since;
      if (this.#isTooSlow()) disconnect();
    });
    return pause;
  }

  /** A client that reads a few bytes at a time could otherwise hold its slot indefinitely. */
  #isTooSlow(): boolean {
    const { minRate, enforcedAfter } = this.#limits;
    return this.#waited > enforcedAfter && this.#sentBytes < (this.#waited / 1_000) * minRate;
  }
}
