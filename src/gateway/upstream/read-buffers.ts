/** What connections to the app read into: one buffer for all while answers are short, and lent ones while content streams. */
import type { OnReadOpts } from 'node:net';
import { guardDecision } from '../../core/safe-events.ts';

const READ_BYTES = 65_536;
/** Less is copied: a lent buffer is held as a whole until its content is written. */
const MIN_LENT_BYTES = READ_BYTES / 2;
/** Lent buffers that came back and wait for their next use. */
const MAX_FREE_BUFFERS = 16;
/** Makes a read fail, and its socket close. */
const EMPTY = Buffer.alloc(0);

/** Gives a lent buffer back; once. */
export type ReleaseBuffer = () => void;

/** The buffers of one pool. */
export class ReadBuffers {
  /** Overwritten by whichever connection reads next. */
  readonly shared = Buffer.allocUnsafeSlow(READ_BYTES);
  readonly #free: Buffer[] = [];

  take(): Buffer {
    return this.#free.pop() ?? Buffer.allocUnsafeSlow(READ_BYTES);
  }

  keep(buffer: Buffer): void {
    if (this.#free.length < MAX_FREE_BUFFERS) this.#free.push(buffer);
  }
}

/**
 * What one connection reads into. Large content is passed on in the very buffer it was read into, and the next read gets
 * another: copying it cost more than a third of a download's CPU, most of it for memory taken and given up (bench/RESULTS-basic.md).
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

  /** The socket's `onread`; `onThrow` closes the connection. */
  toOnRead(take: (bytes: Buffer) => boolean, onThrow: () => void): OnReadOpts {
    return {
      buffer: guardDecision(() => this.next(), EMPTY),
      callback: guardDecision((length: number) => take(this.view(length)), false, onThrow),
    };
  }

  /** What the next read goes to. */
  next(): Buffer {
    if (!this.#isStreaming) this.#current = this.#buffers.shared;
    else if (this.#isLent || this.#current === this.#buffers.shared) this.#current = this.#buffers.take();
    this.#isLent = false;
    return this.#current;
  }

  /** The first bytes of what was read last. */
  view(length: number): Buffer {
    return this.#current.subarray(0, length);
  }

  /** Lends the current buffer out with a piece of what was read last; undefined where the piece must be copied instead. */
  lend(piece: Buffer): ReleaseBuffer | undefined {
    if (piece.length < MIN_LENT_BYTES) return undefined;
    this.#isStreaming = true;
    if (this.#isLent || this.#current === this.#buffers.shared) return undefined;
    this.#isLent = true;
    const lent = this.#current;
    return () => this.#buffers.keep(lent);
  }

  /** The answer is over: the next one is short until it proves to be otherwise. */
  endResponse(): void {
    if (this.#isStreaming && !this.#isLent && this.#current !== this.#buffers.shared) this.#buffers.keep(this.#current);
    this.#isStreaming = false;
    this.#isLent = true;
  }
}
