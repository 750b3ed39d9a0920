/** Passes a request's content on as it comes: bounded in pace, not in size, and never more in memory than a few chunks. */
import type { IncomingMessage } from 'node:http';
import type { Milliseconds } from '../core/clock.ts';
import type { ContentConsumer, ContentStream } from '../core/exchange.ts';
import type { Reason } from '../core/refusal.ts';
import type { BodyInProgress, BodyWatch } from './limits.ts';

/** The content of a node:http request, as a stream. */
export class IncomingStream implements ContentStream, BodyInProgress {
  readonly length: number | undefined;
  readonly hasCeiling = false;
  startedAt: Milliseconds = 0;
  lastByteAt: Milliseconds = 0;
  received = 0;
  readonly #request: IncomingMessage;
  readonly #watch: BodyWatch;
  readonly #onStart: () => void;
  #consumer: ContentConsumer | undefined;
  #pausedAt: Milliseconds | undefined;
  #brokenBy: Reason | undefined;

  constructor(request: IncomingMessage, length: number | undefined, watch: BodyWatch, onStart: () => void) {
    this.#request = request;
    this.length = length;
    this.#watch = watch;
    this.#onStart = onStart;
  }

  get isPaused(): boolean {
    return this.#pausedAt !== undefined;
  }

  start(consumer: ContentConsumer): void {
    const request = this.#request;
    this.#consumer = consumer;
    if (request.destroyed && !request.readableEnded) this.#brokenBy ??= 'body_aborted';
    if (this.#brokenBy !== undefined) return this.fail(this.#brokenBy);
    this.#onStart();
    this.startedAt = this.#watch.now();
    this.lastByteAt = this.startedAt;
    this.#watch.add(this);
    request.on('data', (chunk: Buffer) => this.#onData(chunk));
    request.on('end', () => this.#finish()?.end());
    request.on('error', () => this.fail('body_aborted'));
    request.on('close', () => this.fail('body_aborted'));
  }

  resume(): void {
    if (this.#pausedAt === undefined) return;
    // The pause was not the sender's.
    const now = this.#watch.now();
    this.startedAt += now - this.#pausedAt;
    this.lastByteAt = now;
    this.#pausedAt = undefined;
    this.#request.resume();
  }

  stop(): void {
    this.#finish();
    this.#request.resume();
  }

  /** Breaks it off; before `start`, it breaks then. */
  fail(reason: Reason): void {
    this.#brokenBy ??= reason;
    this.#finish()?.fail(reason);
  }

  #onData(chunk: Buffer): void {
    const consumer = this.#consumer;
    if (consumer === undefined) return;
    this.received += chunk.length;
    this.lastByteAt = this.#watch.now();
    if (consumer.write(chunk) || this.#consumer === undefined) return;
    this.#pausedAt = this.lastByteAt;
    this.#request.pause();
  }

  #finish(): ContentConsumer | undefined {
    const consumer = this.#consumer;
    this.#consumer = undefined;
    this.#pausedAt = undefined;
    this.#watch.remove(this);
    return consumer;
  }
}
