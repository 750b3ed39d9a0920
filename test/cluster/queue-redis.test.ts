import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { DeliveryQueue, NewEvent } from '../../src/provider/queue/delivery-queue.ts';
import { describeDeliveryQueue } from '../contract/delivery-queue.contract.ts';
import { until } from '../support/gate.ts';
import { newEvent } from '../support/queue/events.ts';
import { deliverAll } from '../support/queue/lanes.ts';
import { createRedisStores, newPrefix, openQueue, type RedisQueueSetup } from '../support/queue/redis-store.ts';
import type { RedisServer } from '../support/redis.ts';
import { type RedisCluster, type SentinelGroup, startCluster, startSentinelGroup } from '../support/redis-topologies.ts';

const DURABLE = ['appendonly yes', 'appendfsync everysec'];
const TIMES = { lease: 4_000, renewEvery: 1_000, checkEvery: 500, sweepEvery: 2_000, sweepGrace: 500 };
const now = (): number => Date.now();

let cluster: RedisCluster;
let group: SentinelGroup | undefined;
const opened = new Set<DeliveryQueue>();

beforeAll(async () => {
  cluster = await startCluster(1, DURABLE);
});
afterAll(async () => {
  await cluster.stop();
});
afterEach(async () => {
  await Promise.all([...opened].map((queue) => queue.close()));
  opened.clear();
  await group?.stop();
  group = undefined;
});

async function open(setup: Omit<RedisQueueSetup, 'keyPrefix' | 'times'>): Promise<DeliveryQueue> {
  const queue = await until(() =>
    openQueue(JSON.stringify({ ...setup, keyPrefix: newPrefix(), times: TIMES })).catch(() => undefined),
  );
  opened.add(queue);
  return queue;
}

interface Appending {
  readonly accepted: ReadonlySet<string>;
  readonly rejected: () => number;
  readonly stop: () => Promise<void>;
}

/** Appends for as long as the test wants; an event that is rejected is posted again, with the same ID, until it is accepted. */
function appendForEver(queue: DeliveryQueue, writers: number, create: (number: number) => NewEvent): Appending {
  const accepted = new Set<string>();
  let rejected = 0;
  let isOver = false;
  let next = 0;
  const write = async (): Promise<void> => {
    while (!isOver) {
      const event = create(next++);
      while (!accepted.has(event.id)) {
        try {
          await queue.append([event]);
          accepted.add(event.id);
        } catch (error) {
          expect(error).toMatchObject({ code: 'queue_unavailable' });
          rejected++;
          if (isOver) return;
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
      }
    }
  };
  const writing = Promise.all(Array.from({ length: writers }, write));
  return {
    accepted,
    rejected: () => rejected,
    stop: async () => {
      isOver = true;
      await writing;
    },
  };
}

/** Delivers, and counts by event and endpoint. */
function countDeliveries(queue: DeliveryQueue) {
  const received = new Map<string, number>();
  const serving = deliverAll(queue, now, ({ event, endpoint }) => {
    const name = `${event} ${endpoint}`;
    received.set(name, (received.get(name) ?? 0) + 1);
  });
  return { received, serving };
}

const waitingIn = async (queue: DeliveryQueue): Promise<number | undefined> =>
  (await queue.stats(now()).catch(() => undefined))?.waiting;

describe('under Sentinels', () => {
  test('loses no accepted event in a failover with durability "replicated", although the replica was behind', async () => {
    const own = await startSentinelGroup(DURABLE);
    group = own;
    const queue = await open({ topology: own.topology, durability: 'replicated' });
    const { received, serving } = countDeliveries(queue);
    const appending = appendForEver(queue, 16, (number) =>
      newEvent([`e${number % 20}`], { id: `msg_s${number}`, createdAt: now() }),
    );
    await until(() => appending.accepted.size > 300);
    own.replica.signal('SIGSTOP');
    await new Promise((resolve) => setTimeout(resolve, 300));
    await own.master.kill();
    own.replica.signal('SIGCONT');
    await until(() => own.replica.cli('ROLE').startsWith('master'));
    // Alone, the new master confirms nothing.
    await own.master.restart();
    const before = appending.accepted.size;
    await until(() => appending.accepted.size > before + 200);
    await appending.stop();
    await until(async () => (await waitingIn(queue)) === 0);
    await serving.stop();
    expect(appending.rejected()).toBeGreaterThan(0);
    const lost = [...appending.accepted].filter((id) => !received.has(`${id} e${Number(id.slice(5)) % 20}`));
    expect(lost).toEqual([]);
    const twice = [...received.values()].filter((times) => times > 1).length;
    console.log(`failover: ${appending.accepted.size} accepted, ${appending.rejected()} rejected, ${twice} sent more than once`);
  });

  test('confirms a duplicate only once a replica has it', async () => {
    const own = await startSentinelGroup(DURABLE);
    group = own;
    const queue = await open({ topology: own.topology, durability: 'replicated' });
    const event = newEvent(['a'], { createdAt: now() });
    own.replica.signal('SIGSTOP');
    await expect(queue.append([event])).rejects.toMatchObject({
      code: 'queue_unavailable',
      message: expect.stringContaining('replica'),
    });
    await expect(queue.append([event])).rejects.toMatchObject({ code: 'queue_unavailable' });
    own.replica.signal('SIGCONT');
    expect(await until(() => queue.append([event]).catch(() => undefined))).toEqual(['duplicate']);
  });
});

describe('on a Cluster of three', () => {
  describeDeliveryQueue(
    'the queue in five shards',
    createRedisStores(() => cluster.topology, 5),
  );

  test('spreads its shards over all nodes', async () => {
    const queue = await open({ topology: cluster.topology, shards: 3 });
    await queue.append(Array.from({ length: 60 }, (_, i) => newEvent([`e${i}`], { createdAt: now() })));
    const masters = cluster.nodes.filter((node) => node.cli('ROLE').startsWith('master'));
    for (const node of masters) expect(Number(node.cli('DBSIZE'))).toBeGreaterThan(10);
  });

  test('delivers every accepted event to all its endpoints, although a master is replaced by its replica', async () => {
    const queue = await open({ topology: cluster.topology, shards: 3, durability: 'replicated' });
    const { received, serving } = countDeliveries(queue);
    const endpointsOf = (number: number): string[] => [`e${number % 9}`, `f${number % 7}`];
    const appending = appendForEver(queue, 8, (number) =>
      newEvent(endpointsOf(number), { id: `msg_c${number}`, createdAt: now() }),
    );
    await until(() => appending.accepted.size > 200);
    const lost = cluster.nodes.find((node) => node.cli('ROLE').startsWith('master')) as RedisServer;
    const replica = cluster.nodes.find(({ cli }) => cli('ROLE').startsWith('slave') && cli('ROLE').includes(String(lost.port)));
    await lost.kill();
    await until(() => replica?.cli('ROLE').startsWith('master'));
    await lost.restart();
    const before = appending.accepted.size;
    await until(() => appending.accepted.size > before + 200);
    await appending.stop();
    await until(async () => (await waitingIn(queue)) === 0);
    await serving.stop();
    const missing = [...appending.accepted].filter((id) =>
      endpointsOf(Number(id.slice(5))).some((endpoint) => !received.has(`${id} ${endpoint}`)),
    );
    expect(missing).toEqual([]);
  });
});
