/** Lines on their way to a file descriptor: written in batches, off the event loop, and bounded in what waits. */
import { type DestinationStream, destination as openDestination } from 'pino';
import { onEvent } from '../../core/safe-events.ts';

/** Below Docker's read size of 16 KiB, so that a batch is taken in one piece. */
const BATCH_LENGTH = 12_288;
/** What may wait for a reader; more would end in the memory limit. */
const MOST_WAITING_BYTES = 4 * 1024 * 1024;

/**
 * Gathers lines and has them written together. A write for each line would cost more than the line; and pino's own
 * buffering measures the whole buffer again at each line, which costs four times as much as gathering them here.
 */
export class LogBatches implements DestinationStream {
  readonly #stream: ReturnType<typeof openDestination>;
  #lines: string[] = [];
  #length = 0;
  #dropped = 0;

  constructor(fd: number) {
    this.#stream = openDestination({ fd, sync: false, maxLength: MOST_WAITING_BYTES });
    // A full disk or a closed pipe must not end the gate.
    onEvent(this.#stream, 'error', () => undefined);
    onEvent(this.#stream, 'drop', (batch: string) => {
      this.#dropped += batch.split('\n').length - 1;
    });
  }

  write(line: string): void {
    this.#lines.push(line);
    this.#length += line.length;
    if (this.#length >= BATCH_LENGTH) this.flush();
  }

  /** Starts to write what was gathered. */
  flush(): void {
    if (this.#length === 0) return;
    const batch = this.#lines.join('');
    this.#lines = [];
    this.#length = 0;
    this.#stream.write(batch);
  }

  /** Writes everything before it returns; throws what the system says. */
  flushSync(): void {
    this.flush();
    this.#stream.flushSync();
  }

  /** How many lines were dropped since it was last asked, because nobody took those before them. */
  takeDropped(): number {
    const dropped = this.#dropped;
    this.#dropped = 0;
    return dropped;
  }
}
