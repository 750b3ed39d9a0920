/** A Redis Cluster behind the gates, and what goes wrong with it. */
import { Cluster } from 'ioredis';
import { onTestFinished } from 'vitest';
import type { RedisServer } from '../support/redis.ts';
import { startCluster } from '../support/redis-topologies.ts';
import type { Random } from '../support/seeded.ts';
import { ask, DURABLE, findMasters, isInSync, isMaster, pauseFor, STORE, untilTrue, untilWhole } from './redis-control.ts';
import { lasts } from './settings.ts';
import type { ChaosStore } from './stores.ts';

const MASTERS = 3;
/** Slots that one resharding moves. */
const MOVED_SLOTS = 60;
const MIGRATE_TIMEOUT_MS = 1_500;
const MAX_KEYS = 1_000;

/** A Cluster of three masters with a replica each. */
export async function startClusterStore(): Promise<ChaosStore> {
  const cluster = await startCluster(1, DURABLE);
  onTestFinished(() => cluster.stop());
  const { topology, nodes } = cluster;
  if (topology.kind !== 'cluster') throw new Error('not a Cluster');
  const isWhole = async (servers: readonly RedisServer[] = nodes): Promise<boolean> => {
    const are = await Promise.all(servers.flatMap((node) => [isOk(node), isInSync(node)]));
    return are.every(Boolean) && (await findMasters(servers)).length === MASTERS;
  };
  const pick = async (random: Random): Promise<[RedisServer, RedisServer]> => {
    // A machine that is too slow for the heartbeats can have a failover at any time.
    await untilWhole(nodes, isWhole);
    const masters = await findMasters(nodes);
    const first = random(MASTERS);
    return [masters[first], masters[(first + 1 + random(MASTERS - 1)) % MASTERS]] as [RedisServer, RedisServer];
  };
  const client = new Cluster(
    topology.nodes.map(({ host, port }) => ({ host, port })),
    { slotsRefreshInterval: 500 },
  );
  client.on('error', () => undefined);
  onTestFinished(() => client.disconnect());
  return {
    findMasters: async () =>
      String(
        client
          .nodes('master')
          .map(({ options }) => options.port)
          .sort(),
      ),
    redis: { cluster: { nodes: topology.nodes.map(({ host, port }) => `${host}:${port}`) } },
    faults: [
      {
        kind: 'slots migrated',
        target: STORE,
        make: async (random) => migrateSlots(...(await pick(random))),
      },
      {
        kind: 'failover: master killed',
        target: STORE,
        async make(random) {
          const [master] = await pick(random);
          await master.kill();
          const others = nodes.filter((node) => node !== master);
          await untilTrue(() => isWhole(others));
          await master.restart();
          await untilWhole(nodes, isWhole);
          return 'recent';
        },
      },
      {
        kind: 'Redis paused',
        target: STORE,
        async make(random) {
          const [master] = await pick(random);
          await pauseFor(master, random);
          await untilWhole(nodes, isWhole);
          return (await isMaster(master)) ? undefined : 'recent';
        },
      },
    ],
  };
}

async function isOk(node: RedisServer): Promise<boolean> {
  return String(await ask(node, 'CLUSTER', 'INFO').catch(() => '')).includes('cluster_state:ok');
}

/** Moves slots that have keys from one master to another. Between the steps, a slot is on both. */
async function migrateSlots(source: RedisServer, target: RedisServer): Promise<void> {
  const [from, to] = [String(await ask(source, 'CLUSTER', 'MYID')), String(await ask(target, 'CLUSTER', 'MYID'))];
  for (let i = 0; i < MOVED_SLOTS; i++) {
    const key = await ask(source, 'RANDOMKEY');
    if (typeof key !== 'string') return;
    const slot = Number(await ask(source, 'CLUSTER', 'KEYSLOT', key));
    try {
      await migrateSlot(slot, [source, from], [target, to]);
    } catch {
      // A failover, which a slow machine can have at any time, ends the resharding: the slot stays where its keys are.
      for (const node of [source, target]) await ask(node, 'CLUSTER', 'SETSLOT', slot, 'STABLE').catch(() => undefined);
      return;
    }
  }
}

async function migrateSlot(
  slot: number,
  [source, from]: [RedisServer, string],
  [target, to]: [RedisServer, string],
): Promise<void> {
  await ask(target, 'CLUSTER', 'SETSLOT', slot, 'IMPORTING', from);
  await ask(source, 'CLUSTER', 'SETSLOT', slot, 'MIGRATING', to);
  await lasts(10);
  const keys = (await ask(source, 'CLUSTER', 'GETKEYSINSLOT', slot, MAX_KEYS)) as string[];
  if (keys.length > 0) await ask(source, 'MIGRATE', '127.0.0.1', target.port, '', 0, MIGRATE_TIMEOUT_MS, 'KEYS', ...keys);
  await lasts(10);
  for (const node of [target, source]) await ask(node, 'CLUSTER', 'SETSLOT', slot, 'NODE', to);
}
