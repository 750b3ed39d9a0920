/** Redis as the store of a delivery queue under test. Every store has a prefix of its own on a server that the tests share. */
import { type Clock, systemClock } from '../../../src/core/clock.ts';
import type { DeliveryQueue } from '../../../src/provider/queue/delivery-queue.ts';
import { createRedisQueue, type RedisQueueOptions } from '../../../src/provider/queue/redis/redis-queue.ts';
import type { RedisTopology } from '../../../src/state/redis/options.ts';
import type { CreateQueueStore, QueueBounds } from './store.ts';

/** How a queue is opened, in a form that can be given to a child process. */
export interface RedisQueueSetup extends Partial<QueueBounds> {
  readonly topology: RedisTopology;
  readonly keyPrefix: string;
  readonly shards?: number;
  readonly durability?: 'local' | 'replicated';
  readonly times?: RedisQueueOptions['times'];
}

const BOUNDS: QueueBounds = { maxEvents: 1_000_000, maxBytes: 1 << 30 };
/** The suite's events were created in 2027: the time of the tests is after that. */
const LATER: Clock = { ...systemClock, now: () => systemClock.now() + 31_536_000_000 };
let counter = 0;

/** A prefix that no other test uses. */
export function newPrefix(): string {
  return `test${process.pid}-${++counter}:`;
}

/** The options of a queue; errors of BullMQ and of lane runs are noted. */
export function toOptions(
  { topology, keyPrefix, ...setup }: RedisQueueSetup,
  errors: unknown[] = [],
  clock: Clock = systemClock,
): RedisQueueOptions {
  const nothing = (): void => undefined;
  return {
    redis: { topology, keyPrefix, connectTimeout: 1_000, commandTimeout: 1_000 },
    shards: 1,
    durability: 'local',
    allowVolatile: true,
    clock,
    hooks: {
      onAvailable: nothing,
      onUnavailable: nothing,
      onRunError: (_, error) => errors.push(error),
      onStoreError: (error) => errors.push(error),
    },
    ...BOUNDS,
    ...setup,
  };
}

/** What a child process opens: its argument is a setup in JSON. */
export async function openQueue(argument: string, clock: Clock = systemClock): Promise<DeliveryQueue> {
  const queue = createRedisQueue(toOptions(JSON.parse(argument) as RedisQueueSetup, [], clock));
  await queue.open();
  return queue;
}

/** Stores on `topology`. The times are short, so that tests of crashes do not wait for half a minute. */
export function createRedisStores(topology: () => RedisTopology, shards = 1): CreateQueueStore {
  return async () => {
    const times = { lease: 4_000, renewEvery: 1_000, checkEvery: 500, sweepEvery: 2_000 };
    const setup: RedisQueueSetup = { topology: topology(), keyPrefix: newPrefix(), shards, times };
    return {
      clock: LATER,
      pass: (duration) => new Promise((resolve) => setTimeout(resolve, duration)),
      open: (bounds) => openQueue(JSON.stringify({ ...setup, ...bounds }), LATER),
      isShared: true,
      child: { module: import.meta.filename, argument: JSON.stringify(setup) },
      remove: async () => undefined,
    };
  };
}
