import { afterAll, describe, expect, test } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import type { RedisTopology } from '../../src/state/redis/client.ts';
import { createRedisStore } from '../../src/state/redis/redis-store.ts';
import type { SeenIds } from '../../src/state/seen-ids.ts';
import { until } from '../support/gate.ts';
import type { RedisServer } from '../support/redis.ts';
import { startCluster, startSentinelGroup } from '../support/redis-topologies.ts';

const started: { stop: () => Promise<void> }[] = [];
const stores: SeenIds[] = [];

afterAll(async () => {
  await Promise.all(stores.map((store) => store.close()));
  await Promise.all(started.map(({ stop }) => stop()));
});

function open(topology: RedisTopology): ReturnType<typeof createRedisStore> {
  const nothing = (): void => undefined;
  const store = createRedisStore(
    { topology, keyPrefix: 'test:', connectTimeout: 1_000, commandTimeout: 1_000 },
    { onUp: nothing, onDown: nothing, onWarning: nothing },
    systemClock,
  );
  stores.push(store);
  return store;
}

function claim(key: string, token = 't'): Parameters<SeenIds['claim']>[0] {
  return { key, token, fingerprint: 'f', leaseMs: 60_000 };
}

describe('under Sentinels', () => {
  test('finds the master, and the new one after a failover, with its IDs', async () => {
    const group = await startSentinelGroup();
    started.push(group);
    const { master, replica } = group;
    const store = open(group.topology);
    await until(() => store.claim(claim('before')).catch(() => undefined));
    await store.confirm('before', 't', 'f', 600_000);
    const place = { key: 'resource', version: '50', token: 't', leaseMs: 60_000 };
    await store.enter(place);
    await store.leave({ ...place, handled: { version: '50', retentionMs: 600_000 } });
    await until(() => replica.cli('GET', 'test:before').startsWith('h'));
    await until(() => replica.cli('GET', 'test:resource').startsWith('50 '));
    await master.kill();
    expect(await until(() => store.claim(claim('before', 'x')).catch(() => undefined))).toMatchObject({ state: 'handled' });
    expect(await store.claim(claim('after'))).toEqual({ state: 'new' });
    expect(await store.enter({ ...place, version: '49' })).toEqual({ state: 'stale' });
    expect(await store.enter({ ...place, version: '51' })).toEqual({ state: 'entered' });
    expect(await store.forget('before')).toEqual({ was: 'handled', fingerprint: 'f' });
    expect(replica.cli('ROLE')).toMatch(/^master/);
  });
});

describe('on a Cluster of three', () => {
  test('spreads IDs over the nodes, and continues when a master is replaced by its replica', async () => {
    const cluster = await startCluster(1);
    started.push(cluster);
    const { nodes } = cluster;
    const store = open(cluster.topology);
    await until(() => store.claim(claim('warm')).catch(() => undefined));

    const keys = Array.from({ length: 100 }, (_, i) => `route:i:msg_${i}`);
    const first = await Promise.all(keys.map((key) => store.claim(claim(key))));
    expect(new Set(first.map(({ state }) => state))).toEqual(new Set(['new']));
    expect(await Promise.all(keys.map((key) => store.confirm(key, 't', 'f', 600_000)))).toEqual(keys.map(() => true));
    const masters = nodes.filter((node) => node.cli('ROLE').startsWith('master'));
    expect(masters.every((node) => Number(node.cli('DBSIZE')) > 10)).toBe(true);

    const places = keys.map((key) => ({ key: `place:${key}`, version: '50', token: 't', leaseMs: 60_000 }));
    const entered = await Promise.all(places.flatMap((place) => [store.enter(place), store.enter({ ...place, token: 'x' })]));
    expect(entered.map(({ state }) => state)).toEqual(places.flatMap(() => ['entered', 'busy']));
    const handled = { version: '50', retentionMs: 600_000 };
    expect(await Promise.all(places.map((place) => store.leave({ ...place, handled })))).toEqual(places.map(() => true));
    const older = await Promise.all(places.map((place) => store.enter({ ...place, version: '49' })));
    expect(older.every(({ state }) => state === 'stale')).toBe(true);

    const lost = masters[0] as RedisServer;
    const replica = nodes.find(
      (node) => node.cli('ROLE').startsWith('slave') && node.cli('ROLE').includes(String(lost.port)),
    ) as RedisServer;
    await until(() => replica.cli('DBSIZE') === lost.cli('DBSIZE'));
    const onLost = keys.find((key) => lost.cli('EXISTS', `test:${key}`) === '1') as string;
    lost.signal('SIGSTOP');
    // A node that hangs must not hang the gate: without its own time limit this would wait for ever.
    await expect(store.claim(claim(onLost, 'x'))).rejects.toMatchObject({ name: 'StoreUnavailable' });
    await lost.kill();
    await until(() => replica.cli('ROLE').startsWith('master'));
    for (const key of keys) {
      expect(await until(() => store.claim(claim(key, 'x')).catch(() => undefined))).toMatchObject({ state: 'handled' });
      expect(await store.enter({ key: `place:${key}`, version: '49', token: 'x', leaseMs: 60_000 })).toEqual({ state: 'stale' });
      expect(await store.forget(key)).toEqual({ was: 'handled', fingerprint: 'f' });
    }
  });
});
