/** Bounds the bytes of the deliveries that lanes hold, over all lanes: a lane reserves memory before it takes deliveries. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { type Waiting, WaitLine } from '../../core/wait-line.ts';

export class MemoryBudget {
  readonly #line: WaitLine<number, number>;
  readonly #bytes: number;
  #unit: number;
  #free: number;
  /** Reservations, in deliveries. */
  #reserved = 0;

  /** `largest`: of one delivery. Its size is known only after it was taken; until then it counts as this. */
  constructor(bytes: number, largest: number, clock: Clock) {
    this.#bytes = bytes;
    this.#unit = largest;
    this.#free = Math.max(bytes, largest);
    this.#line = new WaitLine(clock);
  }

  /** Bytes that can be reserved; negative if deliveries were larger than expected. */
  get free(): number {
    return this.#free;
  }

  get waiting(): number {
    return this.#line.length;
  }

  /** Changes the size of the largest delivery, also of what is reserved. */
  setLargest(largest: number): void {
    const capacity = Math.max(this.#bytes, largest) - Math.max(this.#bytes, this.#unit);
    const reserved = this.#reserved * (largest - this.#unit);
    this.#unit = largest;
    this.release(capacity - reserved);
  }

  /** Reserves memory for up to `most` deliveries. Returns for how many; 0: the caller has to wait. */
  reserve(most: number): number {
    return this.#line.length > 0 ? 0 : this.#reserveNow(most);
  }

  wait(most: number, tenant: string | undefined, atMost?: Milliseconds): Waiting<number> {
    return this.#line.join(most, tenant, atMost);
  }

  /** Replaces a reservation by the size of what was taken. */
  settle(reserved: number, bytes: number): void {
    this.#reserved -= reserved;
    this.release(reserved * this.#unit - bytes);
  }

  release(bytes: number): void {
    this.#free += bytes;
    for (let place = this.#line.first; place !== undefined; place = this.#line.first) {
      const reserved = this.#reserveNow(place.request);
      if (reserved === 0) return;
      place.end(reserved);
    }
  }

  #reserveNow(most: number): number {
    const reserved = Math.max(0, Math.min(most, Math.floor(this.#free / this.#unit)));
    this.#free -= reserved * this.#unit;
    this.#reserved += reserved;
    return reserved;
  }
}
