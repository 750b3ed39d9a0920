/** A worker other than the first, in its own thread: runs the tasks of the main thread, reports to it, and passes its log on to it. */
import type { MessagePort } from 'node:worker_threads';
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { onEvent, runDetached } from '../../core/safe-events.ts';
import type { LogDestination } from '../../telemetry/log/logger.ts';
import type { Gate } from '../gate.ts';
import {
  type ExplanationLines,
  type FromWorker,
  type TaskResult,
  type ToWorker,
  takeReport,
  type WorkerReport,
  type WorkerTask,
} from './messages.ts';

/**
 * A report also shows that the worker is not stuck. Each decision in it costs 6 µs of CPU, and a report has no more of them than the journal
 * keeps: a longer interval costs less under load. The admin port asks for a report when it shows anything.
 */
const REPORT_INTERVAL_MS: Milliseconds = 1_000;

/** Like a batch on standard output. */
const BATCH_LENGTH = 12_288;
/** Characters that the main thread has not written yet: without a bound, a main thread that is busy for long would fill the memory. */
const MAX_UNWRITTEN = 2 * 1024 * 1024;

/** The connection of a worker to the main thread. */
export class WorkerLink {
  readonly #parts;
  readonly #cancelReports: CancelTimer;
  /** The main thread has not received the last report: a busy one must not collect them. */
  #isReporting = false;

  constructor(parts: {
    readonly port: MessagePort;
    readonly gate: Gate;
    readonly clock: Clock;
    /** Filled by the gate. */
    readonly explanations: ExplanationLines[];
    readonly flush: () => void;
    readonly flushed: SharedArrayBuffer;
  }) {
    this.#parts = parts;
    this.#cancelReports = parts.clock.every(REPORT_INTERVAL_MS, () => this.#report());
    onEvent(parts.port, 'message', (message: ToWorker) => this.#onMessage(message));
  }

  /** The gate serves the ports. */
  ready(): void {
    this.#post({ kind: 'ready' });
  }

  /** Passes on what is not reported yet, and that an exception was not handled: the main thread drains all workers. */
  async fail(): Promise<void> {
    const report = await this.#takeReport(false);
    this.#post({ kind: 'report', report });
    this.#post({ kind: 'failed', message: 'it had an exception that nothing handled: see escaped_error' });
  }

  #onMessage(message: ToWorker): void {
    if (message.kind === 'received') this.#isReporting = false;
    else if (message.kind === 'enter') this.#parts.gate.enter(message.phase);
    else if (message.kind === 'flush') this.#flush();
    else runDetached(this.#run(message.id, message.task));
  }

  async #run(id: number, task: WorkerTask): Promise<void> {
    const value = await this.#toResult(task);
    this.#post({ kind: 'result', id, value });
  }

  async #toResult(task: WorkerTask): Promise<TaskResult> {
    const { gate, flush } = this.#parts;
    if (task.name === 'prepare') return { problems: await gate.prepareNext(task.hash) };
    if (task.name === 'report') return { report: await this.#takeReport(task.hasGauges) };
    if (task.name === 'commit') {
      await gate.applyNext();
      return { hasCommitted: true };
    }
    if (task.name === 'reload-files') {
      await gate.reloadFiles(task.changed);
      return {};
    }
    const isFinished = await gate.stop();
    this.#cancelReports();
    flush();
    return { isFinished, report: await this.#takeReport(false) };
  }

  async #report(): Promise<void> {
    if (this.#isReporting) return;
    this.#isReporting = true;
    const report = await this.#takeReport(false);
    this.#post({ kind: 'report', report });
  }

  #takeReport(hasGauges: boolean): Promise<WorkerReport> {
    const { gate, explanations } = this.#parts;
    return takeReport(gate.reported, explanations, hasGauges);
  }

  /** The main thread waits, and reads the lines when the number has changed. */
  #flush(): void {
    this.#parts.flush();
    const flushed = new Int32Array(this.#parts.flushed);
    Atomics.add(flushed, 0, 1);
    Atomics.notify(flushed, 0);
  }

  #post(message: FromWorker): void {
    this.#parts.port.postMessage(message);
  }
}

/** Passes lines to the main thread in batches, which writes them, so that lines of two workers never mix. */
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
