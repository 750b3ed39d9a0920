/** How a running command stops: by a signal, or by an exception that nothing handled, but always by a drain. */
import { type Milliseconds, systemClock } from '../core/clock.ts';
import { reportEscaped } from '../core/safe-events.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import { EXIT } from './io.ts';
import { untilSignal } from './signals.ts';

/** What the drain may take beside the config's own times: settlements, spans, and closing the store. */
const MARGIN_MS: Milliseconds = 10_000;

/** The config's own times of a shutdown. */
interface ShutdownTimes {
  readonly grace: Milliseconds;
  readonly drain: Milliseconds;
}

/** A server that can finish its requests. */
export interface Drainable {
  /** True when all requests under way were finished. */
  stop(): Promise<boolean>;
}

/** Hears signals and exceptions from its creation on: one that comes before the ports are open must not be lost. */
export class Stopping {
  readonly #logger: Logger<'draining' | 'stopped'>;
  readonly #first: Promise<Readonly<Record<string, string>>>;
  #hasFailed = false;

  constructor(logger: Logger<'draining' | 'stopped'>, times: ShutdownTimes) {
    this.#logger = logger;
    const failed = new Promise<{ reason: string }>((resolve) => {
      // Unhandled rejections come here too. Later ones are counted, and do not cut the drain short.
      process.on('uncaughtException', (error) => {
        this.#report(error);
        if (this.#hasFailed) return;
        this.#hasFailed = true;
        // What threw may hold up the drain as well, or keep the process alive after it.
        systemClock.after(times.grace + times.drain + MARGIN_MS, () => process.exit(EXIT.failed));
        resolve({ reason: 'escaped_error' });
      });
    });
    this.#first = Promise.race([untilSignal().then((signal) => ({ signal })), failed]);
  }

  /** Waits for the first reason, then drains `server`; the result is the exit code, and not 0 after an exception. */
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
      // Nothing subscribes any more: the ports are closed, and the exit code says that it failed.
    }
    this.#logger.flushNow();
  }
}
