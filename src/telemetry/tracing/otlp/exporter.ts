/** Sends spans to a collector in batches: never in a request's way, bounded in memory, and telling what was lost. */
import type { CancelTimer, Clock, Milliseconds } from '../../../core/clock.ts';
import type { SpanOutcome } from '../../metrics/labels.ts';
import type { Span } from '../span.ts';
import { type SpanSource, toExport } from './encode.ts';
import type { PostSpans } from './post.ts';

/** How spans are sent. */
export interface ExporterOptions {
  readonly source: SpanSource;
  /** Longest wait of a span for others. */
  readonly interval: Milliseconds;
  readonly maxQueued: number;
}

/** What is told of it. */
export interface ExporterEvents {
  onSpans(outcome: SpanOutcome, count: number): void;
  /** Once for each time that exports begin to fail. */
  onTrouble(why: string): void;
  /** Exports get through again. */
  onRecovery(): void;
}

/** What the SDKs of OpenTelemetry send at once. */
const BATCH = 512;
/** Waits between attempts at the same batch; after the last one it is given up. */
const RETRY_AFTER_MS: readonly Milliseconds[] = [1_000, 2_000, 4_000, 8_000];
const LONGEST_RETRY_AFTER_MS = 30_000;
/** Spans of refused requests take no more than this share of the room: a flood of strangers must not crowd out the rest. */
const REFUSED_SHARE = 0.5;

/** The queue and what empties it. */
export class SpanExporter {
  readonly #options: ExporterOptions;
  readonly #events: ExporterEvents;
  readonly #post: PostSpans;
  readonly #clock: Clock;
  #queue: Span[] = [];
  #sending: Promise<void> | undefined;
  #cancelTimer: CancelTimer | undefined;
  #endWait: (() => void) | undefined;
  #isTroubled = false;
  #isClosing = false;

  constructor(options: ExporterOptions, post: PostSpans, clock: Clock, events: ExporterEvents) {
    this.#options = options;
    this.#post = post;
    this.#clock = clock;
    this.#events = events;
  }

  /** Takes a span; never waits, never throws. */
  add(span: Span): void {
    const { maxQueued, interval } = this.#options;
    const room = span.attributes['sidegate.decision'] === 'deny' ? maxQueued * REFUSED_SHARE : maxQueued;
    if (this.#isClosing || this.#queue.length >= room) return this.#events.onSpans('dropped', 1);
    this.#queue.push(span);
    if (this.#sending !== undefined) return;
    if (this.#queue.length >= BATCH) this.#begin();
    else this.#cancelTimer ??= this.#clock.after(interval, () => this.#begin());
  }

  /** Sends what is left, for at most this long; what cannot be sent by then is dropped. */
  async close(atMost: Milliseconds): Promise<void> {
    this.#isClosing = true;
    this.#endWait?.();
    if (this.#queue.length > 0) this.#begin();
    let cancel: CancelTimer = () => undefined;
    const late = new Promise<void>((resolve) => {
      cancel = this.#clock.after(atMost, resolve);
    });
    await Promise.race([this.#sending, late]);
    cancel();
    this.#post.close();
    await this.#sending;
    this.#cancelTimer?.();
  }

  #begin(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = undefined;
      if (this.#queue.length > 0) this.#cancelTimer ??= this.#clock.after(this.#options.interval, () => this.#begin());
    });
  }

  /** One batch after the other, until less than a batch is left: that waits for more. */
  async #sendAll(): Promise<void> {
    do {
      const batch = this.#queue.splice(0, BATCH);
      await this.#send(batch);
    } while (this.#queue.length >= BATCH || (this.#isClosing && this.#queue.length > 0));
  }

  async #send(batch: readonly Span[]): Promise<void> {
    const body = toExport(batch, this.#options.source);
    for (let attempt = 0; ; attempt++) {
      const result = await this.#post.send(body);
      if (result.kind === 'taken') return this.#onTaken(batch.length, result.rejected, result.message);
      this.#tell(result.why);
      const pause = RETRY_AFTER_MS[attempt];
      if (!result.mayRetry || pause === undefined || this.#isClosing)
        return this.#events.onSpans(result.mayRetry ? 'failed' : 'rejected', batch.length);
      await this.#wait(Math.min(LONGEST_RETRY_AFTER_MS, result.retryAfter ?? pause));
    }
  }

  #onTaken(count: number, rejected: number, message: string | undefined): void {
    const lost = Math.min(count, rejected);
    if (count > lost) this.#events.onSpans('exported', count - lost);
    if (lost > 0) {
      this.#events.onSpans('rejected', lost);
      return this.#tell(`the collector rejected ${lost} spans${message === undefined ? '' : `: ${message}`}`);
    }
    if (this.#isTroubled) this.#events.onRecovery();
    this.#isTroubled = false;
  }

  #tell(why: string): void {
    if (!this.#isTroubled) this.#events.onTrouble(why);
    this.#isTroubled = true;
  }

  #wait(delay: Milliseconds): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.#clock.after(delay, resolve);
      this.#endWait = () => {
        cancel();
        resolve();
      };
    });
  }
}
