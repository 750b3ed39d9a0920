/** The workers of a process other than the first, each in a thread. */
import { getHeapStatistics } from 'node:v8';
import { MessageChannel, receiveMessageOnPort, Worker } from 'node:worker_threads';
import type { Overrides } from '../../config/load/load.ts';
import { type Clock, type Milliseconds, within } from '../../core/clock.ts';
import { toErrorSummary } from '../../core/errors.ts';
import { error, type LocatedProblem, locate } from '../../core/problem.ts';
import { onEvent } from '../../core/safe-events.ts';
import type { ListenPhase } from '../../http/server/server.ts';
import { STUCK_AFTER_MS } from '../../telemetry/metrics/process-metrics.ts';
import type { Gauges } from '../../telemetry/metrics/thread-metrics.ts';
import type { FromWorker, OtherWorkers, TaskResult, ToWorker, WorkerReport, WorkerStart, WorkerTask } from './messages.ts';
import type { JoinedPorts } from './share.ts';

/** A scrape must not wait longer for a worker that is busy. */
const COLLECT_TIMEOUT_MS: Milliseconds = 1_000;
/** The files of a config may be on a slow disk. */
const PREPARE_TIMEOUT_MS: Milliseconds = 10_000;
const MIB = 1024 * 1024;

/** Time for a worker to pass on its last lines while the process exits. */
const FLUSH_TIMEOUT_MS: Milliseconds = 200;

/** All of them. */
export class WorkerThreads implements OtherWorkers {
  readonly #parts;
  #threads: readonly WorkerThread[] = [];
  #receive: (report: WorkerReport) => void = () => undefined;

  constructor(parts: {
    /** Of all workers, including the first. */
    readonly count: number;
    /** The module that starts a worker (cli/main.ts, or its bundle). */
    readonly entry: URL;
    readonly file: string;
    readonly overrides: Overrides;
    readonly clock: Clock;
    /** How long a drain may take. */
    readonly drainTimeout: Milliseconds;
    /** Complete lines of the log. */
    readonly onLines: (text: string) => void;
    /** A worker, counted from 1, ended or had an exception that nothing handled. */
    readonly onLost: (worker: number, message: string) => void;
  }) {
    this.#parts = parts;
  }

  get gauges(): readonly Gauges[] {
    return this.#threads.map(({ gauges }) => gauges);
  }

  get stuckFor(): Milliseconds | undefined {
    const stuck = this.#threads.flatMap(({ stuckFor = 0, silentFor }) => Math.max(stuckFor, silentFor));
    const longest = Math.max(0, ...stuck);
    return longest < STUCK_AFTER_MS ? undefined : longest;
  }

  onReport(receive: (report: WorkerReport) => void): void {
    this.#receive = receive;
  }

