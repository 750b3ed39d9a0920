/** Chooses the engine of the queue: the one of the config, or Redis if the gate has one, or a SQLite file. */
import type { ProviderQueueConfig } from '../../config/schema/config.ts';
import { DEFAULT_QUEUE_FILE } from '../../config/schema/provider-schema.ts';
import type { Clock } from '../../core/clock.ts';
import type { RedisStoreOptions } from '../../state/redis/options.ts';
import type { DeliveryQueue } from './delivery-queue.ts';
import { createRedisQueue } from './redis/redis-queue.ts';
import { createSqliteQueue } from './sqlite/sqlite-queue.ts';

/** Callbacks of all engines. */
export interface QueueHooks {
  /** The queue can no longer be used until the process is restarted. */
  readonly onFatal: (error: unknown) => void;
  readonly onUnavailable: (reason: string) => void;
  readonly onAvailable: () => void;
  /** Serving a lane failed because of a bug or the store; it is repeated. */
  readonly onRunError: (endpoint: string, error: unknown) => void;
}

/** The dependencies of the engines. */
export interface QueueParts {
  readonly clock: Clock;
  /** The connection settings of `store.redis`. */
  readonly redis: RedisStoreOptions | undefined;
  readonly hooks: QueueHooks;
}

/** Creates the queue; it is not opened yet. */
export function createQueue(config: ProviderQueueConfig, { clock, redis, hooks }: QueueParts): DeliveryQueue {
  const { maxEvents, maxBytes, sqlite } = config;
  const bounds = { maxEvents, maxBytes, clock };
  if (redis === undefined || sqlite !== undefined) {
    const { path, allowVolatile } = sqlite ?? { path: DEFAULT_QUEUE_FILE, allowVolatile: false };
    return createSqliteQueue({ ...bounds, path, allowVolatile, hooks });
  }
  const { shards, durability, allowVolatile } = config.redis ?? { shards: 1, durability: 'local', allowVolatile: false };
  return createRedisQueue({
    ...bounds,
    redis,
    shards,
    durability,
    allowVolatile,
    hooks: { ...hooks, onStoreError: (error) => hooks.onRunError('', error) },
  });
}
