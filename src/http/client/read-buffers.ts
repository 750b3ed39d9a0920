/** The read buffers of connections: one shared buffer for short responses, and lent buffers for streamed bodies. */
import type { OnReadOpts } from 'node:net';
import { guardCallback, guardDecision } from '../../core/safe-events.ts';

const READ_BYTES = 65_536;
/** Smaller chunks are copied, because a lent buffer is held as a whole until its chunk is written. */
const MIN_LENT_BYTES = READ_BYTES / 2;
/** The maximum number of returned buffers that are kept for reuse. */
const MAX_FREE_BUFFERS = 16;
/** Makes a read fail, which closes the socket. */
const EMPTY = Buffer.alloc(0);

/** Ends the loan of a buffer; the callback of a write, which Node never calls for a socket that is being destroyed: nothing else may refer to the buffer. After an error, a broken connection may still use the memory, so it is not reused. */
export type ReleaseBuffer = (error?: Error | null) => void;

/** The buffers of all connections of a client. */
export class ReadBuffers {
  /** Overwritten by the next read of any connection. */
  readonly shared = Buffer.allocUnsafeSlow(READ_BYTES);
  readonly #free: Buffer[] = [];

  take(): Buffer {
    return this.#free.pop() ?? Buffer.allocUnsafeSlow(READ_BYTES);
  }

  keep(buffer: Buffer): void {
    if (this.#free.length < MAX_FREE_BUFFERS) this.#free.push(buffer);
  }

  lend(buffer: Buffer): ReleaseBuffer {
    let isLent = true;
    return guardCallback((error?: Error | null) => {
      if (isLent && (error === undefined || error === null)) this.keep(buffer);
      isLent = false;
    });
  }
}

/**
 * The read buffer of one connection. A large chunk is passed on in the buffer that it was read into, and the next read gets another
 * one: copying took more than a third of a download's CPU, mostly to allocate and free memory (ADR 23).
 */
export class ConnectionReader {
  readonly #buffers: ReadBuffers;
  #current: Buffer;
  #isStreaming = false;
  #isLent = false;

  constructor(buffers: ReadBuffers) {
    this.#buffers = buffers;
    this.#current = buffers.shared;
  }

  /** The `onread` option of the socket. `take` returns whether it needs more. */
  toOnRead(take: (bytes: Buffer) => boolean): OnReadOpts {
    return {
      buffer: guardDecision(() => this.next(), EMPTY),
      callback: guardDecision((length: number, buffer: Uint8Array) => take((buffer as Buffer).subarray(0, length)), false),
    };
  }

  /** The buffer for the next read. */
  next(): Buffer {
    if (!this.#isStreaming) this.#current = this.#buffers.shared;
    else if (this.#isLent || this.#current === this.#buffers.shared) this.#current = this.#buffers.take();
    this.#isLent = false;
    return this.#current;
  }

  /** Lends the current buffer together with a chunk of the last read; undefined if the chunk must be copied instead. */
  lend(piece: Buffer): ReleaseBuffer | undefined {
    if (piece.length < MIN_LENT_BYTES) return undefined;
    this.#isStreaming = true;
    if (this.#isLent || this.#current === this.#buffers.shared) return undefined;
    this.#isLent = true;
    return this.#buffers.lend(this.#current);
  }

  /** The response is complete. The next one is assumed to be short. */
  endResponse(): void {
    if (this.#isStreaming && !this.#isLent && this.#current !== this.#buffers.shared) this.#buffers.keep(this.#current);
    this.#isStreaming = false;
    this.#isLent = true;
  }
}
