/** Writes streamed body to the app, no faster than it is taken. */
import type { Socket } from 'node:net';
import type { BodyConsumer, BodyStream } from '../../core/body.ts';
import { freeChunk } from '../../core/chunk-memory.ts';
import type { Reason } from '../../core/refusal.ts';
import { type AddedListener, afterWrite, offEvent, onEvent } from '../../core/safe-events.ts';

/** What the connection wants to know of its body. */
export interface BodyWriterEvents {
  /** Something was written, or can be written again; `isBlocked`: the app takes no more for now. */
  onProgress(isBlocked: boolean): void;
  onWritten(): void;
  /** The sender left or was too slow: what the app has of the request is a part that must not look whole. */
  onBroken(reason: Reason): void;
}

/** One stream on its way into one socket. */
export class BodyWriter implements BodyConsumer {
  readonly #socket: Socket;
  readonly #body: BodyStream;
  readonly #isChunked: boolean;
  readonly #events: BodyWriterEvents;
  #isOver = false;
  readonly #onDrain: AddedListener;

  constructor(socket: Socket, body: BodyStream, isChunked: boolean, events: BodyWriterEvents) {
    this.#isChunked = isChunked;
    this.#socket = socket;
    this.#body = body;
    this.#events = events;
    this.#onDrain = onEvent(socket, 'drain', () => {
      events.onProgress(false);
      body.resume();
    });
  }

  /** Begins; separate from the constructor, as body that is there already comes at once. */
  start(): void {
    this.#body.start(this);
  }

  write(chunk: Buffer): boolean {
    // What a broken connection may still hold is left to the garbage collector.
    const onWritten = afterWrite(() => freeChunk(chunk));
    const hasRoom = this.#isChunked ? this.#writeChunk(chunk, onWritten) : this.#socket.write(chunk, onWritten);
    // A chunk may be as large as what Node would hold back: what the system has taken already is no reason to wait.
    const isTaken = hasRoom || this.#socket.writableLength === 0;
    this.#events.onProgress(!isTaken);
    return isTaken;
  }

  end(): void {
    if (this.#isChunked) this.#socket.write('0\r\n\r\n', 'latin1');
    this.#finish();
    this.#events.onWritten();
  }

  fail(reason: Reason): void {
    this.#finish();
    this.#events.onBroken(reason);
  }

  /** Nobody takes more. */
  stop(): void {
    if (this.#isOver) return;
    this.#finish();
    this.#body.stop();
  }

  #writeChunk(chunk: Buffer, onWritten: (error?: Error | null) => void): boolean {
    // An empty chunk would be the last one (RFC 9112 §7.1).
    if (chunk.length === 0) return true;
    this.#socket.cork();
    this.#socket.write(`${chunk.length.toString(16)}\r\n`, 'latin1');
    this.#socket.write(chunk, onWritten);
    const hasRoom = this.#socket.write('\r\n', 'latin1');
    this.#socket.uncork();
    return hasRoom;
  }

  #finish(): void {
    this.#isOver = true;
    offEvent(this.#socket, 'drain', this.#onDrain);
  }
}
