import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import type { DeliveryQueue, NewEvent } from '../../src/provider/queue/delivery-queue.ts';
import { buildShards, findShard } from '../../src/provider/queue/redis/keys.ts';
import { createRedisQueue } from '../../src/provider/queue/redis/redis-queue.ts';
import { until } from '../support/gate.ts';
import { appendMany, newEvent, PROVEN, settled } from '../support/queue/events.ts';
import { drain, holdLanes } from '../support/queue/lanes.ts';
import { newPrefix, toOptions } from '../support/queue/redis-store.ts';
import { type RedisServer, startRedis } from '../support/redis.ts';

const SHARDS = 3;
const now = (): number => Date.now();
let server: RedisServer;
const opened = new Set<DeliveryQueue>();

beforeAll(async () => {
  server = await startRedis();
});
afterAll(async () => {
  await server.stop();
});
afterEach(async () => {
  await Promise.all([...opened].map((queue) => queue.close()));
  opened.clear();
});

async function open(
  keyPrefix = newPrefix(),
  shards = SHARDS,
  over: Partial<Parameters<typeof createRedisQueue>[0]> = {},
): Promise<DeliveryQueue> {
  const topology = { kind: 'standalone', node: { host: '127.0.0.1', port: server.port } } as const;
  const queue = createRedisQueue({ ...toOptions({ topology, keyPrefix, shards }), ...over });
  opened.add(queue);
  await queue.open();
  return queue;
}

/** An endpoint of each shard. */
function endpointsOfShards(): readonly string[] {
  const names = Array.from({ length: 100 }, (_, i) => `e${i}`);
  return Array.from({ length: SHARDS }, (_, shard) => names.find((name) => findShard(name, SHARDS) === shard) ?? '');
}

describe('the shards', () => {
  test('are spread evenly over the slots of a Cluster, and keep all keys of a shard in one slot', () => {
    for (const count of [1, 2, 3, 5, 16, 64]) {
      const shards = buildShards('p:', count);
      expect(shards).toHaveLength(count);
      expect(new Set(shards.map(({ prefix }) => prefix)).size).toBe(count);
      expect(buildShards('p:', count)).toEqual(shards);
    }
    expect(buildShards('p:', 1)).toEqual([{ number: 0, prefix: 'p:q{q0}' }]);
  });
});

describe('the number of shards', () => {
  test('is that of the first process: another number is rejected, with what to do, and no event is lost', async () => {
    const keyPrefix = newPrefix();
    const queue = await open(keyPrefix, 2);
    const ids = await appendMany(queue, 3, 'e');
    for (const shards of [1, 3]) {
      const error: unknown = await open(keyPrefix, shards).catch((thrown: unknown) => thrown);
      expect(error).toMatchObject({
        kind: 'user',
        code: 'queue_layout',
        message: expect.stringMatching(
          new RegExp(
            `^provider\\.queue\\.redis\\.shards: .*has 2, and the config says ${shards}.* Set provider\\.queue\\.redis\\.shards: 2`,
          ),
        ),
      });
    }
    await queue.close();
    const received = await drain(await open(keyPrefix, 2), now);
    expect(received.map(({ event }) => event)).toEqual(ids);
  });

  test('is stored once by processes that start together', async () => {
    const keyPrefix = newPrefix();
    const results = await Promise.allSettled([2, 3, 2, 3, 2, 3].map((shards) => open(keyPrefix, shards)));
    const count = Number(server.cli('HGET', `${keyPrefix}q:layout`, 'shards'));
    expect(results.map(({ status }) => status)).toEqual(
      [2, 3, 2, 3, 2, 3].map((shards) => (shards === count ? 'fulfilled' : 'rejected')),
    );
  });

  test('can be changed by deleting the key that the error names', async () => {
    const keyPrefix = newPrefix();
    await (await open(keyPrefix, 2)).close();
    server.cli('DEL', `${keyPrefix}q:layout`);
    const queue = await open(keyPrefix, 3);
    await appendMany(queue, 3, 'e');
    expect(await drain(queue, now)).toHaveLength(3);
  });

  test('belongs to a format: a queue that a newer release wrote is rejected', async () => {
    const keyPrefix = newPrefix();
    server.cli('HSET', `${keyPrefix}q:layout`, 'format', '2', 'shards', String(SHARDS));
    await expect(open(keyPrefix)).rejects.toMatchObject({ kind: 'user', code: 'queue_format' });
  });
});

