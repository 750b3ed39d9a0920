/** Passes a request's content on as it comes: bounded in pace, not in size, and never more in memory than a few chunks. */
import type { Milliseconds } from '../../core/clock.ts';
import type { ContentConsumer, ContentStream } from '../../core/content.ts';
import type { Reason } from '../../core/refusal.ts';
import { onEvent } from '../../core/safe-events.ts';
import { freeSpent } from '../../core/spent.ts';
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
  /** What came before there was a consumer. */
  #early: Buffer[] = [];
  #hasBegun = false;
  /** What arrives is kept for a consumer that is still to come. */
  #isHeld = false;
  #hasEnded = false;
  #onArrival: (() => void) | undefined;
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
    const { stream } = this.#origin;
    this.#consumer = consumer;
    this.#isHeld = false;
    if (stream.destroyed && !stream.readableEnded) this.#brokenBy ??= 'body_aborted';
    if (this.#brokenBy !== undefined) return this.fail(this.#brokenBy);
    if (!this.#hasBegun) return this.#begin();
    let isTaken = true;
    for (const chunk of this.#early.splice(0)) isTaken = consumer.write(chunk) && isTaken;
    if (this.#consumer === undefined) return;
    if (this.#hasEnded) this.#finish()?.end();
    else if (isTaken) this.resume();
  }

  /** Begins to read, and resolves with the first bytes, the end, or the reason why neither comes; what comes is kept for `start`. */
  async arriving(): Promise<Reason | undefined> {
    if (this.#brokenBy !== undefined) return this.#brokenBy;
    const arrival = new Promise<void>((resolve) => {
      this.#onArrival = resolve;
    });
    this.#isHeld = true;
    this.#begin();
    await arrival;
    return this.#brokenBy;
  }

  #begin(): void {
    const { stream, expectsContinue } = this.#origin;
    this.#hasBegun = true;
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
    if (this.#hasEnded) return;
    this.#brokenBy ??= reason;
    this.#finish()?.fail(reason);
    this.#tellArrival();
  }

  #onData(chunk: Buffer): void {
    const consumer = this.#consumer;
    this.#watch.onBytes(chunk.length);
    if (consumer === undefined && !this.#isHeld) return freeSpent(chunk);
    this.received += chunk.length;
    this.lastByteAt = this.#watch.now();
    if (consumer === undefined) this.#early.push(chunk);
    else if (consumer.write(chunk) || this.#consumer === undefined) return;
    this.#pausedAt = this.lastByteAt;
    this.#origin.stream.pause();
    this.#tellArrival();
  }

  #onEnd(): void {
    if (!this.#origin.isComplete) return this.fail('body_aborted');
    this.#hasEnded = true;
    this.#finish()?.end();
    this.#tellArrival();
  }

  #tellArrival(): void {
    this.#onArrival?.();
    this.#onArrival = undefined;
  }

  #finish(): ContentConsumer | undefined {
    const consumer = this.#consumer;
    this.#consumer = undefined;
    this.#isHeld = false;
    this.#pausedAt = undefined;
    this.#watch.remove(this);
    return consumer;
  }
}
