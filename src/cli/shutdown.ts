/** Stops a running command after a signal or an unhandled exception, always with a drain. */
import { type Milliseconds, systemClock } from '../core/clock.ts';
import { reportEscaped } from '../core/safe-events.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import { EXIT } from './io.ts';
import { untilSignal } from './signals.ts';

/** Time for the drain beyond the configured times: for settlements, spans, and closing the store. */
export const MARGIN_MS: Milliseconds = 10_000;

/** The configured times of a shutdown. */
interface ShutdownTimes {
  readonly grace: Milliseconds;
  readonly drain: Milliseconds;
}

/** A server that can finish its requests. */
export interface Drainable {
  /** Resolves to true if all requests in flight were finished. */
  stop(): Promise<boolean>;
}

/** Listens for signals and exceptions as soon as it is created, so that none is lost before the ports are open. */
export class Shutdown {
  readonly #logger: Logger<'draining' | 'stopped'>;
  readonly #first: Promise<Readonly<Record<string, string>>>;
  readonly #times: ShutdownTimes;
  #hasFailed = false;
  #onFailed: (reason: string) => void = () => undefined;

  constructor(logger: Logger<'draining' | 'stopped'>, times: ShutdownTimes) {
    this.#logger = logger;
    this.#times = times;
    const failed = new Promise<{ reason: string }>((resolve) => {
      this.#onFailed = (reason) => resolve({ reason });
    });
    // Includes unhandled rejections. Later exceptions are counted, but do not shorten the drain.
    process.on('uncaughtException', (error) => {
      this.#report(error);
      this.fail('escaped_error');
    });
    this.#first = Promise.race([untilSignal().then((signal) => ({ signal })), failed]);
  }

  /** Drains, and then exits with an error: a part of the process does not work. */
  fail(reason: 'escaped_error' | 'worker_lost'): void {
    if (this.#hasFailed) return;
    this.#hasFailed = true;
    const { grace, drain } = this.#times;
    // The cause may also block the drain, or keep the process alive after it.
    systemClock.after(grace + drain + MARGIN_MS, () => process.exit(EXIT.failed));
    this.#onFailed(reason);
  }

  /** Waits for the first reason, then drains `server`; resolves to the exit code, which is not 0 after an exception. */
  async drain(server: Drainable): Promise<number> {
    const reason = await this.#first;
    this.#logger.info('draining', reason);
    this.#logger.flushNow();
    const isFinished = await server.stop();
    this.#logger.info('stopped', { complete: isFinished });
    this.#logger.flushNow();
    if (!this.#hasFailed) return EXIT.ok;
    process.exit(EXIT.failed);
  }

  #report(error: unknown): void {
    try {
      reportEscaped('process', error);
    } catch {
      // Nothing subscribes any more: the ports are closed, and the exit code reports the failure.
    }
    this.#logger.flushNow();
  }
}
