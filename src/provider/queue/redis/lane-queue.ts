/**
 * The lanes of one shard as jobs of BullMQ: a job is the leased, exclusive right to serve one endpoint. Leases, the recovery of stalled jobs, delays
 * and the distribution over replicas are BullMQ's. The queue's data does not depend on them: the sweep finds work that has no lane.
 */
import { type Job, Queue, Worker } from 'bullmq';
import type { Clock, EpochMilliseconds } from '../../../core/clock.ts';
import { onEvent, runDetached } from '../../../core/safe-events.ts';
import type { RedisClient } from '../../../state/redis/client.ts';
import type { LaneResult, RunLane } from '../delivery-queue.ts';
import { decodeDeliveries, decodeLaneState, toList, toText, toTime } from './codec.ts';
import type { Shard } from './keys.ts';
import { RedisLane } from './lane.ts';
import { Lease, type Slots } from './lease.ts';
import type { Operations, Reply } from './operations.ts';

/** How lanes are leased. */
export interface LeaseTimes {
  /** How long a lane is leased without renewal. */
  readonly lease: number;
  /** How often leases are renewed. */
  readonly renewEvery: number;
  /** How often BullMQ looks for jobs whose lease has ended. */
  readonly checkEvery: number;
}

/** The parts that the lanes of a shard use. */
export interface LaneQueueSettings {
  readonly shard: Shard;
  readonly operations: Operations;
  /** Its commands wait for the connection. */
  readonly client: RedisClient;
  readonly clock: Clock;
  readonly times: LeaseTimes;
  /** An error of BullMQ. */
  readonly onError: (error: unknown) => void;
  readonly onRunError: (endpoint: string, error: unknown) => void;
}

/** `serve`: the right to serve the endpoint. `wake`: a delayed job that only adds one of those: if it served, there could be two at once. */
type JobName = 'serve' | 'wake';
type LaneJob = Job<{ endpoint: string }, void, JobName>;

const QUEUE_NAME = 'lane';
/** The lease counts as lost this long before it ends: then no attempt starts while another run may make it, too. */
const LEASE_MARGIN_MS = 2_000;
/** Taken when a run begins, before the run reserves memory for what it takes. */
const FIRST_DELIVERIES = 4;
const FIRST_BYTES = 8_192;
const WATCH_INTERVAL_MS = 1_000;
/** After a run that rejected. */
const RETRY_DELAY_MS = 1_000;
const NOT_KEPT = { count: 0 };
const REMOVED = { removeOnComplete: true, removeOnFail: true } as const;
/** BullMQ fails a job that stalled more often; a lane must never fail. */
const MAX_STALLED_COUNT = 1_000_000_000;
/** BullMQ writes an event for each step of a job; nobody reads them. */
const MAX_BULLMQ_EVENTS = 100;

/** How lanes of a shard are served. */
export interface WorkSettings {
  /** Leases at once. */
  readonly concurrency: number;
  /** Shared by all shards. */
  readonly slots: Slots;
  readonly run: RunLane;
}

/** Lanes that are served. */
export interface LaneWorker {
  abort(): void;
  /** Resolves when all runs have returned. */
  readonly idle: () => Promise<void>;
  /** Waits for running lanes, and hands over the others. */
  close(): Promise<void>;
  /** Gives up waiting for Redis. */
  disconnect(): Promise<void>;
}

/** Adds lanes, and serves them. */
export class LaneQueue {
  readonly #settings: LaneQueueSettings;
  readonly #queue: Queue<{ endpoint: string }, void, JobName>;
  /** Endpoints whose job is being added; true: once more after that. */
  readonly #adding = new Map<string, boolean>();