describe('an event for endpoints of several shards', () => {
  test('is completed when it is posted again after a crash between two shards', async () => {
    const keyPrefix = newPrefix();
    const queue = await open(keyPrefix);
    const endpoints = endpointsOfShards();
    const event = newEvent(endpoints, { createdAt: now() });
    const broken = buildShards(keyPrefix, SHARDS)[1]?.prefix;
    // The counters of the second shard cannot be used, so its part is not stored.
    server.cli('SET', `${broken}:n`, 'broken');
    await expect(queue.append([event])).rejects.toMatchObject({ code: 'queue_unavailable' });
    server.cli('DEL', `${broken}:n`);
    // The routing may have changed meanwhile: the plan of the first call counts.
    expect(await queue.append([{ ...event, targets: [{ endpoint: 'other' }] }])).toEqual(['stored']);
    expect(await queue.append([event])).toEqual(['duplicate']);
    const received = await drain(queue, now);
    expect(received.map(({ endpoint }) => endpoint).sort()).toEqual([...endpoints].sort());
    expect((await queue.stats(now())).events).toBe(1);
  });

  test('leaves nothing behind if its first part was never stored: the others are pruned once nobody can complete them', async () => {
    const keyPrefix = newPrefix();
    const queue = await open(keyPrefix);
    const endpoints = endpointsOfShards();
    const event = newEvent(endpoints, { createdAt: now() });
    const [first] = buildShards(keyPrefix, SHARDS);
    server.cli('SET', `${first?.prefix}:n`, 'broken');
    await expect(queue.append([event])).rejects.toMatchObject({ code: 'queue_unavailable' });
    server.cli('DEL', `${first?.prefix}:n`);
    // The others are delivered as usual.
    expect(await drain(queue, now)).toHaveLength(2);
    const keysOfEvent = (): readonly string[] =>
      server
        .cli('KEYS', `${keyPrefix}*`)
        .split('\n')
        .filter((key) => key.includes(event.id));
    await queue.prune(now() + 1, now() + 1, 10);
    expect(keysOfEvent()).toHaveLength(5);
    // The claim of its ID ends after a day.
    server.cli('DEL', ...keysOfEvent().filter((key) => key.includes(':id:')));
    await queue.prune(0, now() + 1, 10);
    expect(keysOfEvent()).toHaveLength(4);
    await queue.prune(now() + 1, now() + 1, 10);
    expect(keysOfEvent()).toEqual([]);
    expect(await queue.stats(now())).toMatchObject({ events: 0, bytes: 0, waiting: 0 });
  });

  test('counts once, is pruned from all shards at once, and leaves no key behind', async () => {
    const keyPrefix = newPrefix();
    const queue = await open(keyPrefix);
    const [first = '', ...others] = endpointsOfShards();
    const event = newEvent([first, ...others], { createdAt: now() });
    await queue.append([event]);
    expect(await queue.stats(now())).toMatchObject({ events: 1, waiting: 3 });
    const lanes = holdLanes(queue);
    const settle = async (endpoint: string, kind: 'delivered' | 'dead'): Promise<void> => {
      const { lane, end } = await lanes.next(endpoint);
      const taken = await lane.take(1, now());
      await lane.settle(
        taken.map((delivery) => settled(delivery, { kind }, now())),
        PROVEN,
      );
      end();
    };
    await settle(first, 'delivered');
    expect(await queue.prune(now() + 1, now() + 1, 10)).toBe(0);
    for (const endpoint of others) await settle(endpoint, 'dead');
    await lanes.stop();
    expect((await queue.find({ event: event.id }, { limit: 10 })).deliveries).toHaveLength(3);
    expect(await queue.prune(now() + 1, 0, 10)).toBe(0);
    expect(await queue.prune(0, now() + 1, 10)).toBe(0);
    expect(await queue.prune(now() + 1, now() + 1, 10)).toBe(1);
    expect(await queue.getEvent(event.id)).toBeUndefined();
    expect(await queue.stats(now())).toMatchObject({ events: 0, bytes: 0, dead: 0 });
    const keys = server.cli('KEYS', `${keyPrefix}*`).split('\n');
    expect(keys.filter((key) => key.includes(event.id))).toEqual([]);
  });
});

