/** Bounds how slowly a client may read what it is sent: a response, or the bytes of an upgraded connection or a tunnel. */
import type { Milliseconds } from '../../core/clock.ts';
import {
  type BlockedWriter,
  findPause,
  MAX_UNCOUNTED_BYTES,
  type PauseOwner,
  pauseUntilDrained,
  type ReadPause,
} from '../../core/read-pause.ts';

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
  readonly #client: PauseOwner;
  #sentBytes = 0;
  /** How long its writer has waited for the client so far. */
  #waited: Milliseconds = 0;

  constructor(limits: ReadLimits, client: PauseOwner) {
    this.#limits = limits;
    this.#client = client;
  }

  onSent(bytes: number): void {
    this.#sentBytes += bytes;
    this.#client.pauses.onBytes(bytes);
  }

  /** Counts what waits of a response that has ended: its head, for one, may be large. The response closes once it is sent. */
  onEnded(response: BlockedWriter): void {
    if (response.writableLength > MAX_UNCOUNTED_BYTES) this.waitFor(response);
  }

  /** Pauses until the client takes more. A client that takes nothing for too long, or too little, is disconnected. */
  waitFor(writer: BlockedWriter): ReadPause | undefined {
    const current = findPause(writer);
    if (current !== undefined) return current;
    const disconnect = (isEvicted: boolean): void => {
      if (!isEvicted) this.#limits.onStall();
      writer.destroy();
    };
    const pause = pauseUntilDrained(writer, this.#client, this.#limits.sendTimeout, disconnect);
    pause?.onOver(() => {
      this.#waited += this.#client.pauses.clock.monotonic() - pause.startedAt;
      if (this.#isTooSlow()) disconnect(false);
    });
    return pause;
  }

  /** A client that reads a few bytes at a time could otherwise hold its slot indefinitely. */
  #isTooSlow(): boolean {
    const { minRate, enforcedAfter } = this.#limits;
    return this.#waited > enforcedAfter && this.#sentBytes < (this.#waited / 1_000) * minRate;
  }
}
