/** Streams a request body: limited in rate, not in size, and with only a few chunks in memory. */

import { freeChunk } from '../../core/buffers.ts';
import type { Milliseconds } from '../../core/clock.ts';
import { type PauseOwner, ReadPause } from '../../core/read-pause.ts';
import type { Reason } from '../../core/refusal.ts';
import type { BodyConsumer, BodyStream } from '../../core/request.ts';
import { onEvent } from '../../core/safe-events.ts';
import { type BodySource, isCutOff } from './body-source.ts';
import type { BodyInProgress, BodyWatch } from './limits.ts';

/** The body of a request, as a stream. */
export class IncomingStream implements BodyStream, BodyInProgress {
  readonly length: number | undefined;
  readonly isBuffered = false;
  readonly owner: PauseOwner;
  startedAt: Milliseconds = 0;
  lastByteAt: Milliseconds = 0;
  received = 0;
  readonly #source: BodySource;
  readonly #watch: BodyWatch;
  #consumer: BodyConsumer | undefined;
  /** Chunks that arrived before there was a consumer. */
  #early: Buffer[] = [];
  readonly #onBegin: () => void;
  #hasBegun = false;
  /** Arriving chunks are kept for a consumer that is not attached yet. */
  #isHeld = false;
  #hasEnded = false;
  #onAvailable: (() => void) | undefined;
  #pause: ReadPause | undefined;
  /** From the first chunk until there is a consumer. */
  #arrival: ReadPause | undefined;
  #brokenBy: Reason | undefined;

  /** `onBegin`: called before it is read. */
  constructor(source: BodySource, watch: BodyWatch, owner: PauseOwner, onBegin: () => void) {
    this.#source = source;
    this.#onBegin = onBegin;
    this.owner = owner;
    this.length = source.declaredLength;
    this.#watch = watch;
  }

  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  get isPaused(): boolean {
    return this.#pause !== undefined;
  }

  start(consumer: BodyConsumer): void {
    this.#consumer = consumer;
    this.#isHeld = false;
    if (isCutOff(this.#source)) this.#brokenBy ??= 'body_aborted';
    // Also if it has ended since: some of it was given up.
    if (this.#brokenBy !== undefined) return this.#finish()?.fail(this.#brokenBy);
    if (!this.#hasBegun) return this.#begin();
    this.#arrival?.end();
    for (const chunk of this.#early.splice(0)) this.#write(consumer, chunk);
    if (this.#hasEnded) this.#finish()?.end();
  }

  /**
   * Starts to read, and resolves with the first bytes, the end, or the reason why neither arrives. Chunks are kept for `start`.
   */
  async arriving(): Promise<Reason | undefined> {
    if (isCutOff(this.#source)) this.#brokenBy ??= 'body_aborted';
    if (this.#brokenBy !== undefined) return this.#brokenBy;
    const available = new Promise<void>((resolve) => {
      this.#onAvailable = resolve;
    });
    this.#isHeld = true;
    this.#begin();
    await available;
    return this.#brokenBy;
  }

  #begin(): void {
    const { stream, expectsContinue } = this.#source;
    this.#hasBegun = true;
    this.#onBegin();
    if (expectsContinue) this.#source.sendContinue();
    this.startedAt = this.#watch.now();
    this.lastByteAt = this.startedAt;
    this.#watch.add(this);
    onEvent(stream, 'data', (chunk: Buffer) => this.#onData(chunk));
    onEvent(stream, 'end', () => this.#onEnd());
    onEvent(stream, 'error', () => this.fail('body_aborted'));
    onEvent(stream, 'close', () => this.fail('body_aborted'));
  }

  stop(): void {
    this.#finish();
    this.#freeEarly();
    const { stream, isComplete, isMultiplexed } = this.#source;
    stream.resume();
    if (!isComplete && !isMultiplexed) this.#watch.endDrained(stream);
  }

  /** Fails the body; before `start`, it fails on `start`. */
  fail(reason: Reason): void {
    if (this.#hasEnded) return;
    this.#brokenBy ??= reason;
    this.#finish()?.fail(reason);
    this.#freeEarly();
    this.#notifyAvailable();
  }

  #onData(chunk: Buffer): void {
    const consumer = this.#consumer;
    this.#watch.onBytes(chunk.length);
    if (consumer === undefined && !this.#isHeld) return freeChunk(chunk);
    this.received += chunk.length;
    this.lastByteAt = this.#watch.now();
    if (consumer !== undefined) return this.#write(consumer, chunk);
    this.#early.push(chunk);
    this.#arrival ??= new ReadPause(this.owner, chunk.length, this.#watch.limits.streamTimeout, (isEvicted) =>
      this.fail(isEvicted ? 'buffer_full' : 'body_timeout'),
    );
    this.#hold(this.#arrival);
    this.#notifyAvailable();
  }

  #write(consumer: BodyConsumer, chunk: Buffer): void {
    const pause = consumer.write(chunk);
    if (pause !== undefined && this.#consumer !== undefined) this.#hold(pause);
  }

  /** The sender did not cause the pause, so the time of the pause does not count for the limits. */
  #hold(pause: ReadPause): void {
    if (pause.isOver) return;
    const startedAt = this.#watch.now();
    this.#pause = pause;
    pause.hold(this.#source.stream, () => {
      this.#pause = undefined;
      const now = this.#watch.now();
      this.startedAt += now - startedAt;
      this.lastByteAt = now;
    });
  }

  #onEnd(): void {
    if (!this.#source.isComplete) return this.fail('body_aborted');
    this.#hasEnded = true;
    this.#finish()?.end();
    this.#notifyAvailable();
  }

  #freeEarly(): void {
    for (const chunk of this.#early.splice(0)) freeChunk(chunk);
  }

  #notifyAvailable(): void {
    this.#onAvailable?.();
    this.#onAvailable = undefined;
  }

  #finish(): BodyConsumer | undefined {
    const consumer = this.#consumer;
    this.#consumer = undefined;
    this.#isHeld = false;
    this.#pause?.release(this.#source.stream);
    this.#pause = undefined;
    this.#arrival?.end();
    this.#watch.remove(this);
    return consumer;
  }
}
