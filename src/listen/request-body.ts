/** Reads a request's content once, into one Buffer: bounded in size, pace and in what all requests hold together. */
import type { Milliseconds } from '../core/clock.ts';
import type { ContentStream, RequestBody } from '../core/exchange.ts';
import { type Reason, type Refusal, refuse } from '../core/refusal.ts';
import { onEvent } from '../core/safe-events.ts';
import type { ContentOrigin } from './content-origin.ts';
import type { BodyInProgress, BodyWatch } from './limits.ts';
import { IncomingStream } from './request-stream.ts';

/** Bytes; reading so much in vain costs less than another TCP and TLS handshake. */
const CHEAP_TO_DRAIN = 64 * 1024;
const EMPTY = Buffer.alloc(0);

/** The content of a request. */
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
  readonly #origin: ContentOrigin;
  readonly #watch: BodyWatch;
  #chunks: Buffer[] = [];
  #maxBytes = 0;
  #reserved = 0;
  #settle: ((result: Buffer | Refusal) => void) | undefined;
  #result: Promise<Buffer | Refusal> | undefined;
  #content: Buffer | Refusal | undefined;

  constructor(origin: ContentOrigin, watch: BodyWatch) {
    this.#origin = origin;
    this.#watch = watch;
    this.declaredLength = origin.declaredLength;
  }

  get content(): Buffer | Refusal | undefined {
    return this.#content;
  }

  get received(): number {
    return this.#stream?.received ?? this.#received;
  }

  get isCheapToDrain(): boolean {
    const { isComplete, isSeparate, expectsContinue } = this.#origin;
    if (isComplete || isSeparate) return true;
    // Whoever waits for 100 may send the content or not: only closing is unambiguous (RFC 9110 §10.1.1).
    return !expectsContinue && this.declaredLength !== undefined && this.declaredLength <= CHEAP_TO_DRAIN;
  }

  read(maxBytes: number): Promise<Buffer | Refusal> {
    this.#result ??= this.#start(maxBytes);
    return this.#result;
  }

  open(): Buffer | ContentStream {
    if (this.declaredLength === 0) return EMPTY;
    this.#stream = new IncomingStream(this.#origin, this.#watch);
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
    if (this.#origin.expectsContinue) this.#origin.sendContinue();
    this.#maxBytes = maxBytes;
    this.startedAt = this.#watch.now();
    this.lastByteAt = this.startedAt;
    this.#watch.add(this);
    return new Promise((resolve) => {
      this.#settle = resolve;
      const { stream } = this.#origin;
      onEvent(stream, 'data', (chunk: Buffer) => this.#onData(chunk));
      onEvent(stream, 'end', () => this.#onEnd());
      onEvent(stream, 'error', () => this.fail('body_aborted'));
      onEvent(stream, 'close', () => this.fail('body_aborted'));
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
    if (!this.#origin.isComplete) return this.fail('body_aborted');
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
    this.#content = result;
    settle(result);
  }
}

function toRefusal(reason: Reason): Refusal {
  return refuse(reason === 'body_timeout' ? 'request_timeout' : 'malformed_request', reason);
}
