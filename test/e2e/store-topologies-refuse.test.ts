/** A Cluster, a Sentinel or a database that refuses: the outage says what it replied, and ends when it no longer does. Also a primary that falls silent. */
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import type { Cluster } from 'ioredis';
import { expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { Secret } from '../../src/core/secret.ts';
import { openRedis, type RedisStoreOptions } from '../../src/state/redis/client.ts';
import { createRedisStore, type StoreOutage } from '../../src/state/redis/redis-store.ts';
import { type RedisServer, startRedis } from '../support/redis.ts';
import { startCluster, startSentinelGroup } from '../support/redis-topologies.ts';

const DOCUMENTED = readFileSync('docs/how-to/redis.md', 'utf8');
const COMMANDS = /user sidegate [^`]*?(~sidegate:\*[^\n]*)/.exec(DOCUMENTED)?.[1]?.split(' ') ?? [];
const password = new Secret(Buffer.from('secret'));
const USER = ['ACL', 'SETUSER', 'sidegate', 'reset', 'on', '>secret'];

/** Opens a store; `events`: what it reports, in order: `up`, or an outage. */
function open(options: Pick<RedisStoreOptions, 'topology'> & Partial<RedisStoreOptions>) {
  const events: ('up' | StoreOutage)[] = [];
  const store = createRedisStore(
    { keyPrefix: 'sidegate:', commandTimeout: 1_000, connectTimeout: 1_000, ...options },
    { onUp: () => events.push('up'), onDown: (outage) => events.push(outage), onWarning: () => undefined },
    systemClock,
  );
  onTestFinished(() => store.close());
  return { store, events };
}

const watch = (options: Parameters<typeof open>[0]): ('up' | StoreOutage)[] => open(options).events;

async function expectOutageThenUp(events: readonly ('up' | StoreOutage)[], reply: string, repair: () => void): Promise<void> {
  await expect
    .poll(() => events.at(-1), { timeout: 5_000 })
    .toMatchObject({
      message: expect.stringContaining(`Redis replied: ${reply}`),
      reply: expect.stringContaining(reply),
    });
  // Longer than the pause between two attempts to connect.
  await new Promise((resolve) => setTimeout(resolve, 2_500));
  expect(events).not.toContain('up');
  repair();
  await expect.poll(() => events.at(-1), { timeout: 5_000 }).toBe('up');
}

test('a Cluster that refuses the user, or to tell its slots', async () => {
  const { topology, nodes, stop } = await startCluster(0);
  onTestFinished(stop);
  const allow = (...commands: readonly string[]): void => {
    for (const node of nodes) expect(node.cli(...USER, ...COMMANDS, ...commands)).toBe('OK');
  };
  await expectOutageThenUp(watch({ topology, username: 'sidegate', password }), 'WRONGPASS ', () => allow('+cluster|slots'));
  allow();
  const reply = "NOPERM this user has no permissions to run the 'cluster|slots' command";
  await expectOutageThenUp(watch({ topology, username: 'sidegate', password }), reply, () => allow('+cluster|slots'));
});

test('a Sentinel that refuses the user, or one of the documented commands', { timeout: 60_000 }, async () => {
  const { topology, stop } = await startSentinelGroup();
  onTestFinished(stop);
  const nodes = topology.kind === 'sentinel' ? topology.nodes : [];
  const allow = (...commands: readonly string[]): void => {
    for (const { port } of nodes) execFileSync('redis-cli', ['-p', String(port), ...USER, ...commands], { stdio: 'ignore' });
  };
  const own = ['+sentinel|get-master-addr-by-name', '+sentinel|sentinels'];
  expect(DOCUMENTED).toContain(`\`${own.join(' ')}\``);
  const options = { topology: { ...topology, username: 'sidegate', password } };
  await expectOutageThenUp(watch(options), 'WRONGPASS ', () => allow(...own));
  for (const [index, command] of own.entries()) {
    allow(...own.toSpliced(index, 1));
    const reply = `NOPERM this user has no permissions to run the '${command.slice(1)}' command`;
    await expectOutageThenUp(watch(options), reply, () => allow(...own));
  }
});

