/** Redis behind the gates, alone or under Sentinels, and what goes wrong with it. */
import { Redis } from 'ioredis';
import { onTestFinished } from 'vitest';
import type { Sections } from '../support/gate.ts';
import { type RedisServer, startRedis } from '../support/redis.ts';
import { startSentinelGroup } from '../support/redis-topologies.ts';
import type { Fault } from './faults.ts';
import { toLinkFaults } from './gateway-faults.ts';
import { Link } from './link.ts';
import {
  ask,
  DURABLE,
  findMasters,
  isInSync,
  isLoaded,
  isMaster,
  pauseFor,
  STORE,
  untilTrue,
  untilWhole,
} from './redis-control.ts';
import { lasts } from './settings.ts';

/** A store that fails. */
export interface ChaosStore {
  /** For the config of the gates. */
  readonly redis: Sections;
  readonly faults: readonly Fault[];
  /** The servers that take writes; they also change without a fault, if this machine is too slow for their heartbeats. */
  readonly findMasters?: () => Promise<string>;
}

/** One server, reached through a network path that fails as well. */
export async function startStandaloneStore(): Promise<ChaosStore> {
  const redis = await startRedis({ config: DURABLE });
  onTestFinished(() => redis.stop());
  const link = await Link.start(() => redis.port);
  return {
    redis: { url: `redis://127.0.0.1:${link.port}` },
    faults: [
      { kind: 'Redis paused', target: STORE, make: (random) => pauseFor(redis, random) },
      {
        kind: 'Redis killed',
        target: STORE,
        async make(random) {
          await redis.kill();
          await lasts(random(1_500));
          await redis.restart();
          // With `appendfsync everysec`, writes can wait for two seconds for the disk.
          return 'recent';
        },
      },
      {
        kind: 'Redis restarted empty',
        target: STORE,
        async make() {
          await ask(redis, 'FLUSHALL');
          await redis.kill();
          await redis.restart();
          return 'all';
        },
      },
      ...toLinkFaults(link, 'network store'),
    ],
  };
}

/** A master and a replica under three Sentinels. */
export async function startSentinelStore(): Promise<ChaosStore> {
  const group = await startSentinelGroup(DURABLE);
  onTestFinished(() => group.stop());
  const { topology, master: one, replica: two } = group;
  if (topology.kind !== 'sentinel') throw new Error('not a Sentinel group');
  const servers = [one, two];
  const isWhole = async (): Promise<boolean> =>
    (await findMasters(servers)).length === 1 && (await isInSync(one)) && (await isInSync(two));
  const findMaster = async (): Promise<RedisServer> => {
    // A machine that is too slow for the heartbeats can have a failover at any time.
    await untilWhole(servers, isWhole);
    return (await isMaster(one)) ? one : two;
  };
  const findOther = (server: RedisServer): RedisServer => (server === one ? two : one);
  const sentinel = new Redis(topology.nodes[0]?.port ?? 0);
  onTestFinished(() => sentinel.disconnect());
  return {
    findMasters: async () => String(await sentinel.call('SENTINEL', 'get-master-addr-by-name', topology.name)),
    redis: { sentinel: { name: topology.name, nodes: topology.nodes.map(({ host, port }) => `${host}:${port}`) } },
    faults: [
      {
        kind: 'failover: master killed',
        target: STORE,
        async make() {
          const master = await findMaster();
          const other = findOther(master);
          await master.kill();
          await untilTrue(() => isMaster(other));
          await master.restart();
          await untilTrue(() => isLoaded(master));
          // Sentinels would do this after 10 s.
          await ask(master, 'REPLICAOF', '127.0.0.1', other.port);
          await untilWhole(servers, isWhole);
          return 'recent';
        },
      },
      {
        kind: 'failover: master paused',
        target: STORE,
        async make() {
          const master = await findMaster();
          master.signal('SIGSTOP');
          await untilTrue(() => isMaster(findOther(master)));
          master.signal('SIGCONT');
          await untilWhole(servers, isWhole);
          return 'recent';
        },
      },
      {
        kind: 'Redis paused',
        target: STORE,
        async make(random) {
          const master = await findMaster();
          await pauseFor(master, random);
          await untilWhole(servers, isWhole);
          return (await isMaster(master)) ? undefined : 'recent';
        },
      },
    ],
  };
}
