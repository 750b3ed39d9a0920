/** Stops a running command after a signal or an unhandled exception, with a drain that always ends, and what a command has started. */
import { Worker } from 'node:worker_threads';
import { type Milliseconds, systemClock, within } from '../core/clock.ts';
import { onEvent, reportEscaped, runDetached } from '../core/safe-events.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import { EXIT } from './io.ts';

/** Time for the drain beyond the configured times: for settlements, spans, and closing the store. */
export const MARGIN_MS: Milliseconds = 5_000;
/** A main thread that has not ended the process this long after the margin never does. */
const BLOCKED_MS: Milliseconds = 1_000;
/** The reader of the log has this long to take the last lines. */
const LAST_LINES_MS: Milliseconds = 2_000;
/** Ends the process although the main thread is blocked. The wait is in the thread, so it needs no turn of any event loop. */
const WATCHDOG = `
const { workerData } = require('node:worker_threads');
Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, workerData);
process.kill(process.pid, 'SIGKILL');`;
const WATCHDOG_LIMITS = { maxOldGenerationSizeMb: 8, maxYoungGenerationSizeMb: 1, stackSizeMb: 1 };

/** Listens for signals and exceptions as soon as it is created, so that none is lost before the ports are open. */
export class Shutdown {
  readonly #logger: Logger<'draining' | 'stopped'>;
  readonly #first: Promise<Readonly<Record<string, string>>>;
  readonly #times;
  #hasFailed = false;
  #onFailed: (reason: string) => void = () => undefined;

  constructor(
    logger: Logger<'draining' | 'stopped'>,
    times: {
      readonly grace: Milliseconds;
      readonly drain: Milliseconds;
    },
  ) {
    this.#logger = logger;
    this.#times = times;
    const failed = new Promise<{ reason: string }>((resolve) => {
      const onFailed = (reason: string): void => resolve({ reason });
      this.#onFailed = onFailed;
    });
    // Includes unhandled rejections. Later exceptions are counted, but do not shorten the drain.
    process.on('uncaughtException', (error) => {
      this.#report(error);
      this.fail('escaped_error');
    });
    this.#first = Promise.race([untilSignal((code) => runDetached(this.#exit(code))).then((signal) => ({ signal })), failed]);
  }

  /** Drains, and then exits with an error: a part of the process does not work. */
  fail(reason: 'endpoints_too_large' | 'escaped_error' | 'worker_lost'): void {
    if (this.#hasFailed) return;
    this.#hasFailed = true;
    this.#onFailed(reason);
  }

  /** Waits for the first reason, drains `server`, and ends the process; the exit code is not 0 after an exception. */
  async drain(server: {
    /** Resolves to true if all requests in flight were finished. */
    stop(): Promise<boolean>;
  }): Promise<never> {
    const reason = await this.#first;
    this.#endInTime();
    this.#logger.info('draining', reason);
    runDetached(this.#logger.flush());
    const isFinished = await server.stop();
    this.#logger.info('stopped', { complete: isFinished });
    // Not by itself: a handle of a library could keep the process alive.
    return this.#exit(this.#hasFailed ? EXIT.failed : EXIT.ok);
  }

  /** While a write waits for the reader of a full pipe, a thread is blocked, and Node would wait for it before it exits. */
  async #exit(code: number): Promise<never> {
    if (!(await within(systemClock, LAST_LINES_MS, this.#logger.flush()))) process.kill(process.pid, 'SIGKILL');
    process.exit(code);
  }

  /** Ends the process even if requests wait, or each turn of the event loop takes long. The claims of these requests are held until their leases end. */
  #endInTime(): void {
    const { grace, drain } = this.#times;
    const atMost = grace + drain + MARGIN_MS;
    systemClock.after(atMost, () => {
      this.#logger.info('stopped', { complete: false, forced: true });
      runDetached(this.#exit(EXIT.failed));
    });
    const options = { eval: true, workerData: atMost + BLOCKED_MS, execArgv: [], env: {}, resourceLimits: WATCHDOG_LIMITS };
    const watchdog = new Worker(WATCHDOG, options);
    watchdog.unref();
    // Without memory for it, the timer is left.
    onEvent(watchdog, 'error', () => undefined);
  }

  #report(error: unknown): void {
    try {
      reportEscaped('process', error);
    } catch {
      // Nothing subscribes any more: the ports are closed, and the exit code reports the failure.
    }
    runDetached(this.#logger.flush());
  }
}

/** Resolves with the first signal; for a second one, which does not wait for the drain, `exit` ends the process. */
function untilSignal(exit: (code: number) => void): Promise<string> {
  return new Promise((resolve) => {
    let isStopping = false;
    for (const [signal, number] of [
      ['SIGTERM', 15],
      ['SIGINT', 2],
    ] as const) {
      process.on(signal, () => {
        if (isStopping) return exit(128 + number);
        isStopping = true;
        resolve(signal);
      });
    }
  });
}

const closers = new Set<() => void>();
let isWatchingEnd = false;

/** Calls `close` when this process exits, or gets a signal that nothing else handles, and then ends it. Returns how to cancel that. */
export function closeAtExit(close: () => void): () => void {
  closers.add(close);
  if (!isWatchingEnd) watchEnd();
  return () => closers.delete(close);
}

function watchEnd(): void {
  isWatchingEnd = true;
  const closeAll = (): void => {
    for (const close of closers) close();
  };
  process.once('exit', closeAll);
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.once(signal, () => {
      if (process.listenerCount(signal) > 0) return;
      closeAll();
      process.kill(process.pid, signal);
    });
}
