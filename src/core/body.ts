/** The body of a request: buffered, or streamed. */
import type { PauseOwner, ReadPause } from './read-pause.ts';
import type { Reason, Refusal } from './refusal.ts';

/** Receives a streamed body: `write` any number of times, then exactly one of `end` and `fail`. */
export interface BodyConsumer {
  /** Takes ownership of the chunk. The stream is not read during the pause that it returns; chunks that were already read still arrive. */
  write(chunk: Buffer): ReadPause | undefined;
  end(): void;
  /** The body was cut off, or arrived too slowly. */
  fail(reason: Reason): void;
}

/** A body that is streamed. */
export interface BodyStream {
  /** In bytes; undefined if it is not known in advance. */
  readonly length: number | undefined;
  /** The client that sends it. */
  readonly owner: PauseOwner;
  /** Starts the stream. Call it once. */
  start(consumer: BodyConsumer): void;
  /** Ends the stream as if it had failed for this reason. */
  fail(reason: Reason): void;
  /** Discards the rest of the body. */
  stop(): void;
}

/** The body of a request. It is read or opened at most once, within limits. */
export interface RequestBody extends PauseOwner {
  /** The declared Content-Length in bytes; undefined if the body is chunked; 0 without a body. */
  readonly declaredLength: number | undefined;
  /**
   * Reads the whole body, up to `maxBytes`: a refusal if it is too large, too slow or cut off; a promise only if it has to arrive. Later
   * calls return the first result. `route`: if several share the memory for bodies.
   */
  read(maxBytes: number, route?: string): Buffer | Refusal | Promise<Buffer | Refusal>;
  /** Opens the body as a stream; returns an empty Buffer if there is no body. Do not call it after `read`. */
  open(): Buffer | BodyStream;
  /**
   * Resolves when an opened stream starts to arrive, or with a refusal if it never does. Returns undefined if no stream is open.
   */
  arriving?(): Promise<Refusal | undefined> | undefined;
  /** The result of `read`; undefined until it settles. */
  readonly content?: Buffer | Refusal | undefined;
  /** Bytes received so far. */
  readonly received: number;
  /** Nothing is left to read, or so little that it can be discarded and the connection kept. */
  readonly isCheapToDrain: boolean;
  /** Returns the buffer's bytes to the shared budget. Call it once, when the request is finished. */
  free(): void;
  /**
   * Also frees the memory immediately and clears `content`. Call it only if nothing was sent to the app, or if all of it was: the
   * upstream connection might still be writing it.
   */
  discard(): void;
}
