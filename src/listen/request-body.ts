/** Reads a request's content once, into one Buffer: bounded in size, pace and in what all requests hold together. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Milliseconds } from '../core/clock.ts';
import type { ContentStream, RequestBody } from '../core/exchange.ts';
import { type Reason, type Refusal, refuse } from '../core/refusal.ts';
import type { BodyInProgress, BodyWatch } from './limits.ts';
import { IncomingStream } from './request-stream.ts';

/** Bytes; reading so much in vain costs less than another TCP and TLS handshake. */
const CHEAP_TO_DRAIN = 64 * 1024;
const EMPTY = Buffer.alloc(0);

/** The content of a node:http request. */
export class IncomingBody implements RequestBody, BodyInProgress {
  readonly declaredLength: number | undefined;
  startedAt: Milliseconds = 0;
  lastByteAt: Milliseconds = 0;
  readonly hasCeiling = true;
  readonly isPaused = false;
  #received = 0;
  #stream: IncomingStream | undefined;
  /** It may break while the gates are still at work, before anybody reads it. */
  #brokenBy: Reason | undefined;
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #watch: BodyWatch;
  readonly #expectsContinue: boolean;
  #chunks: Buffer[] = [];
  #maxBytes = 0;
  #reserved = 0;
  #settle: ((result: Buffer | Refusal) => void) | undefined;
  #result: Promise<Buffer | Refusal> | undefined;

  constructor(request: IncomingMessage, response: ServerResponse, watch: BodyWatch, expectsContinue: boolean) {
    this.#request = request;
    this.#response = response;
    this.#watch = watch;
    this.#expectsContinue = expectsContinue;
    this.declaredLength = toDeclaredLength(request);
  }

  get received(): number {
    return this.#stream?.received ?? this.#received;
  }

  get isCheapToDrain(): boolean {
    if (this.#request.complete) return true;
    // Whoever waits for 100 may send the content or not: only closing is unambiguous (RFC 9110 §10.1.1).
    return !this.#expectsContinue && this.declaredLength !== undefined && this.declaredLength <= CHEAP_TO_DRAIN;
  }

  read(maxBytes: number): Promise<Buffer | Refusal> {
    this.#result ??= this.#start(maxBytes);
    return this.#result;
  }

  open(): Buffer | ContentStream {
    if (this.declaredLength === 0) return EMPTY;
    this.#stream = new IncomingStream(this.#request, this.declaredLength, this.#watch, () => {
      if (this.#expectsContinue) this.#response.writeContinue();
    });
    if (this.#brokenBy !== undefined) this.#stream.fail(this.#brokenBy);
    return this.#stream;
  }

  /** Gives the buffer's share of the common budget back; called once the exchange is over. */
  free(): void {
    this.#watch.free(this.#reserved);
    this.#reserved = 0;
  }

  fail(reason: Reason): void {
    this.#brokenBy ??= reason;
    this.#stream?.fail(reason);
    this.#finish(toRefusal(reason));
  }

  async #start(maxBytes: number): Promise<Buffer | Refusal> {
    if (this.#brokenBy !== undefined) return toRefusal(this.#brokenBy);
    if (this.declaredLength === 0) return EMPTY;
    if (this.declaredLength !== undefined && this.declaredLength > maxBytes) return refuse('body_too_large', 'body_too_large');
    // A sender that waits for 100 is told to go on only now, after the gates that judge the header alone (RFC 9110 §10.1.1).
    if (this.#expectsContinue) this.#response.writeContinue();
    this.#maxBytes = maxBytes;
    this.startedAt = this.#watch.now();
    this.lastByteAt = this.startedAt;
    this.#watch.add(this);
    return new Promise((resolve) => {
      this.#settle = resolve;
      this.#request.on('data', (chunk: Buffer) => this.#onData(chunk));
      this.#request.on('end', () => this.#onEnd());
      this.#request.on('error', () => this.fail('body_aborted'));
      this.#request.on('close', () => this.fail('body_aborted'));
    });
  }

  #onData(chunk: Buffer): void {
    if (this.#settle === undefined) return;
    this.#received += chunk.length;
    if (this.#received > this.#maxBytes) return this.#finish(refuse('body_too_large', 'body_too_large'));
    if (!this.#watch.reserve(chunk.length)) return this.#finish(refuse('overloaded', 'buffer_full'));
    this.#reserved += chunk.length;
    this.lastByteAt = this.#watch.now();
    this.#chunks.push(chunk);
  }

  #onEnd(): void {
    const [first] = this.#chunks;
    if (first === undefined) this.#finish(EMPTY);
    else this.#finish(this.#chunks.length === 1 ? first : Buffer.concat(this.#chunks, this.#received));
  }

  #finish(result: Buffer | Refusal): void {
    const settle = this.#settle;
    if (settle === undefined) return;
    this.#settle = undefined;
    this.#chunks = [];
    this.#watch.remove(this);
    settle(result);
  }
}

function toRefusal(reason: Reason): Refusal {
  return refuse(reason === 'body_timeout' ? 'request_timeout' : 'malformed_request', reason);
}

/** Node's parser has proven the field to be one run of digits that fits (RFC 9112 §6.2). */
function toDeclaredLength(request: IncomingMessage): number | undefined {
  const { headers } = request;
  if (headers['transfer-encoding'] !== undefined) return undefined;
  const length = headers['content-length'];
  return length === undefined ? 0 : Number(length);
}