describe('the bounds of all shards together', () => {
  const toEvents = (count: number): readonly NewEvent[] =>
    Array.from({ length: count }, (_, i) => newEvent([`e${i % 30}`], { createdAt: now() }));
  /** How many were stored, if each event is posted on its own. */
  const post = async (queue: DeliveryQueue, events: readonly NewEvent[], isConcurrent: boolean): Promise<number> => {
    const results: PromiseSettledResult<unknown>[] = [];
    const step = isConcurrent ? events.length : 1;
    for (let i = 0; i < events.length; i += step)
      results.push(...(await Promise.allSettled(events.slice(i, i + step).map((event) => queue.append([event])))));
    return results.filter(({ status }) => status === 'fulfilled').length;
  };

  test.each([
    ['events', { maxEvents: 100 }],
    ['bytes', { maxBytes: 100_000 }],
  ] as const)('in %s hold for what another replica stored more than a second ago', async (_, bounds) => {
    const keyPrefix = newPrefix();
    let shift = 0;
    const clock = { ...systemClock, monotonic: () => systemClock.monotonic() + shift };
    const [one, two] = [await open(keyPrefix, SHARDS, { ...bounds, clock }), await open(keyPrefix, SHARDS, { ...bounds, clock })];
    expect(await post(one, toEvents(90), false)).toBe(90);
    shift = 1_000;
    await post(two, toEvents(60), false);
    const { events, bytes, maxEvents, maxBytes } = await one.stats(now());
    expect(events).toBeGreaterThan(90);
    expect(events).toBeLessThanOrEqual(maxEvents);
    expect(bytes).toBeLessThanOrEqual(maxBytes);
  });

  test('hold for calls at the same time', async () => {
    const queue = await open(newPrefix(), SHARDS, { maxEvents: 100 });
    expect(await post(queue, toEvents(300), true)).toBe(100);
    expect(await queue.stats(now())).toMatchObject({ events: 100 });
  });
});

describe('names and content from outside', () => {
  const NAMES = ['ep:with:colons', 'de:1', 'a b', '"quoted"', '%s{q1}*?[x]', '0', '-1', 'ü€😀', '|', 'x'.repeat(200)];

  test('endpoints, order keys, types and metadata are data, however they look', async () => {
    const keyPrefix = newPrefix();
    const queue = await open(keyPrefix, 1);
    const events = NAMES.flatMap((endpoint) =>
      NAMES.map((orderKey) => newEvent([{ endpoint, orderKey }, { endpoint: 'free' }], { metadata: orderKey, createdAt: now() })),
    );
    await queue.append(events);
    const received = await drain(queue, now);
    expect(received).toHaveLength(2 * events.length);
    for (const { event, metadata } of received) expect(metadata).toBe(events.find(({ id }) => id === event)?.metadata);
    for (const endpoint of NAMES) {
      const { deliveries } = await queue.find({ endpoint }, { limit: 250 });
      expect(deliveries).toHaveLength(NAMES.length);
      expect(deliveries.every((delivery) => delivery.endpoint === endpoint && delivery.state === 'delivered')).toBe(true);
    }
    expect(await queue.prune(now() + 1, now() + 1, 10_000)).toBe(events.length);
    expect(server.cli('KEYS', `${keyPrefix}*{q0}:[eobdf]:*`)).toBe('');
  });

  test('queues with different prefixes on one server do not see each other, also with a hash tag in the prefix', async () => {
    const [one, two] = [await open('a{tag}:'), await open('a{tag}:b:')];
    await appendMany(one, 3, 'e');
    expect(await two.stats(now())).toMatchObject({ events: 0 });
    expect(await drain(one, now)).toHaveLength(3);
    await appendMany(two, 2, 'e');
    expect(await drain(two, now)).toHaveLength(2);
    expect(await one.stats(now())).toMatchObject({ events: 3, waiting: 0 });
  });

  test('a delivery with 256 KiB is taken beside thousands of small ones', async () => {
    const queue = await open(newPrefix(), 1);
    await appendMany(queue, 2_000, 'e');
    const large = newEvent(['e'], { body: Buffer.alloc(262_144, 'x'), createdAt: now() });
    await queue.append([large]);
    const received = await drain(queue, now);
    expect(received).toHaveLength(2_001);
    expect(received.find(({ event }) => event === large.id)?.body.equals(large.body)).toBe(true);
  });
});

describe('the store of endpoints', () => {
  test('reports a change although its message was lost', async () => {
    const keyPrefix = newPrefix();
    const [one, two] = [await open(keyPrefix), await open(keyPrefix)];
    let calls = 0;
    two.endpoints.onChange(() => calls++);
    await one.endpoints.put({ id: 'ep_1', version: 1, json: '{}' });
    await until(() => calls === 1);
    for (const line of server.cli('CLIENT', 'LIST').split('\n')) {
      const id = /^id=(\d+) .* sub=1 /.exec(line)?.[1];
      if (id !== undefined) server.cli('CLIENT', 'KILL', 'ID', id);
    }
    await one.endpoints.put({ id: 'ep_1', version: 2, json: '{}' });
    await until(() => calls >= 2);
  });
});