  async start(ports: JoinedPorts, hash: string): Promise<void> {
    const { count, entry, file, overrides, clock, onLines, onLost } = this.#parts;
    // So that the heaps of all others together are as large as that of the first.
    const heapMebibytes = Math.ceil(getHeapStatistics().heap_size_limit / MIB / (count - 1));
    this.#threads = Array.from({ length: count - 1 }, (_, position) => {
      const index = position + 1;
      return new WorkerThread({
        entry,
        start: { index, file, overrides, ports, hash },
        clock,
        heapMebibytes,
        onLines,
        onReport: (report) => this.#receive(report),
        onLost: (message) => onLost(index + 1, message),
      });
    });
    try {
      await Promise.all(this.#threads.map(({ ready }) => ready));
    } catch (thrown) {
      await this.#terminate();
      throw thrown;
    }
  }

  async prepare(hash: string): Promise<readonly LocatedProblem[]> {
    const problems = await Promise.all(this.#threads.map((thread, position) => this.#prepareOne(thread, position + 2, hash)));
    // All read the same files, so all have the same problems.
    return problems.find(({ length }) => length > 0) ?? [];
  }

  async commit(apply: () => void): Promise<void> {
    await Promise.all(this.#threads.map((thread) => thread.run({ name: 'commit' })));
    try {
      apply();
    } finally {
      for (const thread of this.#threads) thread.releaseReports();
    }
  }

  async reloadFiles(changed: readonly string[]): Promise<void> {
    await Promise.all(this.#threads.map((thread) => thread.run({ name: 'reload-files', changed })));
  }

  enter(phase: ListenPhase): void {
    // Nothing waits for it: a worker that is lost ends the process anyway.
    for (const thread of this.#threads) thread.post({ kind: 'enter', phase });
  }

  async collect(hasGauges: boolean): Promise<void> {
    const reports = this.#threads.map((thread) => thread.run({ name: 'report', hasGauges }));
    await within(this.#parts.clock, COLLECT_TIMEOUT_MS, Promise.all(reports));
  }

  async stop(): Promise<boolean> {
    const { clock, drainTimeout } = this.#parts;
    let isFinished = true;
    const stopped = Promise.all(
      this.#threads.map(async (thread) => {
        const result = await thread.run({ name: 'stop' });
        if (result?.isFinished !== true) isFinished = false;
      }),
    );
    const isInTime = await within(clock, drainTimeout, stopped);
    await this.#terminate();
    return isInTime && isFinished;
  }

  /** Passes on the last lines of all workers, for the end of the process. */
  flushNow(): void {
    for (const thread of this.#threads) thread.flushNow();
  }

  async #terminate(): Promise<void> {
    await Promise.all(this.#threads.map((thread) => thread.terminate()));
    this.#threads = [];
  }

  async #prepareOne(thread: WorkerThread, worker: number, hash: string): Promise<readonly LocatedProblem[]> {
    let found: readonly LocatedProblem[] | undefined;
    const prepared = thread.run({ name: 'prepare', hash }).then((result) => {
      found = result?.problems;
    });
    await within(this.#parts.clock, PREPARE_TIMEOUT_MS, prepared);
    if (found !== undefined) return found;
    const message = `worker ${worker} did not read the config within ${PREPARE_TIMEOUT_MS / 1_000} s`;
    return [locate(error(['workers'], message, 'reload again, or restart sidegate'), this.#parts.file)];
  }
}

/** A worker, as the main thread sees it: its thread, the tasks that it has, its reports and lines of the log. */
class WorkerThread {
  readonly #parts;
  readonly #thread: Worker;
  readonly #lines: MessageChannel;
  readonly #flushed = new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT);
  readonly #tasks = new Map<number, (result: TaskResult | undefined) => void>();
  readonly #ready: Promise<void>;
  #settleReady: (lost?: string) => void = () => undefined;
  #lastTask = 0;
  #heardAt: Milliseconds;
  /** It applies a config that the main thread does not have yet: its reports wait. */
  #held: WorkerReport[] | undefined;
  #isLost = false;
  #hasReported = false;
  #isStopping = false;
  gauges: Gauges = new Map();
  #stuckFor: Milliseconds | undefined;

  constructor(parts: {
    /** The module that starts a worker. */
    readonly entry: URL;
    readonly start: Omit<WorkerStart, 'kind' | 'lines' | 'flushed'>;
    readonly clock: Clock;
    /** The limit of its heap. */
    readonly heapMebibytes: number;
    readonly onLines: (text: string) => void;
    readonly onReport: (report: WorkerReport) => void;
    /** It ended, or had an exception that nothing handled: called once. */
    readonly onLost: (message: string) => void;
  }) {
    this.#parts = parts;
    this.#heardAt = parts.clock.monotonic();
    this.#ready = new Promise((resolve, reject) => {
      const settle = (lost: string | undefined): void => (lost === undefined ? resolve() : reject(new Error(lost)));
      this.#settleReady = settle;
    });
    // Nothing waits for it if the worker is lost after its start.
    this.#ready.catch(() => undefined);
    this.#lines = new MessageChannel();
    const { port1, port2 } = this.#lines;
    onEvent(port1, 'message', (text: string) => this.#write(text));
    port1.unref();
    const workerData: WorkerStart = { ...parts.start, kind: 'gate-worker', lines: port2, flushed: this.#flushed };
    this.#thread = new Worker(parts.entry, {
      workerData,
      transferList: [port2],
      resourceLimits: { maxOldGenerationSizeMb: parts.heapMebibytes },
    });
    onEvent(this.#thread, 'message', (message: FromWorker) => this.#onMessage(message));
    onEvent(this.#thread, 'error', (thrown) => this.#lose(`its thread ended: ${toErrorSummary(thrown).error}`));
    onEvent(this.#thread, 'exit', (code) => this.#lose(`its thread ended with code ${code}`));
  }

  /** Resolves when it serves the ports; rejects if it cannot. */
  get ready(): Promise<void> {
    return this.#ready;
  }

  /** Since its last message. */
  get silentFor(): Milliseconds {
    return this.#parts.clock.monotonic() - this.#heardAt;
  }

  /** See EventLoopMonitor; at its last report. */
  get stuckFor(): Milliseconds | undefined {
    return this.#stuckFor;
  }

  /** Resolves with the result, or with undefined if the worker is lost. */
  run(task: WorkerTask): Promise<TaskResult | undefined> {
    if (this.#isLost) return Promise.resolve(undefined);
    this.#isStopping ||= task.name === 'stop';
    const id = ++this.#lastTask;
    return new Promise((resolve) => {
      this.#tasks.set(id, resolve);
      this.post({ kind: 'task', id, task });
    });
  }

  /** Sends a message that has no result. */
  post(message: ToWorker): void {
    this.#thread.postMessage(message);
  }

  /** Passes on the reports since the worker applied a config: the main thread has it as well now, with the routes that they name. */
  releaseReports(): void {
    const held = this.#held ?? [];
    this.#held = undefined;
    for (const report of held) this.#parts.onReport(report);
  }

  /** Reads its last lines, for the end of the process; the thread must still run. */
  flushNow(): void {
    const flushed = new Int32Array(this.#flushed);
    const before = Atomics.load(flushed, 0);
    if (!this.#isLost) {
      this.post({ kind: 'flush' });
      Atomics.wait(flushed, 0, before, FLUSH_TIMEOUT_MS);
    }
    for (;;) {
      const received = receiveMessageOnPort(this.#lines.port1);
      if (received === undefined) return;
      this.#parts.onLines(received.message as string);
    }
  }

  /** Ends the thread, and cuts off all that it was doing. */
  async terminate(): Promise<void> {
    this.#isStopping = true;
    await this.#thread.terminate();
    this.flushNow();
    this.#lines.port1.close();
  }

  #write(text: string): void {
    this.#parts.onLines(text);
    this.#lines.port1.postMessage(text.length);
  }

  #onMessage(message: FromWorker): void {
    this.#heardAt = this.#parts.clock.monotonic();
    if (message.kind === 'ready') this.#settleReady();
    else if (message.kind === 'failed') this.#report(message.message);
    else if (message.kind === 'report') {
      this.#receive(message.report);
      this.post({ kind: 'received' });
    } else {
      const { report, hasCommitted } = message.value;
      if (report !== undefined) this.#receive(report);
      // From here on, its reports are those of the new config.
      if (hasCommitted === true) this.#held = [];
      this.#tasks.get(message.id)?.(message.value);
      this.#tasks.delete(message.id);
    }
  }

  #receive(report: WorkerReport): void {
    this.#stuckFor = report.stuckFor;
    this.gauges = report.gauges ?? this.gauges;
    if (this.#held === undefined) this.#parts.onReport(report);
    else this.#held.push(report);
  }

  /** It no longer runs. */
  #lose(message: string): void {
    this.#isLost = true;
    for (const resolve of this.#tasks.values()) resolve(undefined);
    this.#tasks.clear();
    this.#report(message);
  }

  /** After an exception it still runs: it finishes its requests. */
  #report(message: string): void {
    this.#settleReady(message);
    if (this.#isStopping || this.#hasReported) return;
    this.#hasReported = true;
    this.#parts.onLost(message);
  }
}
