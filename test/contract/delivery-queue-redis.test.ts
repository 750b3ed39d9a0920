import { afterAll, beforeAll } from 'vitest';
import type { RedisTopology } from '../../src/state/redis/options.ts';
import { createRedisStores } from '../support/queue/redis-store.ts';
import { type RedisServer, startRedis } from '../support/redis.ts';
import { describeDeliveryQueue } from './delivery-queue.contract.ts';

let server: RedisServer;

beforeAll(async () => {
  server = await startRedis({ config: ['appendonly yes'] });
});
afterAll(async () => {
  await server.stop();
});

const topology = (): RedisTopology => ({ kind: 'standalone', node: { host: '127.0.0.1', port: server.port } });

describeDeliveryQueue('the queue in Redis', createRedisStores(topology));
describeDeliveryQueue('the queue in three shards of Redis', createRedisStores(topology, 3));
