/** The content of a request: read as a whole, or passed on as it arrives. */
import type { Reason, Refusal } from './refusal.ts';

/** Takes content as it arrives: write*, then exactly one of end and fail. */
export interface BodyConsumer {
  /** The chunk is the consumer's, to keep or to free. False asks for a pause until `resume` is called; what was read already still arrives. */
  write(chunk: Buffer): boolean;
  end(): void;
  /** The content broke off, or arrived too slowly. */
  fail(reason: Reason): void;
}

/** Content that is passed on as it arrives. */
export interface BodyStream {
  /** In bytes; undefined where it is not known before the end. */
  readonly length: number | undefined;
  /** Begins; called once. */
  start(consumer: BodyConsumer): void;
  resume(): void;
  /** Nobody takes more of it. */
  stop(): void;
}

/** The request's content, read or opened at most once, bounded. */
export interface RequestBody {
  /** The declared Content-Length in bytes; undefined for chunked; 0 where there is no content. */
  readonly declaredLength: number | undefined;
  /** Reads all of it, up to `maxBytes`; a refusal where it is too large, too slow or broken off. A second call gives the first's result. */
  read(maxBytes: number): Promise<Buffer | Refusal>;
  /** Opens it, to be passed on as it arrives; a Buffer where there is none. Not after `read`. */
  open(): Buffer | BodyStream;
  /** Resolves when content that was opened as a stream begins to arrive, with a refusal where it never does; undefined where nothing is awaited. */
  arriving?(): Promise<Refusal | undefined> | undefined;
  /** What `read` gave; undefined as long as it has not. */
  readonly content?: Buffer | Refusal | undefined;
  /** How many bytes arrived so far. */
  readonly received: number;
  /** Nothing is left to read, or so little that the connection is kept and the rest discarded. */
  readonly isCheapToDrain: boolean;
  /** Gives the buffer's share of the common budget back; called once, when the request is finished. */
  free(): void;
  /** Frees its memory as well, at once: `content` is gone. Only where none of it went to the app, as the connection there may still be writing it. */
  discard(): void;
}
