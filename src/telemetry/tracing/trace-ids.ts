/** Creates trace and span IDs from a pool of random bytes: one call per ID would cost as much as the rest of tracing. */
import { randomFillSync } from 'node:crypto';

const POOL_BYTES = 6_144;
const TRACE_BYTES = 16;
const SPAN_BYTES = 8;
const ONLY_ZEROS = /^0+$/;

/** The pool. */
export class TraceIds {
  readonly #pool = Buffer.alloc(POOL_BYTES);
  readonly #fill: (pool: Buffer) => void;
  #at = POOL_BYTES;

  /** `fill`: the source of the bytes, for tests. */
  constructor(fill: (pool: Buffer) => void = randomFillSync) {
    this.#fill = fill;
  }

  /** 32 lower-case hex digits. */
  trace(): string {
    return this.#take(TRACE_BYTES);
  }

  /** 16 lower-case hex digits. */
  span(): string {
    return this.#take(SPAN_BYTES);
  }

  #take(bytes: number): string {
    for (;;) {
      if (this.#at + bytes > POOL_BYTES) {
        this.#fill(this.#pool);
        this.#at = 0;
      }
      const id = this.#pool.toString('hex', this.#at, this.#at + bytes);
      this.#at += bytes;
      // An ID of all zeros is invalid (W3C Trace Context §3.2.2.3); its probability is 2^-64.
      if (id.charCodeAt(0) !== 0x30 || !ONLY_ZEROS.test(id)) return id;
    }
  }
}
