/** The source of a request body, in HTTP/1 and in HTTP/2. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { constants, type ServerHttp2Stream } from 'node:http2';
import type { Readable } from 'node:stream';
import type { HeaderFields } from '../../core/head.ts';
import { GrowingBuffer } from '../../core/reading.ts';
import { onEvent, runNextTurn } from '../../core/safe-events.ts';

/** In bytes; larger chunks are passed on unchanged. */
const MIN_PIECE = 1_024;
/** The maximum number of bytes that are joined. */
const MAX_JOINED = 16 * 1_024;

/** Gets the chunks and the end of a body. */
export interface BodyReceiver {
  onChunk(chunk: Buffer): void;
  /** The body may have been cut off; see `isComplete`. */
  onEnd(): void;
}

/** The source of a request body, in any version of HTTP. */
export interface BodySource {
  readonly stream: Readable;
  /** The address of the peer of the connection; empty if it is closed. */
  readonly peer: string;
  /** In bytes; undefined if only the framing marks the end; 0 without a body. */
  readonly declaredLength: number | undefined;
  /** The whole body has arrived; false at the end of the stream means that it was cut off. */
  readonly isComplete: boolean;
  /** The sender waits for 100 (Continue). */
  readonly expectsContinue: boolean;
  /** An unread body does not block other requests on the connection (HTTP/2). */
  readonly isMultiplexed: boolean;
  sendContinue(): void;
  /** Starts to read, for a body that fits into memory. */
  receive(receiver: BodyReceiver): void;
}

/** Whether the stream was destroyed before it was read: it has no further events to wait for. */
export function isCutOff({ stream }: BodySource): boolean {
  return stream.destroyed && !stream.readableEnded;
}

function receiveEvents(stream: Readable, receiver: BodyReceiver): void {
  onEvent(stream, 'data', (chunk: Buffer) => receiver.onChunk(chunk));
  onEvent(stream, 'end', () => receiver.onEnd());
}

/** The body of a node:http request. */
export class Http1BodySource implements BodySource {
  readonly stream: IncomingMessage;
  readonly declaredLength: number | undefined;
  readonly expectsContinue: boolean;
  readonly isMultiplexed = false;
  readonly #response: ServerResponse;

  constructor(request: IncomingMessage, response: ServerResponse, expectsContinue: boolean) {
    this.stream = request;
    this.declaredLength = toDeclaredLength(request);
    // Chunks, TLS records and TCP segments may all have a single byte, and are buffered while nobody reads.
    if (this.declaredLength === undefined || this.declaredLength > MIN_PIECE) joinSmallChunks(request);
    this.expectsContinue = expectsContinue;
    this.#response = response;
  }

  get peer(): string {
    return this.stream.socket.remoteAddress ?? '';
  }

  get isComplete(): boolean {
    return this.stream.complete;
  }

  sendContinue(): void {
    this.#response.writeContinue();
  }

  receive(receiver: BodyReceiver): void {
    receiveEvents(this.stream, receiver);
  }
}

/** The body of an HTTP/2 request. */
export class Http2BodySource implements BodySource {
  readonly stream: ServerHttp2Stream;
  readonly declaredLength: number | undefined;
  readonly expectsContinue: boolean;
  readonly isMultiplexed = true;

  constructor(stream: ServerHttp2Stream, fields: HeaderFields, flags: number) {
    this.stream = stream;
    this.expectsContinue = fields.get('expect')?.toLowerCase() === '100-continue';
    this.declaredLength = toStreamLength(fields, flags);
    // Frames may be as small as the sender likes, regardless of the declared length.
    if (this.declaredLength !== 0) joinSmallChunks(stream);
  }

  get peer(): string {
    return this.stream.session?.socket.remoteAddress ?? '';
  }

  /** A stream that is reset ends like a complete one, but with another code (RFC 9113 §8.1). */
  get isComplete(): boolean {
    const { readableEnded, aborted, rstCode } = this.stream;
    return readableEnded && !aborted && rstCode === constants.NGHTTP2_NO_ERROR;
  }

  sendContinue(): void {
    const { destroyed, closed, headersSent } = this.stream;
    if (!destroyed && !closed && !headersSent) this.stream.additionalHeaders({ ':status': constants.HTTP_STATUS_CONTINUE });
  }

  receive(receiver: BodyReceiver): void {
    receiveEvents(this.stream, receiver);
  }
}

/** The parser has ensured that Content-Length consists of digits and matches the body (RFC 9113 §8.1.1). */
function toStreamLength(fields: HeaderFields, flags: number): number | undefined {
  if ((flags & constants.NGHTTP2_FLAG_END_STREAM) !== 0) return 0;
  const length = fields.get('content-length');
  return length === undefined ? undefined : Number(length);
}

/** The parser of Node has ensured that the field is a single number in range (RFC 9112 §6.2). */
function toDeclaredLength(request: IncomingMessage): number | undefined {
  const { headers } = request;
  if (headers['transfer-encoding'] !== undefined) return undefined;
  const length = headers['content-length'];
  return length === undefined ? 0 : Number(length);
}

/**
 * Makes a stream buffer a few large chunks instead of many small ones while nobody reads it: a chunked body or HTTP/2 frames of one
 * byte each would otherwise take 28 MiB for the 64 KiB that Node buffers. Chunks of one turn of the event loop are joined.
 */
export function joinSmallChunks(stream: Readable): void {
  const push = stream.push.bind(stream);
  let joined = new GrowingBuffer();
  let isScheduled = false;
  const flush = (): boolean => {
    if (joined.length === 0) return true;
    const bytes = joined.view();
    joined = new GrowingBuffer();
    return push(bytes);
  };
  const flushLater = (): void => {
    if (isScheduled) return;
    isScheduled = true;
    runNextTurn(() => {
      isScheduled = false;
      if (!stream.destroyed && !stream.readableEnded) flush();
    });
  };
  const pushJoined = (chunk: Buffer | null): boolean => {
    if (chunk === null || chunk.length >= MIN_PIECE) {
      flush();
      return push(chunk);
    }
    joined.append(chunk, MAX_JOINED);
    if (joined.length > MAX_JOINED - MIN_PIECE) return flush();
    flushLater();
    return stream.readableLength < stream.readableHighWaterMark;
  };
  stream.push = pushJoined;
}
