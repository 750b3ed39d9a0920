/** Redis under Sentinels, and as a Cluster, on loopback. */
import { execFileSync } from 'node:child_process';
import type { RedisTopology } from '../../src/state/redis/client.ts';
import { until } from './gate.ts';
import { type RedisServer, startRedis } from './redis.ts';

const toNode = ({ port }: RedisServer): { host: string; port: number } => ({ host: '127.0.0.1', port });

/** A master with a replica, watched by three Sentinels. */
export interface SentinelGroup {
  readonly topology: RedisTopology;
  readonly master: RedisServer;
  readonly replica: RedisServer;
  readonly stop: () => Promise<void>;
}

/** Starts a group; `config` is for both servers. */
export async function startSentinelGroup(config: readonly string[] = []): Promise<SentinelGroup> {
  const master = await startRedis({ config });
  const replica = await startRedis({ config: [...config, `replicaof 127.0.0.1 ${master.port}`] });
  await until(() => replica.cli('INFO', 'replication').includes('master_link_status:up'));
  const watch = [
    `sentinel monitor gate 127.0.0.1 ${master.port} 2`,
    'sentinel down-after-milliseconds gate 500',
    'sentinel failover-timeout gate 3000',
    'sentinel parallel-syncs gate 1',
  ];
  const sentinels = await Promise.all(Array.from({ length: 3 }, () => startRedis({ binary: 'redis-sentinel', config: watch })));
  await until(() =>
    sentinels.every(({ cli }) => {
      const others = cli('SENTINEL', 'sentinels', 'gate').split('\n');
      return (
        others.filter((line) => line === 'ip').length === 2 && cli('SENTINEL', 'replicas', 'gate').includes(String(replica.port))
      );
    }),
  );
  return {
    topology: { kind: 'sentinel', name: 'gate', nodes: sentinels.map(toNode) },
    master,
    replica,
    stop: async () => {
      await Promise.all([...sentinels, master, replica].map((server) => server.stop()));
    },
  };
}

/** A Cluster. */
export interface RedisCluster {
  readonly topology: RedisTopology;
  readonly nodes: readonly RedisServer[];
  readonly stop: () => Promise<void>;
}

/** Starts a Cluster of three masters, each with `replicas` replicas. */
export async function startCluster(replicas: number, config: readonly string[] = []): Promise<RedisCluster> {
  const all = [
    'cluster-enabled yes',
    'cluster-node-timeout 1000',
    'cluster-require-full-coverage no',
    'cluster-replica-validity-factor 0',
  ];
  const count = 3 * (1 + replicas);
  const nodes = await Promise.all(Array.from({ length: count }, () => startRedis({ config: [...all, ...config] })));
  const addresses = nodes.map(({ port }) => `127.0.0.1:${port}`);
  execFileSync('redis-cli', ['--cluster', 'create', ...addresses, '--cluster-replicas', String(replicas), '--cluster-yes'], {
    stdio: 'ignore',
  });
  await until(() => nodes.every((node) => node.cli('CLUSTER', 'INFO').includes('cluster_state:ok')));
  return {
    topology: { kind: 'cluster', nodes: nodes.slice(0, 2).map(toNode) },
    nodes,
    stop: async () => {
      await Promise.all(nodes.map((node) => node.stop()));
    },
  };
}
