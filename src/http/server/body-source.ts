/** The source of a request body, in HTTP/1 and in HTTP/2. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { constants, type ServerHttp2Stream } from 'node:http2';
import type { Readable } from 'node:stream';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import type { HeaderFields } from '../../core/head.ts';
import { GrowingBuffer } from '../../core/reading.ts';
import { onEvent, runNextTurn, runSoon, SumOfTurn, waitForTurn } from '../../core/safe-events.ts';

/** In bytes; larger chunks are passed on unchanged. */
const MIN_PIECE = 1_024;
/** The maximum number of bytes that are joined. */
const MAX_JOINED = 16 * 1_024;
/** After so many in a turn of the event loop, the connection waits for its turn: otherwise Node reads up to 2 MiB of it, and takes 1.5 µs for each chunk. */
const MAX_JOINED_IN_TURN = 64;
/** The small chunks of all bodies in a turn: Node reads 64 KiB of each connection in it, which can hold 10,900. */
const MAX_CHUNKS_OF_TURN = 32_768;
/** The mean size of chunks may not be smaller, in bytes, except for `FREE_CHUNKS` of each body, and `BURST_CHUNKS` of each connection. */
const MIN_MEAN_CHUNK = 4;
const FREE_CHUNKS = 16;
const BURST_CHUNKS = 1_000;
/** Small chunks that a connection may send more each second. */
const CHUNKS_PER_SECOND = 100;

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
  /** Starts to read. */
  receive(receiver: BodyReceiver): void;
}

/** Whether the stream was destroyed before it was read: it has no further events to wait for. */
export function isCutOff({ stream }: BodySource): boolean {
  return stream.destroyed && !stream.readableEnded;
}

function receiveEvents(stream: Readable, receiver: BodyReceiver): void {
  onEvent(stream, 'data', (chunk: Buffer) => receiver.onChunk(chunk));
  // Over HTTP/2, a body that turns out to be empty ends although nobody reads it, perhaps while the request waited.
  if (stream.readableEnded) runSoon(() => receiver.onEnd());
  else onEvent(stream, 'end', () => receiver.onEnd());
}

/** The body of a node:http request. */
export class Http1BodySource implements BodySource {
  readonly stream: IncomingMessage;
  readonly declaredLength: number | undefined;
  readonly expectsContinue: boolean;
  readonly isMultiplexed = false;
  readonly #response: ServerResponse;

