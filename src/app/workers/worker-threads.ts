/** The workers of a process other than the first, each in a thread. */
import { getHeapStatistics } from 'node:v8';
import type { Overrides } from '../../config/load/overrides.ts';
import { type Clock, type Milliseconds, within } from '../../core/clock.ts';
import { error, type LocatedProblem, locate } from '../../core/problem.ts';
import type { ListenPhase } from '../../http/server/server.ts';
import { STUCK_AFTER_MS } from '../../telemetry/metrics/event-loop-monitor.ts';
import type { Gauges } from '../../telemetry/metrics/thread-metrics.ts';
import type { OtherWorkers } from './other-workers.ts';
import type { WorkerReport } from './report.ts';
import type { JoinedPorts } from './share.ts';
import { WorkerThread } from './worker-thread.ts';

/** How the threads are started, and what they pass on. */
interface WorkerThreadsParts {
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
}

/** A scrape must not wait longer for a worker that is busy. */
const COLLECT_TIMEOUT_MS: Milliseconds = 1_000;
/** The files of a config may be on a slow disk. */
const PREPARE_TIMEOUT_MS: Milliseconds = 10_000;
const MIB = 1024 * 1024;

/** The threads. */
export class WorkerThreads implements OtherWorkers {
  readonly #parts: WorkerThreadsParts;
  #threads: readonly WorkerThread[] = [];
  #receive: (report: WorkerReport) => void = () => undefined;

  constructor(parts: WorkerThreadsParts) {
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
    return [locate(error(['workers'], message, 'reload again, or restart the gate'), this.#parts.file)];
  }
}
