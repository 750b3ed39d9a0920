/** The log of a worker: lines are passed to the main thread in batches, which writes them, so that lines of two workers never mix. */
import type { MessagePort } from 'node:worker_threads';
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { onEvent } from '../../core/safe-events.ts';
import type { LogDestination } from '../../telemetry/log/logger.ts';

/** Like a batch on standard output. */
const BATCH_LENGTH = 12_288;
/** Characters that the main thread has not written yet: without a bound, a main thread that is busy for long would fill the memory. */
const MAX_UNWRITTEN = 2 * 1024 * 1024;

/** Collects lines and passes them on together. */
export class PostedLines implements LogDestination {
  readonly #port: MessagePort;
  readonly #clock: Pick<Clock, 'after'>;
  /** The longest time from a line to its message. */
  readonly #flushAfter: Milliseconds;
  #cancelFlush: CancelTimer | undefined;
  #lines: string[] = [];
  #length = 0;
  #unwritten = 0;
  #dropped = 0;

  constructor(port: MessagePort, clock: Pick<Clock, 'after'>, flushAfter: Milliseconds) {
    this.#port = port;
    this.#clock = clock;
    this.#flushAfter = flushAfter;
    onEvent(port, 'message', (written: number) => {
      this.#unwritten -= written;
    });
    // It must not keep a worker alive that has stopped.
    port.unref();
  }

  write(line: string): void {
    this.#lines.push(line);
    this.#length += line.length;
    if (this.#length >= BATCH_LENGTH) this.flushSync();
    else this.#cancelFlush ??= this.#clock.after(this.#flushAfter, () => this.flushSync());
  }

  flushSync(): void {
    this.#cancelFlush?.();
    this.#cancelFlush = undefined;
    if (this.#length === 0) return;
    const text = this.#lines.join('');
    if (this.#unwritten + text.length > MAX_UNWRITTEN) this.#dropped += this.#lines.length;
    else {
      this.#unwritten += text.length;
      this.#port.postMessage(text);
    }
    this.#lines = [];
    this.#length = 0;
  }

  takeDropped(): number {
    const dropped = this.#dropped;
    this.#dropped = 0;
    return dropped;
  }
}
