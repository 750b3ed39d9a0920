/** Where a request's content comes from, in HTTP/1 and in HTTP/2. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { constants, type ServerHttp2Stream } from 'node:http2';
import type { Readable } from 'node:stream';
import type { HeaderFields } from '../../core/headers.ts';
import { joinSmallChunks, MIN_PIECE } from './small-chunks.ts';

/** Where a request's content comes from, in any version of HTTP. */
export interface BodySource {
  readonly stream: Readable;
  /** In bytes; undefined where the framing alone tells the end; 0 where there is no content. */
  readonly declaredLength: number | undefined;
  /** The whole of it came in; false at the stream's end means that it was cut off. */
  readonly isComplete: boolean;
  /** The sender waits for 100 (Continue). */
  readonly expectsContinue: boolean;
  /** What is left unread stands in nobody's way. */
  readonly isMultiplexed: boolean;
  sendContinue(): void;
}

/** The content of a node:http request. */
export class Http1BodySource implements BodySource {
  readonly stream: IncomingMessage;
  readonly declaredLength: number | undefined;
  readonly expectsContinue: boolean;
  readonly isMultiplexed = false;
  readonly #response: ServerResponse;

  constructor(request: IncomingMessage, response: ServerResponse, expectsContinue: boolean) {
    this.stream = request;
    this.declaredLength = toDeclaredLength(request);
    // Chunks, TLS records and TCP segments may all be of one byte, and wait while nobody reads.
    if (this.declaredLength === undefined || this.declaredLength > MIN_PIECE) joinSmallChunks(request);
    this.expectsContinue = expectsContinue;
    this.#response = response;
  }

  get isComplete(): boolean {
    return this.stream.complete;
  }

  sendContinue(): void {
    this.#response.writeContinue();
  }
}

/** The content of an HTTP/2 stream. */
export class Http2BodySource implements BodySource {
  readonly stream: ServerHttp2Stream;
  readonly declaredLength: number | undefined;
  readonly expectsContinue: boolean;
  readonly isMultiplexed = true;

  constructor(stream: ServerHttp2Stream, fields: HeaderFields, flags: number) {
    this.stream = stream;
    this.expectsContinue = fields.get('expect')?.toLowerCase() === '100-continue';
    this.declaredLength = toStreamLength(fields, flags);
    // Frames may be as small as their sender likes, whatever length it declared.
    if (this.declaredLength !== 0) joinSmallChunks(stream);
  }

  /** A stream that is reset ends like one that is complete, but for its code (RFC 9113 §8.1). */
  get isComplete(): boolean {
    const { readableEnded, aborted, rstCode } = this.stream;
    return readableEnded && !aborted && rstCode === constants.NGHTTP2_NO_ERROR;
  }

  sendContinue(): void {
    const { destroyed, closed, headersSent } = this.stream;
    if (!destroyed && !closed && !headersSent) this.stream.additionalHeaders({ ':status': constants.HTTP_STATUS_CONTINUE });
  }
}

/** The parser has proven a Content-Length to be digits, and to be what comes (RFC 9113 §8.1.1). */
function toStreamLength(fields: HeaderFields, flags: number): number | undefined {
  if ((flags & constants.NGHTTP2_FLAG_END_STREAM) !== 0) return 0;
  const length = fields.get('content-length');
  return length === undefined ? undefined : Number(length);
}

/** Node's parser has proven the field to be one run of digits that fits (RFC 9112 §6.2). */
function toDeclaredLength(request: IncomingMessage): number | undefined {
  const { headers } = request;
  if (headers['transfer-encoding'] !== undefined) return undefined;
  const length = headers['content-length'];
  return length === undefined ? 0 : Number(length);
}
