/** Finds problems of the queue: for /readyz, the metric and the log. */
import type { Logger } from '../../telemetry/log/logger.ts';
import { isDiskFull } from '../queue/store-client.ts';
import type { ProviderLogEvent } from '../telemetry/log-events.ts';
import type { ProviderMetrics } from '../telemetry/provider-metrics.ts';

/** Each part that can fail, the most important one first, and its problem in public words: the log has the cause. */
const PROBLEMS = {
  thread: 'the queue has stopped',
  writes: 'the queue cannot store events',
  pruning: 'the queue cannot remove events',
  figures: 'the queue cannot be read',
  file: 'the file of the queue was deleted or replaced',
} as const;
type Part = keyof typeof PROBLEMS;
const PARTS = Object.keys(PROBLEMS) as Part[];

/** Each part fails and recovers by itself: figures that can be read do not mean that events can be written. */
export class QueueCondition {
  readonly #metrics: Pick<ProviderMetrics, 'queueUp'>;
  readonly #logger: Logger<ProviderLogEvent>;
  readonly #failed = new Map<Part, string>();

  constructor(metrics: Pick<ProviderMetrics, 'queueUp'>, logger: Logger<ProviderLogEvent>) {
    this.#metrics = metrics;
    this.#logger = logger;
  }

  /** In the words of /readyz; undefined if the queue can store events. */
  get problem(): string | undefined {
    const failed = PARTS.find((part) => this.#failed.has(part));
    return failed && this.#failed.get(failed);
  }

  /** An outage is logged once, with the first cause. */
  fail(part: Part, error: string): void {
    if (this.#failed.size === 0) this.#logger.error('queue_down', { error });
    this.#failed.set(part, isDiskFull(error) ? `${PROBLEMS[part]}: its disk is full` : PROBLEMS[part]);
    this.#metrics.queueUp(false);
  }

  recover(part: Part): void {
    const hadFailed = this.#failed.delete(part);
    if (this.#failed.size > 0) return;
    this.#metrics.queueUp(true);
    if (hadFailed) this.#logger.info('queue_up');
  }
}
