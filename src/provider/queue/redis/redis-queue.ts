/** The delivery queue on Redis, shared by all replicas: events and deliveries in our own keys, lanes as jobs of BullMQ. */
import { type CancelTimer, type Clock, type EpochMilliseconds, within } from '../../../core/clock.ts';
import { SidegateError } from '../../../core/errors.ts';
import { onEvent, runDetached } from '../../../core/safe-events.ts';
import { openRedis, type RedisClient } from '../../../state/redis/client.ts';
import type { RedisStoreOptions } from '../../../state/redis/options.ts';
import type {
  AppendResult,
  AttemptRecord,
  DeliveryFilter,
  DeliveryPage,
  DeliveryQueue,
  EndpointBacklog,
  LaneState,
  NewEvent,
  Page,
  QueueStats,
  QueueWarning,
  ReplayProgress,
  RunLane,
  Serving,
  StoredEvent,
} from '../delivery-queue.ts';
import { Appender, type QueueBounds } from './append.ts';
import { checkRedis } from './checks.ts';
import { decodeLaneState, toList, toText, toTime } from './codec.ts';
import { buildShards, findShard } from './keys.ts';
import { allowWhenFull, LaneQueue, type LaneWorker, type LeaseTimes } from './lane-queue.ts';
import { checkLayout } from './layout.ts';
import { Slots } from './lease.ts';
import { type OperationName, Operations, type Reply } from './operations.ts';
import { Pruner } from './pruner.ts';
import { QueueStatus, type QueueStatusHooks } from './queue-status.ts';
import { Records } from './records.ts';
import { RedisEndpointStore } from './redis-endpoint-store.ts';
import { Sweep, type SweepTimes } from './sweep.ts';

/** The settings of the queue. */
export interface RedisQueueOptions extends QueueBounds {
  readonly redis: RedisStoreOptions;
  /** Key groups, each on one node of a Cluster. */
  readonly shards: number;
  /** `replicated`: an event is accepted only after a replica of Redis has it. */
  readonly durability: 'local' | 'replicated';
  readonly allowVolatile: boolean;
  readonly clock: Clock;
  readonly hooks: QueueStatusHooks;
  /** For tests. */
  readonly times?: Partial<LeaseTimes & SweepTimes> | undefined;
}

const DEFAULT_TIMES: LeaseTimes & SweepTimes = {
  lease: 20_000,
  renewEvery: 5_000,
  // BullMQ skips a check that comes a millisecond too early, or while the interval of another process runs. So up to two intervals follow the
  // end of a lease, and what a killed process had in flight is sent again within about 25 s.
  checkEvery: 2_500,
  sweepEvery: 30_000,
  sweepGrace: 2_000,
};
/** A script with a large batch takes longer than the commands that requests wait for. */
const MIN_COMMAND_TIMEOUT_MS = 2_000;
/** How long a write waits for a replica. */
const CONFIRM_WITHIN_MS = 1_000;
/** How long a stop waits for Redis after all lanes have returned. */
const CLOSE_WITHIN_MS = 5_000;

/** Connects in the background. */
export function createRedisQueue(options: RedisQueueOptions): DeliveryQueue {
  return new RedisQueue(options);
}

class RedisQueue implements DeliveryQueue {
  readonly endpoints: RedisEndpointStore;
  readonly #options: RedisQueueOptions;
  readonly #times: LeaseTimes & SweepTimes;
  readonly #clients: readonly RedisClient[];
  readonly #status: QueueStatus;
  readonly #shards: readonly Operations[];
  readonly #lanes: readonly LaneQueue[];
  readonly #appender: Appender;
  readonly #records: Records;
  readonly #pruner: Pruner;
  readonly #sweep: Sweep;

