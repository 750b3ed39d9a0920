/** The recurring work of the sending side: remove old events, and read the figures of the queue for the metrics. */
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { runDetached } from '../../core/safe-events.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import type { EndpointRegistry } from '../endpoints/registry.ts';
import type { SlotFigures } from '../lanes/slot-pool.ts';
import type { DeliveryQueue } from '../queue/delivery-queue.ts';
import type { ProviderLogEvent } from '../telemetry/log-events.ts';
import type { ProviderMetrics } from '../telemetry/provider-metrics.ts';
import type { FailingEndpoints } from './failing-endpoints.ts';
import { toLabel } from './telemetry-hooks.ts';

export interface HousekeepingParts {
  readonly clock: Clock;
  readonly logger: Logger<ProviderLogEvent>;
  readonly metrics: ProviderMetrics;
  readonly queue: Pick<DeliveryQueue, 'prune' | 'stats' | 'backlogs'>;
  readonly registry: Pick<EndpointRegistry, 'list'>;
  /** Undefined without the role `deliver`: the alerts find pods that deliver by these figures. */
  readonly slots: (() => SlotFigures) | undefined;
  readonly failing: FailingEndpoints;
  readonly retention: { readonly retention: Milliseconds; readonly deadRetention: Milliseconds };
}

const PRUNE_INTERVAL_MS: Milliseconds = 60_000;
/** Small steps, so that accepting and delivering never wait for long. */
const PRUNE_STEP = 500;
const FIGURES_INTERVAL_MS: Milliseconds = 10_000;

/** The recurring work, from `start` to `stop`. */
export class Housekeeping {
  readonly #parts: HousekeepingParts;
  #timers: CancelTimer[] = [];
  #isPruning = false;
  #hasFailed = false;

  constructor(parts: HousekeepingParts) {
    this.#parts = parts;
  }

  start(): void {
    const { clock } = this.#parts;
    this.#timers = [
      clock.every(PRUNE_INTERVAL_MS, () => this.#run(this.#prune())),
      clock.every(FIGURES_INTERVAL_MS, () => this.#run(this.#readFigures())),
    ];
    this.#run(this.#readFigures());
  }

  stop(): void {
    for (const cancel of this.#timers.splice(0)) cancel();
  }

  /** A queue that is down is logged once, and again after it was up. */
  #run(work: Promise<void>): void {
    const { logger, metrics } = this.#parts;
    runDetached(
      work.then(
        () => {
          metrics.queueUp(true);
          if (this.#hasFailed) logger.info('queue_up');
          this.#hasFailed = false;
        },
        (thrown: unknown) => {
          if (this.#timers.length === 0) return;
          metrics.queueUp(false);
          if (!this.#hasFailed) logger.error('queue_down', { error: toErrorText(thrown) });
          this.#hasFailed = true;
        },
      ),
    );
  }

  async #prune(): Promise<void> {
    // With a large backlog, a run can take longer than the interval.
    if (this.#isPruning) return;
    this.#isPruning = true;
    const { clock, queue, retention } = this.#parts;
    try {
      let removed = PRUNE_STEP;
      while (removed >= PRUNE_STEP && this.#timers.length > 0) {
        const now = clock.now();
        removed = await queue.prune(now - retention.retention, now - retention.deadRetention, PRUNE_STEP);
      }
    } finally {
      this.#isPruning = false;
    }
  }

  async #readFigures(): Promise<void> {
    const { clock, metrics, queue, registry, slots, failing } = this.#parts;
    const now = clock.now();
    const stats = await queue.stats(now);
    metrics.queue(stats, stats.oldestDue === undefined ? 0 : Math.max(0, now - stats.oldestDue));
    const endpoints = registry.list();
    // Those of the config only: the others share a label.
    const named = endpoints.filter(({ source }) => source === 'config');
    const backlogs = await queue.backlogs(
      named.map(({ id }) => id),
      now,
    );
    for (const [index, backlog] of backlogs.entries()) {
      const endpoint = named[index];
      if (endpoint !== undefined) metrics.backlog(toLabel(endpoint), backlog);
    }
    const enabled = endpoints.filter((endpoint) => endpoint.disabled === undefined);
    const failingCount = failing.count(enabled.map(({ id }) => id));
    const disabled = endpoints.length - enabled.length;
    metrics.endpointStates({ enabled: enabled.length - failingCount, failing: failingCount, disabled });
    if (slots === undefined) return;
    const { fast, slow } = slots();
    metrics.slots(fast, slow);
  }
}
