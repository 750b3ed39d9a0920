/** Writes streamed content to the app, no faster than it is taken. */
import type { Socket } from 'node:net';
import type { ContentConsumer, ContentStream } from '../../core/content.ts';
import type { Reason } from '../../core/refusal.ts';
import { type AddedListener, afterWrite, offEvent, onEvent } from '../../core/safe-events.ts';
import { freeSpent } from '../../core/spent.ts';

/** What the connection wants to know of its content. */
export interface ContentEvents {
  /** Something was written, or can be written again; `isBlocked`: the app takes no more for now. */
  onProgress(isBlocked: boolean): void;
  onWritten(): void;
  /** The sender left or was too slow: what the app has of the request is a part that must not look whole. */
  onBroken(reason: Reason): void;
}

/** One stream on its way into one socket. */
export class ContentWriter implements ContentConsumer {
  readonly #socket: Socket;
  readonly #content: ContentStream;
  readonly #isChunked: boolean;
  readonly #events: ContentEvents;
  #isOver = false;
  readonly #onDrain: AddedListener;

  constructor(socket: Socket, content: ContentStream, isChunked: boolean, events: ContentEvents) {
    this.#isChunked = isChunked;
    this.#socket = socket;
    this.#content = content;
    this.#events = events;
    this.#onDrain = onEvent(socket, 'drain', () => {
      events.onProgress(false);
      content.resume();
    });
  }

  /** Begins; separate from the constructor, as content that is there already comes at once. */
  start(): void {
    this.#content.start(this);
  }

  write(chunk: Buffer): boolean {
    // What a broken connection may still hold is left to the garbage collector.
    const onWritten = afterWrite(() => freeSpent(chunk));
    const isRoomy = this.#isChunked ? this.#writeChunk(chunk, onWritten) : this.#socket.write(chunk, onWritten);
    // A chunk may be as large as what Node would hold back: what the system has taken already is no reason to wait.
    const isTaken = isRoomy || this.#socket.writableLength === 0;
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
    this.#content.stop();
  }

  #writeChunk(chunk: Buffer, onWritten: (error?: Error | null) => void): boolean {
    // An empty chunk would be the last one (RFC 9112 §7.1).
    if (chunk.length === 0) return true;
    this.#socket.cork();
    this.#socket.write(`${chunk.length.toString(16)}\r\n`, 'latin1');
    this.#socket.write(chunk, onWritten);
    const isRoomy = this.#socket.write('\r\n', 'latin1');
    this.#socket.uncork();
    return isRoomy;
  }

  #finish(): void {
    this.#isOver = true;
    offEvent(this.#socket, 'drain', this.#onDrain);
  }
}
