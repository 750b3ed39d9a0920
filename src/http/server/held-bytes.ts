/**
 * Keeps the bytes that arrive on a connection while a request waits on it. Node's parser would build a message for each request in them, and a
 * connection that is not read shows neither its end nor a reset.
 */
import type { Socket } from 'node:net';
import { freeChunk, GrowingBuffer } from '../../core/buffers.ts';
import { ReadPause } from '../../core/read-pause.ts';
import { type AddedListener, offEvent, onEvent, takeListeners } from '../../core/safe-events.ts';
import type { BodyWatch, WaitingConnection } from './limits.ts';
import { discardInput, MAX_DISCARDED } from './linger.ts';

/** In bytes; what a connection has sent beyond it stays in the kernel. */
const MAX_HELD = 64 * 1024;
/** The most bytes of one read more. */
const MAX_CAPACITY = 2 * MAX_HELD;

/** The bytes of one connection. */
export class HeldBytes {
  readonly #socket: Socket;
  readonly #connection: WaitingConnection;
  readonly #bodies: BodyWatch;
  readonly #onLimit: () => void;
  readonly #bytes = new GrowingBuffer();
  readonly #releases: (() => void)[] = [];
  readonly #toParser: (bytes: Buffer) => void;
  readonly #listener: AddedListener;
  #pause: ReadPause | undefined;
  #isEnding = false;

  /** Takes the connection from Node's parser. `onLimit`: there is no memory for further bytes. */
  constructor(socket: Socket, connection: WaitingConnection, bodies: BodyWatch, onLimit: () => void) {
    this.#socket = socket;
    this.#connection = connection;
    this.#bodies = bodies;
    this.#onLimit = onLimit;
    this.#toParser = takeListeners(socket, 'data');
    this.#listener = onEvent(socket, 'data', (chunk: Buffer) => this.#onData(chunk));
  }

  /** The connection ends with a response that is pending. */
  get isEnding(): boolean {
    return this.#isEnding;
  }

  /** Gives the connection back to the parser, with the bytes. */
  release(): void {
    offEvent(this.#socket, 'data', this.#listener);
    this.#pause?.end();
    this.#toParser(this.#bytes.view());
    this.free();
  }

  /** Keeps nothing, from now on. */
  discard(): void {
    if (this.#isEnding) return;
    this.#isEnding = true;
    this.free();
    discardInput(this.#socket, MAX_DISCARDED);
  }

  /** Frees the memory of the bytes. */
  free(): void {
    this.#pause?.end();
    this.#bytes.free();
    for (const release of this.#releases.splice(0)) release();
  }

  #onData(chunk: Buffer): void {
    this.#bodies.onBytes(chunk.length);
    const release = this.#bodies.takeForWaiting(this.#connection, chunk.length);
    if (release === undefined) {
      freeChunk(chunk);
      return this.#onLimit();
    }
    this.#releases.push(release);
    this.#bytes.append(chunk, MAX_CAPACITY);
    if (this.#bytes.length >= MAX_HELD) this.#stopReading();
  }

  /** Until the request is handled that waits. The response before it has separate deadlines, but may be a stream that goes on for hours. */
  #stopReading(): void {
    if (this.#pause !== undefined) return;
    const { pauses, limits } = this.#bodies;
    const owner = { network: this.#connection.network, pauses };
    // The bytes themselves are counted already.
    this.#pause = new ReadPause(owner, 0, limits.streamTimeout, () => this.#socket.destroy());
    this.#pause.hold(this.#socket);
  }
}