test('a database that refuses to be selected: nothing is written to database 0 instead', async () => {
  const server = await startRedis();
  onTestFinished(() => server.stop());
  expect(server.cli(...USER, ...COMMANDS)).toBe('OK');
  const events = watch({
    topology: { kind: 'standalone', node: { host: '127.0.0.1', port: server.port } },
    username: 'sidegate',
    password,
    db: 3,
  });
  await expectOutageThenUp(events, "NOPERM this user has no permissions to run the 'select' command", () => {
    expect(server.cli('INFO', 'commandstats')).not.toContain('cmdstat_eval');
    // Those of redis-cli included.
    expect(Number(/total_connections_received:(\d+)/.exec(server.cli('INFO', 'stats'))?.[1])).toBeLessThan(10);
    expect(server.cli(...USER, ...COMMANDS, '+select')).toBe('OK');
  });
});

function openStore(topology: RedisStoreOptions['topology']) {
  const events: unknown[] = [];
  const store = createRedisStore(
    { keyPrefix: 'sidegate:', commandTimeout: 1_000, connectTimeout: 1_000, topology },
    { onUp: () => events.push('up'), onDown: ({ message }) => events.push(message), onWarning: () => undefined },
    systemClock,
  );
  onTestFinished(() => store.close());
  /** Claims in one turn; the text of each failure. */
  const claimAll = async (prefix: string, count = 40): Promise<string[]> => {
    const claims = Array.from({ length: count }, (_, i) =>
      store.claim({ key: `${prefix}${i}`, token: 'one', fingerprint: 'f', leaseMs: 60_000 }).then(
        () => '',
        (error: Error) => error.message,
      ),
    );
    return (await Promise.all(claims)).filter((text) => text !== '');
  };
  return { events, claimAll };
}

test('a Cluster whose slots move refuses no claim, even of one turn with others', { timeout: 60_000 }, async () => {
  const { topology, nodes, stop } = await startCluster(0);
  onTestFinished(stop);
  const { events, claimAll } = openStore(topology);
  await expect.poll(() => events).toEqual(['up']);
  const [from, to] = nodes as readonly [RedisServer, RedisServer];
  const id = to.cli('CLUSTER', 'MYID').trim();
  const [, last = ''] = /myself,master .* connected 0-(\d+)/.exec(from.cli('CLUSTER', 'NODES')) ?? [];
  for (let i = 0; i < 20; i++) {
    const slot = from.cli('CLUSTER', 'KEYSLOT', `sidegate:moved-${i}`).trim();
    if (Number(slot) <= Number(last)) for (const node of [to, from]) node.cli('CLUSTER', 'SETSLOT', slot, 'NODE', id);
  }
  expect(await claimAll('moved-')).toEqual([]);
  expect(events).toEqual(['up']);
});

test('a replica of a Cluster that gets a write, while the connection to its master is missing, names the master', async () => {
  const { topology, stop } = await startCluster(1);
  onTestFinished(stop);
  const client = openRedis({ keyPrefix: '', commandTimeout: 1_000, connectTimeout: 1_000, topology }) as Cluster;
  onTestFinished(() => client.disconnect());
  // A Cluster lists a replica once it has replicated a write.
  await expect
    .poll(async () => {
      await Promise.allSettled(Array.from({ length: 20 }, (_, i) => client.set(`key-${i}`, '0')));
      await client.refreshSlotsCache();
      return client.nodes('slave').length;
    })
    .toBe(3);
  for (const replica of client.nodes('slave')) {
    const writes = Array.from({ length: 20 }, (_, i) => replica.eval("return redis.call('SET', KEYS[1], '1')", 1, `key-${i}`));
    const ends = await Promise.allSettled(writes);
    expect(ends.map((end) => (end.status === 'rejected' ? String(end.reason) : 'written')).join('\n')).not.toMatch(
      /READONLY|written/,
    );
  }
});

