/** Creates the queue with the chosen engine. */
import type { QueueChoice } from '../../config/schema/queue-choice.ts';
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

/** The dependencies of the engines, and the bounds of the queue. */
export interface QueueParts {
  readonly clock: Clock;
  readonly maxEvents: number;
  readonly maxBytes: number;
  readonly hooks: QueueHooks;
}

/** Creates the queue; it is not opened yet. */
export function createQueue(choice: QueueChoice<RedisStoreOptions>, parts: QueueParts): DeliveryQueue {
  const { hooks } = parts;
  if (choice.kind === 'sqlite') return createSqliteQueue({ ...parts, ...choice });
  return createRedisQueue({
    ...parts,
    ...choice,
    hooks: { ...hooks, onStoreError: (error) => hooks.onRunError('', error) },
  });
}
