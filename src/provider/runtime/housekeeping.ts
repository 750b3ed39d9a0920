/**
 * The recurring work of the sending side: removes old events, reads the figures of the queue, and notices what no failed operation shows: a queue
 * that fills up, that went back to an earlier state, or whose disk fills up.
 */
import { statfsSync } from 'node:fs';
import { dirname } from 'node:path';
import type { CancelTimer, ClockSteps, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { runDetached } from '../../core/safe-events.ts';
import { FillForecast } from '../../telemetry/metrics/fill-forecast.ts';
import type { EndpointRegistry } from '../endpoints/endpoint.ts';
import type { SlotFigures } from '../lanes/slot-pool.ts';
import type { DeliveryQueue, EventRecord } from '../queue/delivery-queue.ts';
import { toFileName } from '../queue/sqlite/queue-file.ts';
import { isQueueBusy } from '../queue/store-client.ts';
import { reportLoss, type TelemetryParts } from '../telemetry/hooks.ts';

const PRUNE_INTERVAL_MS: Milliseconds = 60_000;
/** Small steps, so that accepting and delivering never wait for long. */
const PRUNE_STEP = 500;
const FIGURES_INTERVAL_MS: Milliseconds = 10_000;
/** The part of the disk that is left, as for the critical alert. */
const LOW_DISK = 0.05;

export class Housekeeping {
  readonly #parts;
  #timers: CancelTimer[] = [];
  #isPruning = false;
  #isReplaced = false;
  readonly #forecast = new FillForecast();
  #newest: EventRecord | undefined;
  #openFile: string | undefined;

  constructor(
    parts: Omit<TelemetryParts, 'onSpan' | 'journal'> & {
      readonly queue: Pick<DeliveryQueue, 'prune' | 'stats' | 'backlogs' | 'findEvents' | 'findEvent'>;
      /** The path of a queue in SQLite. */
      readonly file: string | undefined;
      readonly registry: Pick<EndpointRegistry, 'list'>;
      readonly steps: ClockSteps;
      /** Undefined without the role `deliver`: the alerts find pods that deliver by these figures. */
      readonly slots: (() => SlotFigures) | undefined;
      readonly retention: { readonly retention: Milliseconds; readonly deadRetention: Milliseconds };
    },
  ) {
    this.#parts = parts;
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
    // With a large backlog, a run can take longer than the interval. With a clock that is ahead, everything would be old.
    if (this.#isPruning || this.#parts.steps.isAhead()) return;
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

  /** A file that was replaced is open still, so its events are sent; it is lost when it is closed. */
  #watchFile(): void {
    const { metrics, condition, logger, file } = this.#parts;
    if (file === undefined) return;
    const { bavail, blocks, bsize } = statfsSync(dirname(file));
    metrics.queueDisk(bavail * bsize, blocks * bsize);
    condition.note('disk', bavail < LOW_DISK * blocks ? 'the disk of the queue is nearly full' : undefined);
    const name = toFileName(file);
    this.#openFile ??= name;
    if (name === this.#openFile) return condition.recover('file');
    if (!this.#isReplaced) {
      metrics.queueWentBack();
      const hint = 'the file was deleted or replaced; see docs/runbooks/SidegateQueueWentBack.md before you restart sidegate';
      logger.error('queue_went_back', { file, hint });
    }
    this.#isReplaced = true;
    condition.fail('file', `${file} was deleted or replaced: no event is accepted until a restart`);
  }

  /**
   * The store lost events if it no longer has the newest event that was seen and did not prune it: after a restore from a backup, after a failover
   * that lost commits, or if somebody emptied the tables. Reads one event, and only if there is a newer one.
   */
  async #watchLosses(now: EpochMilliseconds): Promise<void> {
    const { queue } = this.#parts;
    const before = this.#newest;
    const [newest] = (await queue.findEvents({}, { limit: 1 })).found;
    // The event can have left meanwhile, so statistics are read after it; a busy queue is asked for the same event again.
    const isGone = before !== undefined && before.id !== newest?.id && (await queue.findEvent(before.id)) === undefined;
    const stats = isGone ? await queue.stats(now) : undefined;
    this.#newest = newest;
    if (before === undefined || stats === undefined || before.createdAt <= stats.prunedUntil) return;
    reportLoss(this.#parts, {
      event: before.id,
      storedEvents: stats.storedEvents,
      hint: 'the database lost accepted events: a restore, a failover without synchronous replication, or deleted rows; post events since then again',
    });
  }

  async #readFigures(): Promise<void> {
    const { clock, metrics, queue, registry, slots, failing } = this.#parts;
    const now = clock.now();
    const stats = await queue.stats(now);
    const { oldestDue = now } = stats;
    metrics.queue(stats, Math.max(0, now - oldestDue), this.#forecast.add(stats, clock.monotonic()));
    this.#watchFile();
    // The next time looks again.
    await this.#watchLosses(now).catch((thrown: unknown) => {
      if (!isQueueBusy(thrown)) throw thrown;
    });
    const endpoints = registry.list();
    // Those of the config only: the others share a label.
    const ids = endpoints.flatMap(({ id, source }) => (source === 'config' ? id : []));
    const backlogs = await queue.backlogs(ids, now);
    for (const [i, id] of ids.entries()) metrics.backlog(id, backlogs[i] ?? { waiting: 0 });
    const enabled = endpoints.filter((endpoint) => endpoint.disabled === undefined);
    const failingCount = failing.count(enabled.map(({ id }) => id));
    const disabled = endpoints.length - enabled.length;
    metrics.endpointStates({ enabled: enabled.length - failingCount, failing: failingCount, disabled });
    if (slots === undefined) return;
    const { fast, slow } = slots();
    metrics.slots(fast, slow);
  }
}