test('a primary that freezes is left for the one that the Sentinels choose', { timeout: 60_000 }, async () => {
  const { topology, master, replica, stop } = await startSentinelGroup();
  onTestFinished(async () => {
    master.signal('SIGCONT');
    await stop();
  });
  const { store, events } = open({ topology, commandTimeout: 500 });
  let claims = 0;
  const claim = (key: string) => store.claim({ key, fingerprint: '-', token: `t${++claims}`, leaseMs: 60_000 });
  await expect.poll(() => events).toEqual(['up']);
  expect(await claim('before')).toEqual({ state: 'new' });
  master.signal('SIGSTOP');
  await expect(claim('meanwhile')).rejects.toThrow();
  expect(events.at(-1)).not.toBe('up');
  // The connections of the frozen primary stay open, and its kernel acknowledges what is sent.
  await expect.poll(() => events.at(-1), { timeout: 20_000 }).toBe('up');
  expect(replica.cli('ROLE')).toMatch(/^master/);
  expect(await claim('after')).toEqual({ state: 'new' });
  master.signal('SIGCONT');
  await expect.poll(() => master.cli('ROLE'), { timeout: 30_000 }).toMatch(/^slave/);
  expect(await claim('after')).toMatchObject({ state: 'in-progress' });
});

test('a Sentinel that accepts connections and never replies does not keep the gate from the others', {
  timeout: 60_000,
}, async () => {
  const { topology, stop } = await startSentinelGroup();
  onTestFinished(stop);
  const silent = createServer((socket) => socket.resume()).listen(0, '127.0.0.1');
  onTestFinished(() => void silent.close());
  await once(silent, 'listening');
  const { port } = silent.address() as AddressInfo;
  if (topology.kind !== 'sentinel') throw new Error('no Sentinels');
  const events = watch({ topology: { ...topology, nodes: [{ host: '127.0.0.1', port }, ...topology.nodes] } });
  await expect.poll(() => events, { timeout: 10_000 }).toEqual(['up']);
});

test('a master of a Cluster that freezes leaves no claim of a call that was given up', { timeout: 60_000 }, async () => {
  const { topology, nodes, stop } = await startCluster(1);
  const [master, ...others] = nodes as readonly [RedisServer, ...RedisServer[]];
  onTestFinished(async () => {
    master.signal('SIGCONT');
    await stop();
  });
  const { store, events } = open({ topology });
  await expect.poll(() => events.at(-1)).toBe('up');
  // A Cluster lists a replica once it has replicated a write.
  await Promise.all(Array.from({ length: 20 }, (_, i) => claim(`before-${i}`)));
  const ofMaster = Array.from({ length: 60 }, (_, i) => `key-${i}`).filter((key) => isOn(master, `sidegate:${key}`));
  expect(ofMaster.length).toBeGreaterThan(5);
  master.signal('SIGSTOP');
  const attempts = ofMaster.map(async (key) => {
    await expect(claim(key)).rejects.toThrow();
    await store.release(key, 'a').catch(() => undefined);
  });
  await Promise.all(attempts);
  const taken = (): string[] =>
    others.filter((node) => /^master/.test(node.cli('ROLE'))).flatMap((node) => node.cli('KEYS', '*key-*').trim().split('\n'));
  await expect.poll(() => others.filter((node) => /^master/.test(node.cli('ROLE'))).length, { timeout: 20_000 }).toBe(3);
  // For as long as ioredis may send calls again.
  await new Promise((resolve) => setTimeout(resolve, 3_000));
  expect(taken().filter((key) => key !== '')).toEqual([]);

  function claim(key: string) {
    return store.claim({ key, fingerprint: '-', token: 'a', leaseMs: 60_000 });
  }
});

/** Whether a node of the Cluster has the slot of a key. */
function isOn(node: RedisServer, key: string): boolean {
  const slot = Number(node.cli('CLUSTER', 'KEYSLOT', key));
  const ranges = /myself,master .* connected ([\d\- ]+)/.exec(node.cli('CLUSTER', 'NODES'))?.[1] ?? '';
  return ranges.split(' ').some((range) => {
    const [first = 0, last = first] = range.split('-').map(Number);
    return range !== '' && slot >= first && slot <= last;
  });
}
