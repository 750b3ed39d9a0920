/** Remembers in Redis how the queue is laid out, because nobody looks for the keys of another layout. */
import { SidegateError } from '../../../core/errors.ts';
import type { RedisClient } from '../../../state/redis/client.ts';
import { toLayoutKey } from './keys.ts';

/** Of the keys and values that base-script.ts describes. */
const FORMAT = 1;

/**
 * The first process that opens the queue stores the format and the number of shards. Rejects with a SidegateError of kind `user` if others are
 * stored than this process uses.
 */
export async function checkLayout(client: RedisClient, keyPrefix: string, shards: number): Promise<void> {
  const key = toLayoutKey(keyPrefix);
  // Reads first: a Redis whose memory is full rejects the write.
  const [format, count] = (await readLayout(client, key)) ?? (await storeLayout(client, key, shards));
  if (format !== FORMAT)
    throw new SidegateError(
      'user',
      'queue_format',
      `provider.queue.redis: the queue in Redis (${key}) has format ${format}, and this release knows only format ${FORMAT}; start the release that wrote it, or set another store.redis.keyPrefix`,
    );
  if (count !== shards)
    throw new SidegateError(
      'user',
      'queue_layout',
      `provider.queue.redis.shards: the queue in Redis (${key}) has ${count}, and the config says ${shards}, so accepted events and the endpoints of the API would not be found. Set provider.queue.redis.shards: ${count}. To start with an empty queue of ${shards} instead, stop all replicas once no event is waiting, and delete the key ${key}`,
    );
}

type Layout = readonly [format: number, shards: number];

async function readLayout(client: RedisClient, key: string): Promise<Layout | undefined> {
  const [format, shards] = await client.hmget(key, 'format', 'shards');
  return typeof format === 'string' && typeof shards === 'string' ? [Number(format), Number(shards)] : undefined;
}

/** Of several processes that start at once, one stores each field. */
async function storeLayout(client: RedisClient, key: string, shards: number): Promise<Layout> {
  await client.hsetnx(key, 'format', FORMAT);
  await client.hsetnx(key, 'shards', shards);
  return (await readLayout(client, key)) ?? [FORMAT, shards];
}
