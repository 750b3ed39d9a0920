/** The delivery queue in a SQLite file, for one process. */
import type { Clock, EpochMilliseconds } from '../../../core/clock.ts';
import { SidegateError } from '../../../core/errors.ts';
import { runDetached } from '../../../core/safe-events.ts';
import type { EndpointStore } from '../../endpoints/endpoint-store.ts';
import {
  type AppendResult,
  type AttemptRecord,
  type DeliveryFilter,
  type DeliveryPage,
  type DeliveryQueue,
  type EndpointBacklog,
  type LaneState,
  type NewEvent,
  type Page,
  type QueueStats,
  type QueueWarning,
  type ReplayProgress,
  type RunLane,
  type Serving,
  type StoredEvent,
  toSettledLater,
} from '../delivery-queue.ts';
import { LaneRun, toLaneState } from './lane-run.ts';
import { type LaneEntry, LaneScheduler, type RunOutcome } from './lane-scheduler.ts';
import type { EventMessage, PrunePosition, ReplayPosition, Results } from './messages.ts';
import { describeHolder, prepareQueueFile } from './queue-file.ts';
import { WorkerClient, type WorkerHooks } from './worker-client.ts';

/** Reports of the queue, for logs and metrics. */
export interface SqliteQueueHooks extends WorkerHooks {
  /** A lane run rejected; it is repeated. */
  readonly onRunError: (endpoint: string, error: unknown) => void;
}

/** Options of the queue. */
export interface SqliteQueueOptions {
  readonly path: string;
  /** Accept a file system on which accepted events can be lost. */
  readonly allowVolatile: boolean;
  readonly maxEvents: number;
  readonly maxBytes: number;
  readonly clock: Clock;
  readonly hooks: SqliteQueueHooks;
}

/** Events that one step of a prune removes: a few milliseconds, in which appends wait. */
const PRUNED_PER_STEP = 200;
/** Steps in which one page is searched; the next page goes on. A filter that matches nothing would otherwise read the whole store. */
const MAX_FIND_STEPS = 40;

/** Creates the queue; it is opened by `open`. */
export function createSqliteQueue(options: SqliteQueueOptions): DeliveryQueue {
  return new SqliteQueue(options);
}

class SqliteQueue implements DeliveryQueue {
  readonly endpoints: EndpointStore = {
    list: () => this.#worker.call('listEndpoints', {}),
    put: (endpoint) => this.#worker.call('putEndpoint', { endpoint }),
    remove: (id, version) => this.#worker.call('removeEndpoint', { id, version }),
    // No other process can open the file.
    onChange: () => () => undefined,
  };
  readonly #options: SqliteQueueOptions;
  readonly #scheduler: LaneScheduler;
  readonly #aborts = new Set<AbortController>();
  #client: WorkerClient | undefined;
  #runs = 0;
  #stopping: Promise<void> | undefined;