  constructor(settings: LaneQueueSettings) {
    this.#settings = settings;
    const { client, shard } = settings;
    const streams = { events: { maxLen: MAX_BULLMQ_EVENTS } };
    this.#queue = new Queue(QUEUE_NAME, { connection: client, prefix: shard.prefix, streams });
    onEvent(this.#queue, 'error', settings.onError);
  }

  /** Lets the endpoint be served soon. Returns at once; if this is lost, the sweep repairs it. */
  wake(endpoint: string): void {
    if (this.#adding.has(endpoint)) this.#adding.set(endpoint, true);
    else runDetached(this.#wakeInBackground(endpoint));
  }

  async #wakeInBackground(endpoint: string): Promise<void> {
    this.#adding.set(endpoint, false);
    try {
      await this.add(endpoint);
    } catch (error) {
      this.#settings.onError(error);
    }
    const isAgain = this.#adding.get(endpoint) === true;
    this.#adding.delete(endpoint);
    if (isAgain) this.wake(endpoint);
  }

  /** An endpoint that is being served gets its next job when the run has ended. */
  async add(endpoint: string): Promise<void> {
    const deduplication = { id: endpoint, keepLastIfActive: true };
    await this.#queue.add('serve', { endpoint }, { deduplication, ...REMOVED });
  }

  async #addLater(endpoint: string, at: EpochMilliseconds): Promise<void> {
    // BullMQ compares the delay with the system's time.
    const delay = Math.max(Math.ceil(at - this.#settings.clock.now()), 1);
    await this.#queue.add('wake', { endpoint }, { delay, deduplication: { id: toWakeId(endpoint), replace: true }, ...REMOVED });
  }

  /** Serves lanes of this shard. */
  work({ concurrency, slots, run }: WorkSettings): LaneWorker {
    const { client, shard, times, clock, onError } = this.#settings;
    const leases = new Map<string, Lease>();
    const runs = new Set<Promise<void>>();
    const process = async (job: LaneJob, token = ''): Promise<void> => {
      if (job.name === 'wake') {
        // First, so that the lane can schedule its next wake-up.
        await job.removeDeduplicationKey();
        return this.add(job.data.endpoint);
      }
      const lease = new Lease(token, clock.monotonic() + times.lease - LEASE_MARGIN_MS);
      const served = this.#serveInSlot(job, lease, slots, run);
      leases.set(job.id ?? '', lease);
      runs.add(served);
      try {
        await served;
      } finally {
        // Not the lease of the next run: this process can get the job again before a run that lost it has ended.
        if (leases.get(job.id ?? '') === lease) leases.delete(job.id ?? '');
        runs.delete(served);
      }
    };
    const worker = new Worker<{ endpoint: string }, void, JobName>(QUEUE_NAME, process, {
      connection: client,
      prefix: shard.prefix,
      concurrency,
      lockDuration: times.lease,
      skipLockRenewal: true,
      stalledInterval: times.checkEvery,
      maxStalledCount: MAX_STALLED_COUNT,
      removeOnComplete: NOT_KEPT,
      removeOnFail: NOT_KEPT,
    });
    onEvent(worker, 'error', onError);
    const stopRenewing = clock.every(times.renewEvery, this.#createRenewal(worker, leases));
    const stopWatching = clock.every(WATCH_INTERVAL_MS, () => loseExpired(leases, clock.monotonic()));
    return {
      abort: () => {
        for (const lease of leases.values()) lease.abort();
      },
      idle: async () => {
        while (runs.size > 0) await Promise.allSettled(runs);
      },
      close: async () => {
        await worker.close();
        stopRenewing();
        stopWatching();
      },
      disconnect: async () => {
        stopRenewing();
        stopWatching();
        await worker.getBackend().disconnectBlocking(false);
      },
    };
  }

  /** Renews all leases in one call. A call that hangs is not repeated: the leases then end. */
  #createRenewal(worker: Pick<Worker, 'extendJobLocks'>, leases: ReadonlyMap<string, Lease>): () => Promise<void> {
    const { clock, times, onError } = this.#settings;
    let isRenewing = false;
    return async () => {
      if (isRenewing || leases.size === 0) return;
      isRenewing = true;
      const renewed = new Map(leases);
      const until = clock.monotonic() + times.lease - LEASE_MARGIN_MS;
      try {
        const ids = [...renewed.keys()];
        const tokens = [...renewed.values()].map(({ token }) => token);
        const lost = new Set(await worker.extendJobLocks(ids, tokens, times.lease));
        for (const [id, lease] of renewed) {
          if (lost.has(id)) lease.lose();
          else lease.renew(until);
        }
      } catch (error) {
        onError(error);
      } finally {
        isRenewing = false;
      }
    };
  }

  async #serveInSlot(job: LaneJob, lease: Lease, slots: Slots, run: RunLane): Promise<void> {
    await slots.enter();
    try {
      if (lease.isLost) return;
      if (lease.signal.aborted) await this.add(job.data.endpoint);
      else await this.#serve(job, lease, run);
    } finally {
      slots.leave();
    }
  }

  async #serve(job: LaneJob, lease: Lease, run: RunLane): Promise<void> {
    const { operations, clock } = this.#settings;
    const { endpoint } = job.data;
    const token = `${job.id} ${lease.token}`;
    let begun: Reply;
    try {
      begun = await operations.run('begin', [endpoint, token, clock.now(), FIRST_DELIVERIES, FIRST_BYTES]);
    } catch (error) {
      // The job ends here, so without this the endpoint would wait for the sweep.
      this.#settings.onRunError(endpoint, error);
      await this.#addLater(endpoint, clock.now() + RETRY_DELAY_MS);
      return;
    }
    const [hasWork, value, taken, isComplete, storeTime] = toList(begun);
    if (hasWork !== 1) {
      const at = toTime(value);
      if (at !== undefined) await this.#addLater(endpoint, at);
      return;
    }
    const first = decodeDeliveries(endpoint, taken);
    const lane = new RedisLane({
      endpoint,
      token,
      state: decodeLaneState(toText(value)),
      lease,
      first,
      isFirstComplete: isComplete === 1,
      storeTime: Number(storeTime),
      operations,
      clock,
    });
    let result: LaneResult | undefined;
    try {
      result = await run(lane);
    } catch (error) {
      this.#settings.onRunError(endpoint, error);
    }
    if (lease.isLost || (lane.isDone && result !== undefined && result.notBefore === undefined)) return;
    await this.#finish(lane, token, result);
  }

  /** While the job is active, so that no other run schedules a wake-up of the endpoint at the same time. */
  async #finish(lane: RedisLane, own: string, result: LaneResult | undefined): Promise<void> {
    const { clock } = this.#settings;
    const now = clock.now();
    const notBefore = result === undefined ? now + RETRY_DELAY_MS : (result.notBefore ?? '');
    const [isHeld, next, isScheduled] = toList(await lane.persist('finish', [lane.endpoint, own, now, notBefore]));
    const at = toTime(next);
    if (isHeld !== 1 || at === undefined) return;
    if (at <= now) await this.add(lane.endpoint);
    else if (toText(isScheduled) === '1') await this.#addLater(lane.endpoint, at);
  }

  async close(): Promise<void> {
    await this.#queue.close();
  }
}

/**
 * Lets BullMQ's scripts write although the memory of Redis is full (maxmemory): base-script.ts says how. A lane takes little memory, there are at
 * most two jobs for each endpoint, and without lanes nothing would be delivered. Before BullMQ gets the client.
 */
export function allowWhenFull(client: RedisClient): void {
  const define = client.defineCommand.bind(client);
  client.defineCommand = (name, definition) =>
    define(name, { ...definition, lua: `if KEYS[1] then redis.call('DEL', KEYS[1] .. ':none') end\n${definition.lua}` });
}

/** No endpoint contains `~`. */
function toWakeId(endpoint: string): string {
  return `~${endpoint}`;
}

function loseExpired(leases: ReadonlyMap<string, Lease>, now: number): void {
  for (const lease of leases.values()) if (lease.until <= now) lease.lose();
}
