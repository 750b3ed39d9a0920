/** Limits the HTTP/2 streams of one client that are rejected, or that it gives up. */
import type { Clock, Milliseconds } from '../../core/clock.ts';

/** So many streams a client may have rejected at once, and per second after that. A stream costs a quarter to a half of a millisecond. */
const BURST = 1_000;
const PER_SECOND = 500;
/** A stream costs as much as so many header fields or trailers. */
const FIELDS_PER_STREAM = 100;
const MAX_CLIENTS = 1_024;

interface RejectionBudget {
  /** Streams that may still be rejected. */
  left: number;
  at: Milliseconds;
}

/**
 * A connection can open 100 streams with one small packet, as compression makes hundreds of fields a byte each, and all connections of a
 * client together thousands. In HTTP/1.1 each connection has one request at a time, so the limit on connections is enough.
 */
export class RejectedStreams {
  readonly #clock: Clock;
  /** The one that was used longest ago is first. */
  readonly #budgets = new Map<string, RejectionBudget>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether the client has used up its budget. */
  isSpent(client: string): boolean {
    const budget = this.#budgets.get(client);
    return budget !== undefined && this.#toLeft(budget) < 1;
  }

  /** Counts a rejected stream with its fields, or fields alone. Returns false if the client has used up its budget. */
  take(client: string, streams: number, fields: number): boolean {
    const before = this.#budgets.get(client);
    const left = (before === undefined ? BURST : this.#toLeft(before)) - streams - fields / FIELDS_PER_STREAM;
    this.#budgets.delete(client);
    this.#budgets.set(client, { left: Math.max(0, left), at: this.#clock.monotonic() });
    if (this.#budgets.size > MAX_CLIENTS) this.#forgetFirst();
    return left >= 0;
  }

  #toLeft({ left, at }: RejectionBudget): number {
    return Math.min(BURST, left + ((this.#clock.monotonic() - at) / 1_000) * PER_SECOND);
  }

  /** Its budget is most likely full again. */
  #forgetFirst(): void {
    for (const client of this.#budgets.keys()) {
      this.#budgets.delete(client);
      return;
    }
  }
}

/** A stream that counts once it is rejected or given up. */
export class CountedStream {
  readonly #count: (streams: number, fields: number) => void;
  #fields: number;
  #isRejected = false;

  constructor(fields: number, count: (streams: number, fields: number) => void) {
    this.#fields = fields;
    this.#count = count;
  }

  /** Trailers arrived; they reach no app. */
  addFields(fields: number): void {
    if (this.#isRejected) this.#count(0, fields);
    else this.#fields += fields;
  }

  /** Counts the stream, the first time that it is called. */
  reject(): void {
    if (this.#isRejected) return;
    this.#isRejected = true;
    this.#count(1, this.#fields);
  }
}