  constructor(request: IncomingMessage, response: ServerResponse, expectsContinue: boolean, limit: ChunkLimit) {
    this.stream = request;
    this.declaredLength = toDeclaredLength(request);
    // Chunks, TLS records and TCP segments may all have a single byte, and are buffered while nobody reads.
    // Only chunks are limited: a segment costs its sender as much, and records have a separate limit (empty-records.ts).
    if (this.declaredLength === undefined) joinSmallChunks(request, limit.toGroup, countChunks(limit));
    else if (this.declaredLength > MIN_PIECE) joinSmallChunks(request, limit.toGroup);
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

  constructor(stream: ServerHttp2Stream, fields: HeaderFields, flags: number, limit: ChunkLimit) {
    this.stream = stream;
    this.expectsContinue = fields.get('expect')?.toLowerCase() === '100-continue';
    this.declaredLength = toStreamLength(fields, flags);
    // Frames may be as small as the sender likes, regardless of the declared length.
    if (this.declaredLength !== 0) joinSmallChunks(stream, limit.toGroup, countChunks(limit));
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

/** The limit on small chunks, or DATA frames of HTTP/2. */
export interface ChunkLimit {
  readonly clock: Pick<Clock, 'monotonic'>;
  /** Its bodies share a budget: a connection, or a stream if the connection carries the requests of many clients. */
  readonly owner: object;
  /** Returns its client, which takes turns with others. */
  readonly toGroup: () => unknown;
  /** Ends the connection, and makes the parser skip what it has read. `chunks_full`: because of other bodies, too. */
  onExceeded(reason: 'small_chunks' | 'chunks_full'): void;
}

/** The budget of each owner for small chunks. */
const budgets = new WeakMap<object, ChunkBudget>();

class ChunkBudget {
  readonly #clock: ChunkLimit['clock'];
  /** In bytes of content that chunks may have less than the mean requires. */
  #left = BURST_CHUNKS * MIN_MEAN_CHUNK;
  #refilledAt: Milliseconds;

  constructor(clock: ChunkLimit['clock']) {
    this.#clock = clock;
    this.#refilledAt = clock.monotonic();
  }

  /** Returns false for a small chunk that is one too many. */
  take(bytes: number): boolean {
    this.#add(bytes - MIN_MEAN_CHUNK);
    if (this.#left >= 0 || bytes >= MIN_MEAN_CHUNK) return true;
    const now = this.#clock.monotonic();
    this.#add(((now - this.#refilledAt) / 1_000) * CHUNKS_PER_SECOND * MIN_MEAN_CHUNK);
    this.#refilledAt = now;
    if (this.#left >= 0) return true;
    this.#left = 0;
    return false;
  }

  #add(bytes: number): void {
    this.#left = Math.min(BURST_CHUNKS * MIN_MEAN_CHUNK, this.#left + bytes);
  }
}

/** On all connections. */
const smallChunks = new SumOfTurn();

function findBudget(owner: object, clock: ChunkLimit['clock']): ChunkBudget {
  const budget = budgets.get(owner) ?? new ChunkBudget(clock);
  budgets.set(owner, budget);
  return budget;
}

/** Counts a chunk of a body, after `inTurn` small ones of the body in this turn. Returns false once there are too many. */
type CountChunk = (bytes: number, inTurn: number) => boolean;

/** Counts the chunks of one body for its owner. In a turn with too many, bodies with many small ones end, with an error after which the sender repeats them. */
function countChunks({ clock, owner, onExceeded }: ChunkLimit): CountChunk {
  let free = FREE_CHUNKS;
  let budget: ChunkBudget | undefined;
  return (bytes, inTurn) => {
    if (bytes < MIN_PIECE && smallChunks.add(1) > MAX_CHUNKS_OF_TURN && inTurn >= MAX_JOINED_IN_TURN) {
      onExceeded('chunks_full');
      return false;
    }
    if (free > 0) {
      free--;
      return true;
    }
    budget ??= findBudget(owner, clock);
    if (budget.take(bytes)) return true;
    onExceeded('small_chunks');
    return false;
  };
}

/**
 * Makes a stream buffer a few large chunks instead of many small ones while nobody reads it: a chunked body or HTTP/2 frames of one
 * byte each would otherwise take 28 MiB for the 64 KiB that Node buffers. Chunks of one turn of the event loop are joined.
 * `count`: called with the size of each chunk; after it has returned false, the rest is dropped.
 */
export function joinSmallChunks(stream: Readable, toGroup: () => unknown, count: CountChunk = () => true): void {
  const push = stream.push.bind(stream);
  let joined = new GrowingBuffer();
  let isScheduled = false;
  let inTurn = 0;
  let isCut = false;
  const flush = (): boolean => {
    if (joined.length === 0) return true;
    const bytes = joined.view();
    joined = new GrowingBuffer();
    return push(bytes);
  };
  const flushLater = (): void => {
    if (isScheduled) return;
    isScheduled = true;
    const flushNow = (): void => {
      isScheduled = false;
      inTurn = 0;
      if (!stream.destroyed && !stream.readableEnded) flush();
    };
    runNextTurn(() => (inTurn < MAX_JOINED_IN_TURN ? flushNow() : waitForTurn(toGroup(), flushNow)));
  };
  const pushJoined = (chunk: Buffer | null): boolean => {
    isCut ||= chunk !== null && !count(chunk.length, inTurn);
    if (isCut) return true;
    if (chunk === null || chunk.length >= MIN_PIECE) {
      flush();
      return push(chunk);
    }
    joined.append(chunk, MAX_JOINED);
    flushLater();
    if (joined.length > MAX_JOINED - MIN_PIECE) return flush();
    // Node resumes once the stream has got what is joined.
    return ++inTurn < MAX_JOINED_IN_TURN && stream.readableLength < stream.readableHighWaterMark;
  };
  stream.push = pushJoined;
}
