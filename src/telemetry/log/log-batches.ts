/** Writes log lines to a file descriptor in batches, off the event loop, with a bounded buffer; as JSON, or as text for people. */
import fs from 'node:fs';
import { type DestinationStream, destination as openDestination } from 'pino';
import { type CancelTimer, type Clock, type Milliseconds, toInstant } from '../../core/clock.ts';
import { onEvent } from '../../core/safe-events.ts';

/** The capacity of a pipe on Linux. Each write wakes a thread: batches of 12 KiB cost three times as much CPU for each line. */
const BATCH_LENGTH = 65_536;
/** The buffer for a slow reader; without this bound the process would reach its memory limit. */
const MAX_BUFFERED_BYTES = 4 * 1024 * 1024;

/** Errors of a pipe that is full. */
const RETRIED: ReadonlySet<string> = new Set(['EAGAIN', 'EBUSY']);

/** The default of `log.flush`. */
export const DEFAULT_FLUSH_MS: Milliseconds = 250;

/** How long lines may wait. */
interface BatchTimes {
  readonly clock: Pick<Clock, 'after'>;
  /** The longest time from a line to its write. */
  readonly flushAfter: Milliseconds;
  /** Changes what is written; default: the lines as they are. */
  readonly format?: ((lines: string) => string) | undefined;
}

/**
 * Collects lines and writes them together. One write per line would cost more than formatting the line, and pino's own
 * buffering measures the whole buffer again for each line, which costs four times as much as collecting them here.
 */
export class LogBatches implements DestinationStream {
  readonly #stream: ReturnType<typeof openDestination>;
  /** For lines that must be written before the process goes on, or ends: `#stream` would write the first of them off the event loop. */
  readonly #sync: ReturnType<typeof openDestination>;
  readonly #times: BatchTimes;
  #cancelFlush: CancelTimer | undefined;
  #lines: string[] = [];
  #length = 0;
  #dropped = 0;
  #isWriting = false;
  #waiting: (() => void)[] = [];

  constructor(fd: number, times: BatchTimes) {
    this.#times = times;
    this.#stream = openDestination({ fd, sync: false, maxLength: MAX_BUFFERED_BYTES });
    this.#sync = openDestination({ fd, sync: true });
    // A full disk or a closed pipe must not crash the process.
    for (const stream of [this.#stream, this.#sync]) onEvent(stream, 'error', () => this.#onWritten());
    onEvent(this.#stream, 'drain', () => this.#onWritten());
    onEvent(this.#stream, 'drop', (batch: string) => {
      this.#dropped += batch.split('\n').length - 1;
    });
  }

  write(line: string): void {
    this.#lines.push(line);
    this.#length += line.length;
    if (this.#length >= BATCH_LENGTH) this.flush();
    else this.#cancelFlush ??= this.#times.clock.after(this.#times.flushAfter, () => this.flush());
  }

  /** Starts writing the collected lines. */
  flush(): void {
    const batch = this.#take();
    if (batch === '') return;
    this.#isWriting = true;
    this.#stream.write(batch);
  }

  /** Resolves once everything was written or has failed; never while the reader of a full pipe does not read. */
  whenFlushed(): Promise<void> {
    this.flush();
    return this.#isWriting ? new Promise((resolve) => this.#waiting.push(resolve)) : Promise.resolve();
  }

  /** Writes everything before it returns, even if a full pipe blocks the thread for that; throws the system's error. */
  flushSync(): void {
    const batch = this.#take();
    failOnce(() => {
      this.#stream.flushSync();
      if (batch !== '') this.#sync.write(batch);
    });
  }

  /** Of all batches, or after an error. */
  #onWritten(): void {
    this.#isWriting = false;
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  #take(): string {
    this.#cancelFlush?.();
    this.#cancelFlush = undefined;
    const batch = this.#lines.join('');
    this.#lines = [];
    this.#length = 0;
    return this.#times.format?.(batch) ?? batch;
  }

  /** Returns the number of lines dropped since the last call, because the reader was too slow. */
  takeDropped(): number {
    const dropped = this.#dropped;
    this.#dropped = 0;
    return dropped;
  }
}

/**
 * Calls `flushSync` of sonic-boom, pino's writer, which repeats a write after any error, forever: once the reader of a pipe is gone, a
 * process could not exit. Here only a reader that is slow is worth another try; after any other error, the lines are dropped, and the error is thrown.
 */
function failOnce(flushSync: () => void): void {
  const { writeSync } = fs;
  let failure: { readonly error: unknown } | undefined;
  const writeOrDrop = (...args: [fd: number, text: string]): number => {
    try {
      return writeSync(...args);
    } catch (error) {
      if (RETRIED.has((error as NodeJS.ErrnoException).code ?? '')) throw error;
      failure = { error };
      return Buffer.byteLength(args[1]);
    }
  };
  fs.writeSync = writeOrDrop as typeof writeSync;
  try {
    flushSync();
  } finally {
    fs.writeSync = writeSync;
  }
  if (failure !== undefined) throw failure.error;
}

const TIME_START = 'YYYY-MM-DDT'.length;
const TIME_END = TIME_START + 'HH:MM:SS'.length;
const LEVEL_WIDTH = 5;
const HEX = 16;

/** Formats lines for people: `21:30:05 info  request route=stripe status=200 …` for each line of JSON; times are in UTC. */
export function toTextLines(lines: string): string {
  return lines.replace(/[^\n]+/g, toTextLine);
}

function toTextLine(line: string): string {
  const { level, time, service: _, version, msg, ...fields } = JSON.parse(line) as Readonly<Record<string, unknown>>;
  const start = `${toInstant(Number(time)).slice(TIME_START, TIME_END)} ${String(level).padEnd(LEVEL_WIDTH)} ${String(msg)}`;
  return [start, ...Object.entries(fields).map(([name, value]) => `${name}=${toWord(value)}`)].join(' ');
}

/** As in JSON unless it is one word: what clients send can neither add a line nor control the terminal. */
function toWord(value: unknown): string {
  if (typeof value === 'string' && /^[\w./:@+-]+$/.test(value)) return value;
  return JSON.stringify(value).replace(/[\x7f-\x9f]/g, (char) => `\\u00${char.charCodeAt(0).toString(HEX)}`);
}
