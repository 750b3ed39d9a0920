/** The recurring work of the sending side: remove old events, read the figures of the queue for the metrics, and watch that it keeps its events. */
import type { CancelTimer, Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { runDetached } from '../../core/safe-events.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import type { EndpointRegistry } from '../endpoints/registry.ts';
import type { SlotFigures } from '../lanes/slot-pool.ts';
import type { DeliveryQueue, QueueStats } from '../queue/delivery-queue.ts';
import type { FailingEndpoints, QueueCondition } from '../telemetry/hooks.ts';
import { toLabel } from '../telemetry/hooks.ts';
import type { ProviderLogEvent } from '../telemetry/log-events.ts';
import type { ProviderMetrics } from '../telemetry/provider-metrics.ts';
import { FillForecast, LossWatch, QueueFileWatch } from './queue-watch.ts';

export interface HousekeepingParts {
  readonly clock: Clock;
  readonly logger: Logger<ProviderLogEvent>;
  readonly metrics: ProviderMetrics;
  readonly queue: Pick<DeliveryQueue, 'prune' | 'stats' | 'backlogs' | 'findEvents' | 'getEvent'>;
  readonly condition: QueueCondition;
  /** The path of a queue in SQLite. */
  readonly file: string | undefined;
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
  #isReplaced = false;
  readonly #forecast = new FillForecast();
  readonly #losses: LossWatch;
  readonly #file: QueueFileWatch | undefined;

  constructor(parts: HousekeepingParts) {
    this.#parts = parts;
    this.#losses = new LossWatch(parts.queue, parts.retention.retention);
    this.#file = parts.file === undefined ? undefined : new QueueFileWatch(parts.file);
  }

  start(): void {
    const { clock } = this.#parts;
    this.#timers = [
      clock.every(PRUNE_INTERVAL_MS, () => this.#run('pruning', this.#prune())),
      clock.every(FIGURES_INTERVAL_MS, () => this.#run('figures', this.#readFigures())),
    ];
    this.#run('figures', this.#readFigures());
  }

  stop(): void {
    for (const cancel of this.#timers.splice(0)) cancel();
  }

  #run(part: 'pruning' | 'figures', work: Promise<void>): void {
    const { condition } = this.#parts;
    runDetached(
      work.then(
        () => condition.recover(part),
        (thrown: unknown) => {
          if (this.#timers.length > 0) condition.fail(part, toErrorText(thrown));
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

  /** A file that was replaced is open still: what is written to it now is lost when it is closed. */
  #watchFile(): void {
    if (this.#file === undefined) return;
    const { metrics, condition, logger, file } = this.#parts;
    const { freeBytes, totalBytes, isSame } = this.#file.look();
    metrics.queueDisk(freeBytes, totalBytes);
    if (isSame) return condition.recover('file');
    if (!this.#isReplaced) {
      metrics.queueWentBack();
      logger.error('queue_went_back', {
        file,
        hint: 'the file was deleted or replaced; restart sidegate, and post events since then again',
      });
    }
    this.#isReplaced = true;
    condition.fail('file', `${file} was deleted or replaced, and what is accepted now is lost at the next restart`);
  }

  async #watchLosses(stats: QueueStats, now: EpochMilliseconds): Promise<void> {
    const event = await this.#losses.look(stats, now);
    if (event === undefined) return;
    const { metrics, logger } = this.#parts;
    metrics.queueWentBack();
    logger.error('queue_went_back', {
      event,
      storedEvents: stats.storedEvents,
      hint: 'the database lost accepted events: a restore, a failover without synchronous replication, or deleted rows; post events since then again',
    });
  }

  async #readFigures(): Promise<void> {
    const { clock, metrics, queue, registry, slots, failing } = this.#parts;
    const now = clock.now();
    const stats = await queue.stats(now);
    metrics.queue(stats, stats.oldestDue === undefined ? 0 : Math.max(0, now - stats.oldestDue));
    metrics.queueFullIn(this.#forecast.add(stats, clock.monotonic()));
    this.#watchFile();
    await this.#watchLosses(stats, now);
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
