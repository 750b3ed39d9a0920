/** Passes a request's content on as it comes: bounded in pace, not in size, and never more in memory than a few chunks. */
import type { Milliseconds } from '../core/clock.ts';
import type { ContentConsumer, ContentStream } from '../core/exchange.ts';
import type { Reason } from '../core/refusal.ts';
import { onEvent } from '../core/safe-events.ts';
import { freeSpent } from '../core/spent.ts';
import type { ContentOrigin } from './content-origin.ts';
import type { BodyInProgress, BodyWatch } from './limits.ts';

/** The content of a request, as a stream. */
export class IncomingStream implements ContentStream, BodyInProgress {
  readonly length: number | undefined;
  readonly hasCeiling = false;
  startedAt: Milliseconds = 0;
  lastByteAt: Milliseconds = 0;
  received = 0;
  readonly #origin: ContentOrigin;
  readonly #watch: BodyWatch;
  #consumer: ContentConsumer | undefined;
  #pausedAt: Milliseconds | undefined;
  #brokenBy: Reason | undefined;

  constructor(origin: ContentOrigin, watch: BodyWatch) {
    this.#origin = origin;
    this.length = origin.declaredLength;
    this.#watch = watch;
  }

  get isPaused(): boolean {
    return this.#pausedAt !== undefined;
  }

  start(consumer: ContentConsumer): void {
    const { stream, expectsContinue } = this.#origin;
    this.#consumer = consumer;
    if (stream.destroyed && !stream.readableEnded) this.#brokenBy ??= 'body_aborted';
    if (this.#brokenBy !== undefined) return this.fail(this.#brokenBy);
    if (expectsContinue) this.#origin.sendContinue();
    this.startedAt = this.#watch.now();
    this.lastByteAt = this.startedAt;
    this.#watch.add(this);
    onEvent(stream, 'data', (chunk: Buffer) => this.#onData(chunk));
    onEvent(stream, 'end', () => this.#onEnd());
    onEvent(stream, 'error', () => this.fail('body_aborted'));
    onEvent(stream, 'close', () => this.fail('body_aborted'));
  }

  resume(): void {
    if (this.#pausedAt === undefined) return;
    // The pause was not the sender's.
    const now = this.#watch.now();
    this.startedAt += now - this.#pausedAt;
    this.lastByteAt = now;
    this.#pausedAt = undefined;
    this.#origin.stream.resume();
  }

  stop(): void {
    this.#finish();
    this.#origin.stream.resume();
  }

  /** Breaks it off; before `start`, it breaks then. */
  fail(reason: Reason): void {
    this.#brokenBy ??= reason;
    this.#finish()?.fail(reason);
  }

  #onData(chunk: Buffer): void {
    const consumer = this.#consumer;
    this.#watch.onBytes(chunk.length);
    if (consumer === undefined) return freeSpent(chunk);
    this.received += chunk.length;
    this.lastByteAt = this.#watch.now();
    if (consumer.write(chunk) || this.#consumer === undefined) return;
    this.#pausedAt = this.lastByteAt;
    this.#origin.stream.pause();
  }

  #onEnd(): void {
    if (this.#origin.isComplete) this.#finish()?.end();
    else this.fail('body_aborted');
  }

  #finish(): ContentConsumer | undefined {
    const consumer = this.#consumer;
    this.#consumer = undefined;
    this.#pausedAt = undefined;
    this.#watch.remove(this);
    return consumer;
  }
}