  constructor(options: RedisQueueOptions) {
    const { redis, clock, durability } = options;
    this.#options = options;
    this.#times = { ...DEFAULT_TIMES, ...options.times };
    this.#status = new QueueStatus(redis.topology, clock, options.hooks);
    const status = this.#status;
    const patient = { ...redis, commandTimeout: Math.max(redis.commandTimeout, MIN_COMMAND_TIMEOUT_MS) };
    const client = status.watch(openRedis(patient, 'batches'));
    // WAIT blocks its connection.
    const writer = durability === 'local' ? client : status.watch(openRedis(patient, 'batches'));
    const background = openRedis(redis, 'background');
    allowWhenFull(background);
    onEvent(background, 'error', () => undefined);
    this.#clients = [...new Set([client, writer, background])];
    const events = {
      onReply: () => status.markUp(),
      onFailure: (error: { readonly message?: string }) => status.markDown(error),
    };
    const onError = (error: unknown): void => status.report(error);
    const shards = buildShards(redis.keyPrefix, options.shards);
    this.#shards = shards.map((shard) => new Operations({ client, shard, events }));
    const confirm = { client: writer, events, confirmWithin: CONFIRM_WITHIN_MS };
    const writers = durability === 'local' ? this.#shards : shards.map((shard) => new Operations({ ...confirm, shard }));
    this.#lanes = shards.map((shard, number) => {
      const operations = this.#shards[number] as Operations;
      return new LaneQueue({
        shard,
        operations,
        client: background,
        clock,
        times: this.#times,
        onError,
        onRunError: options.hooks.onRunError,
      });
    });
    this.#sweep = new Sweep({ shards: this.#shards, lanes: this.#lanes, clock, grace: this.#times.sweepGrace, onError });
    const onDue = (endpoint: string): void => this.#laneOf(endpoint).wake(endpoint);
    const isReplicated = durability === 'replicated';
    this.#appender = new Appender({ writers, shards: this.#shards, bounds: options, clock, isReplicated, onDue });
    this.#records = new Records({ shards: this.#shards, clock, onDue });
    this.#pruner = new Pruner(this.#shards);
    this.endpoints = new RedisEndpointStore({
      operations: this.#shards[0] as Operations,
      channel: `${shards[0]?.prefix}:changed`,
      publisher: client,
      subscribe: () => openRedis(redis, 'background'),
      clock,
    });
  }

  async open(): Promise<readonly QueueWarning[]> {
    const { clock, redis, shards, allowVolatile, durability, maxBytes } = this.#options;
    const [client] = this.#clients as [RedisClient];
    const isReady = await within(clock, redis.connectTimeout + redis.commandTimeout, untilReady(client));
    if (!isReady) throw new SidegateError('system', 'queue_unavailable', this.#status.markDown({}));
    const warnings = await this.#guard(() => checkRedis(client, { allowVolatile, durability, maxBytes }));
    await this.#guard(() => checkLayout(client, redis.keyPrefix, shards));
    await this.endpoints.open();
    await this.#appender.refresh();
    return warnings;
  }

  append(events: readonly NewEvent[]): Promise<readonly AppendResult[]> {
    return this.#appender.append(events);
  }

  serve(lanes: number, run: RunLane): Serving {
    const slots = new Slots(lanes);
    // Endpoints are not spread evenly: a shard leases up to twice its share. More would keep other replicas from serving what waits here.
    const concurrency = Math.min(2 * Math.ceil(lanes / this.#lanes.length), lanes);
    const workers = this.#lanes.map((lane) => lane.work({ concurrency, slots, run }));
    const { clock } = this.#options;
    const stopSweeping = clock.every(this.#times.sweepEvery / 2, () => this.#sweep.run(this.#times.sweepEvery));
    runDetached(this.#sweep.run(0));
    let stopped: Promise<void> | undefined;
    return {
      stop: () => {
        stopped ??= this.#stop(workers, slots, stopSweeping);
        return stopped;
      },
    };
  }

  async wake(endpoint: string): Promise<void> {
    const { shards } = this.#options;
    await (this.#shards[findShard(endpoint, shards)] as Operations).run('wake', [endpoint]);
    this.#laneOf(endpoint).wake(endpoint);
  }

  getEvent(id: string): Promise<StoredEvent | undefined> {
    return this.#records.getEvent(id);
  }

  find(filter: DeliveryFilter, page: Page): Promise<DeliveryPage> {
    return this.#records.find(filter, page);
  }

  findAttempts(event: string, endpoint: string): Promise<readonly AttemptRecord[] | undefined> {
    return this.#records.findAttempts(event, endpoint);
  }

  replay(filter: DeliveryFilter, now: EpochMilliseconds): AsyncIterable<ReplayProgress> {
    return this.#records.replay(filter, now);
  }

  prune(settledBefore: EpochMilliseconds, deadBefore: EpochMilliseconds, most: number): Promise<number> {
    return this.#pruner.prune(settledBefore, deadBefore, most);
  }

  async stats(now: EpochMilliseconds): Promise<QueueStats> {
    const { maxEvents, maxBytes } = this.#options;
    const replies = await Promise.all(this.#shards.map((shard) => shard.run('stats', [])));
    const parts = replies.map(toList);
    const sum = (at: number): number => parts.reduce((total, part) => total + Number(part[at]), 0);
    const due = parts.map((part) => toTime(part[5])).filter((time) => time !== undefined && time <= now) as number[];
    return {
      events: sum(0),
      bytes: sum(1),
      waiting: sum(2),
      dead: sum(3),
      skipped: sum(4),
      ...(due.length > 0 ? { oldestDue: Math.min(...due) } : undefined),
      maxEvents,
      maxBytes,
      sweepFinds: this.#sweep.finds,
    };
  }

  async backlogs(endpoints: readonly string[], now: EpochMilliseconds): Promise<readonly EndpointBacklog[]> {
    return this.#readEach('backlogs', 2, endpoints, ([waiting, oldest]) => {
      const due = toTime(oldest);
      return { waiting: Number(waiting), ...(due !== undefined && due <= now ? { oldestDue: due } : undefined) };
    });
  }

  async laneStates(endpoints: readonly string[]): Promise<readonly (LaneState | undefined)[]> {
    return this.#readEach('laneStates', 1, endpoints, ([state]) => decodeLaneState(toText(state)));
  }

  async close(): Promise<void> {
    this.#status.close();
    this.endpoints.close();
    const closing = Promise.allSettled(this.#lanes.map((lane) => lane.close()));
    await within(this.#options.clock, CLOSE_WITHIN_MS, closing);
    for (const client of this.#clients) client.disconnect();
  }

  /** Asks each shard for its endpoints; `width`: how many values the script returns for each. */
  async #readEach<T>(
    operation: OperationName,
    width: number,
    endpoints: readonly string[],
    decode: (values: readonly Reply[]) => T,
  ): Promise<readonly T[]> {
    const found = new Map<string, T>();
    for (const [number, names] of Map.groupBy(endpoints, (endpoint) => findShard(endpoint, this.#shards.length))) {
      const values = toList(await (this.#shards[number] as Operations).run(operation, names));
      for (const [i, name] of names.entries()) found.set(name, decode(values.slice(width * i, width * (i + 1))));
    }
    return endpoints.map((endpoint) => found.get(endpoint) as T);
  }

  #laneOf(endpoint: string): LaneQueue {
    return this.#lanes[findShard(endpoint, this.#lanes.length)] as LaneQueue;
  }

  async #stop(workers: readonly LaneWorker[], slots: Slots, stopSweeping: CancelTimer): Promise<void> {
    stopSweeping();
    const closing = Promise.allSettled(workers.map((worker) => worker.close()));
    for (const worker of workers) worker.abort();
    slots.open();
    await Promise.all(workers.map((worker) => worker.idle()));
    // Without Redis there is nobody to hand over to: BullMQ would wait forever, and the leases end by themselves.
    const isClosed = await within(this.#options.clock, CLOSE_WITHIN_MS, closing);
    if (!isClosed) await Promise.allSettled(workers.map((worker) => worker.disconnect()));
  }

  async #guard<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (error instanceof SidegateError) throw error;
      throw new SidegateError('system', 'queue_unavailable', this.#status.markDown(error as Error), { cause: error });
    }
  }
}

function untilReady(client: RedisClient): Promise<void> {
  return new Promise((resolve) => {
    if (client.status === 'ready') resolve();
    else onEvent(client, 'ready', () => resolve());
  });
}