  constructor(options: SqliteQueueOptions) {
    this.#options = options;
    const { clock, hooks } = options;
    this.#scheduler = new LaneScheduler({
      clock,
      onRunError: hooks.onRunError,
      onSetBack: () => runDetached(this.#hasten()),
    });
  }

  get #worker(): WorkerClient {
    if (this.#client === undefined) throw new SidegateError('system', 'queue_unavailable', 'the queue is not open');
    return this.#client;
  }

  async open(): Promise<readonly QueueWarning[]> {
    const { path, allowVolatile, maxEvents, maxBytes, hooks } = this.#options;
    const warnings = prepareQueueFile(path, allowVolatile);
    const onFatal = (error: Error): void => {
      this.#abortAll();
      hooks.onFatal(error);
    };
    try {
      const { client, lanes } = await WorkerClient.open({ path, maxEvents, maxBytes }, { ...hooks, onFatal });
      this.#client = client;
      for (const { endpoint, next, state } of lanes) {
        this.#scheduler.obtain(endpoint).stateText = state;
        if (next !== undefined) this.#scheduler.addDue(endpoint, next);
      }
    } catch (thrown) {
      if (!(thrown instanceof SidegateError) || thrown.code !== 'queue_in_use') throw thrown;
      throw new SidegateError('user', 'queue_in_use', describeHolder(path), { cause: thrown });
    }
    await this.#hasten();
    return warnings;
  }

  async append(events: readonly NewEvent[]): Promise<readonly AppendResult[]> {
    if (events.length === 0) return [];
    const now = this.#options.clock.now();
    const bodies = events.map(({ body }) => body);
    const results = await this.#worker.call('append', { events: events.map(toMessage), now }, bodies);
    if (results === 'full') throw new SidegateError('system', 'queue_full', 'the queue is full');
    for (const [i, { targets }] of events.entries())
      if (results[i] === 'stored')
        for (const { endpoint, isSkipped } of targets) if (isSkipped !== true) this.#scheduler.addDue(endpoint, now);
    return results;
  }

  serve(lanes: number, run: RunLane): Serving {
    this.#stopping = undefined;
    this.#scheduler.serve(lanes, (entry) => this.#run(entry, run));
    return {
      stop: () => {
        if (this.#stopping === undefined) {
          this.#stopping = this.#scheduler.stop();
          this.#abortAll();
        }
        return this.#stopping;
      },
    };
  }

  wake(endpoint: string): Promise<void> {
    this.#scheduler.wake(endpoint);
    return Promise.resolve();
  }

  async getEvent(id: string): Promise<StoredEvent | undefined> {
    const { result, bodies } = await this.#worker.read('getEvent', { id });
    const [body] = bodies;
    if (result === undefined || body === undefined) return undefined;
    const { type, channel, createdAt, metadata } = result;
    return { id, type, ...(channel !== null && { channel }), createdAt, body, metadata };
  }

  async find(filter: DeliveryFilter, { limit, after }: Page): Promise<DeliveryPage> {
    const found: Results['findStep']['found'][number][] = [];
    let position = after;
    for (let steps = 0; steps < MAX_FIND_STEPS && found.length <= limit; steps++) {
      // One more than asked, to know whether there is a next page.
      const page = { limit: limit + 1 - found.length, after: position };
      const step: Results['findStep'] = await this.#worker.call('findStep', { filter, page });
      found.push(...step.found);
      position = step.next;
      if (position === undefined) break;
    }
    const deliveries = found.slice(0, limit).map(({ record }) => record);
    const next = found.length > limit ? found[limit - 1]?.position : position;
    return next === undefined ? { deliveries } : { deliveries, next };
  }

  findAttempts(event: string, endpoint: string): Promise<readonly AttemptRecord[] | undefined> {
    return this.#worker.call('findAttempts', { event, endpoint });
  }

  async *replay(filter: DeliveryFilter, now: EpochMilliseconds): AsyncIterable<ReplayProgress> {
    const { total, end } = await this.#count(filter, now);
    let replayed = 0;
    if (await this.#worker.call('replayMissing', { filter, now })) {
      replayed++;
      if (filter.endpoint !== undefined) this.#scheduler.addDue(filter.endpoint, now);
    }
    const all = total + replayed;
    let position: ReplayPosition | undefined = { seq: 0, endpoint: 0, end };
    while (position !== undefined) {
      const step: Results['replayStep'] = await this.#worker.call('replayStep', {
        filter,
        now,
        excluded: toSettledLater(now, this.#options.clock.now()),
        position,
      });
      for (const endpoint of step.endpoints) this.#scheduler.addDue(endpoint, now);
      replayed += step.replayed;
      position = step.position;
      // Deliveries that another replay made due meanwhile no longer match.
      yield { replayed, total: position === undefined ? replayed : Math.max(all, replayed) };
    }
  }

  async prune(settledBefore: EpochMilliseconds, deadBefore: EpochMilliseconds, most: number): Promise<number> {
    let removed = 0;
    let after: PrunePosition | undefined;
    do {
      const limit = Math.min(most - removed, PRUNED_PER_STEP);
      const step: Results['pruneStep'] = await this.#worker.call('pruneStep', { settledBefore, deadBefore, most: limit, after });
      removed += step.removed;
      after = step.after;
    } while (after !== undefined && removed < most);
    return removed;
  }

  stats(now: EpochMilliseconds): Promise<QueueStats> {
    return this.#worker.call('stats', { now });
  }

  backlogs(endpoints: readonly string[], now: EpochMilliseconds): Promise<readonly EndpointBacklog[]> {
    return this.#worker.call('backlogs', { endpoints, now });
  }

  /** This process has all lanes, and reads their states when it opens the file. */
  async laneStates(endpoints: readonly string[]): Promise<readonly (LaneState | undefined)[]> {
    return endpoints.map((endpoint) => {
      const entry = this.#scheduler.find(endpoint);
      return entry && toLaneState(entry);
    });
  }

  async close(): Promise<void> {
    await this.#client?.close();
  }

  /** Deliveries that were appended while the clock was ahead do not wait until then. If the disk fails, the next start repeats it. */
  async #hasten(): Promise<void> {
    try {
      for (let isDone = false; !isDone; ) {
        const now = this.#options.clock.now();
        const step: Results['hasten'] = await this.#worker.call('hasten', { now });
        for (const endpoint of step.endpoints) this.#scheduler.addDue(endpoint, now);
        isDone = step.isDone;
      }
    } catch (error) {
      this.#options.hooks.onRunError('', error);
    }
  }

  async #count(filter: DeliveryFilter, start: EpochMilliseconds): Promise<{ readonly total: number; readonly end: number }> {
    let total = 0;
    let position: ReplayPosition | undefined;
    for (;;) {
      const excluded = toSettledLater(start, this.#options.clock.now());
      const step: Results['countStep'] = await this.#worker.call('countStep', { filter, excluded, position });
      total += step.count;
      position = step.position;
      if (step.isDone) return { total, end: position.end };
    }
  }

  async #run(entry: LaneEntry, run: RunLane): Promise<RunOutcome> {
    const abort = new AbortController();
    this.#aborts.add(abort);
    const lane = new LaneRun(entry, ++this.#runs, abort.signal, { client: this.#worker, clock: this.#options.clock });
    try {
      const { notBefore } = await run(lane);
      return { notBefore, ...lane.end() };
    } finally {
      lane.end();
      this.#aborts.delete(abort);
    }
  }

  #abortAll(): void {
    for (const abort of this.#aborts) abort.abort();
  }
}

function toMessage({ id, type, channel, createdAt, metadata, targets, body }: NewEvent): EventMessage {
  return { id, type, channel: channel ?? null, createdAt, metadata, targets, bodyLength: body.length };
}
