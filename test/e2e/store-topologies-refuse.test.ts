/** A Cluster, a Sentinel or a database that refuses: the outage says what it replied, and ends when it no longer does. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { Secret } from '../../src/core/secret.ts';
import type { RedisStoreOptions } from '../../src/state/redis/options.ts';
import type { StoreOutage } from '../../src/state/redis/outage.ts';
import { createRedisStore } from '../../src/state/redis/redis-store.ts';
import { startRedis } from '../support/redis.ts';
import { startCluster, startSentinelGroup } from '../support/redis-topologies.ts';

const DOCUMENTED = readFileSync('docs/how-to/redis.md', 'utf8');
const COMMANDS = /user sidegate [^`]*?(~sidegate:\*[^\n]*)/.exec(DOCUMENTED)?.[1]?.split(' ') ?? [];
const password = new Secret(Buffer.from('secret'));
const USER = ['ACL', 'SETUSER', 'sidegate', 'reset', 'on', '>secret'];

/** Opens a store; what it reports, in order: `up`, or an outage. */
function watch(options: Pick<RedisStoreOptions, 'topology'> & Partial<RedisStoreOptions>): ('up' | StoreOutage)[] {
  const events: ('up' | StoreOutage)[] = [];
  const store = createRedisStore(
    { keyPrefix: 'sidegate:', commandTimeout: 1_000, connectTimeout: 1_000, ...options },
    { onUp: () => events.push('up'), onDown: (outage) => events.push(outage), onWarning: () => undefined },
    systemClock,
  );
  onTestFinished(() => store.close());
  return events;
}

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
