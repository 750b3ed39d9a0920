/** Where the provider stores events: this is decided here only. */
import type { Config, ProviderQueueConfig } from './config.ts';
import { DEFAULT_QUEUE_FILE } from './provider-schema.ts';

/** The engine of the provider's queue, and its settings. */
export type QueueChoice<Redis> =
  | ({ readonly kind: 'sqlite' } & NonNullable<ProviderQueueConfig['sqlite']>)
  | ({ readonly kind: 'redis'; readonly redis: Redis } & NonNullable<ProviderQueueConfig['redis']>);

/** Chooses the engine that the config names; if it names none, Redis if there is one (`store.redis`), otherwise a SQLite file. */
export function chooseQueue<Redis>(
  { sqlite, redis: settings }: Pick<ProviderQueueConfig, 'sqlite' | 'redis'>,
  redis: Redis | undefined,
): QueueChoice<Redis> {
  if (redis === undefined || sqlite !== undefined)
    return { kind: 'sqlite', path: DEFAULT_QUEUE_FILE, allowVolatile: false, ...sqlite };
  return { kind: 'redis', redis, shards: 1, durability: 'local', allowVolatile: false, ...settings };
}

/** The file of the embedded queue; undefined without `provider`, and if the queue is in Redis. */
export function queueFileOf({ provider, store }: Config): string | undefined {
  if (provider === undefined) return undefined;
  const choice = chooseQueue(provider.queue, store.redis);
  return choice.kind === 'sqlite' ? choice.path : undefined;
}
