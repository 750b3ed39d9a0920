/** A Redis that answers but refuses what a delivery needs: `check --connect`, the log, /readyz and the metric say so, and it recovers by itself. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { checkFile } from '../../src/cli/check.ts';
import { systemClock } from '../../src/core/clock.ts';
import { createRedisStore } from '../../src/state/redis/redis-store.ts';
import { send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp, useFolder } from '../support/fixtures.ts';
import { findFreePort } from '../support/free-port.ts';
import { startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { recordIo } from '../support/io.ts';
import { LAUNCHER } from '../support/process.ts';
import { type RedisServer, startRedis } from '../support/redis.ts';
import { startCluster } from '../support/redis-topologies.ts';

const app = useApp();
const folder = useFolder();
const servers: RedisServer[] = [];
let gate: TestGate | undefined;

afterEach(async () => {
  await gate?.stop();
  gate = undefined;
  for (const server of servers.splice(0)) await server.stop();
});

async function start(...config: string[]): Promise<RedisServer> {
  const server = await startRedis({ config });
  servers.push(server);
  return server;
}

async function check(redis: object): Promise<{ code: number; text: string }> {
  const file = join(folder, 'gate.yaml');
  const route = { name: 'a', match: { path: '/a' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' };
  writeFileSync(file, stringify({ store: { redis }, routes: [route] }));
  const { io, stdout } = recordIo();
  return { code: await checkFile(file, { format: 'text', connect: true }, io), text: stdout() };
}

/** What deliveries and logins need, and what sidegate works without, as docs/how-to/redis.md lists them. */
const COMMANDS = ['eval', 'evalsha', 'get', 'set', 'del', 'pttl', 'pexpire', 'incr', 'decr', 'time'];
const OPTIONAL = ['exists', 'xadd', 'xrange', 'config|get'];

test('the documentation lists exactly these commands', () => {
  const text = readFileSync('docs/how-to/redis.md', 'utf8');
  const [rules = ''] = /user sidegate [^`]*?~sidegate:\*([^`]*)/.exec(text)?.slice(1) ?? [];
  expect([...rules.matchAll(/\+([a-z|]+)/g)].map(([, command]) => command)).toEqual([...COMMANDS, ...OPTIONAL]);
});

function allow(server: RedisServer, commands: readonly string[]): object {
  const rules = commands.map((command) => `+${command}`);
  expect(server.cli('ACL', 'SETUSER', 'sidegate', 'reset', 'on', '>secret', '~sidegate:*', ...rules)).toBe('OK');
  return { url: `redis://sidegate:secret@127.0.0.1:${server.port}` };
}

const toUrl = ({ port }: RedisServer): object => ({ url: `redis://127.0.0.1:${port}` });

interface Refusing {
  readonly title: string;
  readonly reply: RegExp;
  readonly hint: string;
  readonly begin: () => Promise<{ readonly server: RedisServer; readonly redis?: object }>;
  readonly end: (server: RedisServer) => void;
}

const REFUSING: readonly Refusing[] = [
  {
    title: 'a replica',
    reply: /READONLY/,
    hint: 'use the address of the primary',
    begin: async () => {
      const primary = await start();
      const server = await start(`replicaof 127.0.0.1 ${primary.port}`);
      await until(() => server.cli('INFO', 'replication').includes('master_link_status:up'));
      return { server };
    },
    end: (server) => server.cli('REPLICAOF', 'NO', 'ONE'),
  },
  {
    title: 'a replica without its primary, which serves no stale data',
    reply: /MASTERDOWN|READONLY/,
    hint: '',
    begin: async () => ({ server: await start(`replicaof 127.0.0.1 ${await findFreePort()}`, 'replica-serve-stale-data no') }),
    end: (server) => server.cli('REPLICAOF', 'NO', 'ONE'),
  },
  {
    title: 'a server whose memory is full',
    reply: /OOM/,
    hint: 'raise maxmemory',
    begin: async () => {
      const server = await start('maxmemory-policy noeviction');
      server.cli('CONFIG', 'SET', 'maxmemory', '1');
      return { server };
    },
    end: (server) => server.cli('CONFIG', 'SET', 'maxmemory', '0'),
  },
  {
    title: 'a server that cannot write its snapshot',
    reply: /MISCONF/,
    hint: 'free or enlarge its disk',
    begin: async () => {
      const server = await start('save 3600 1', 'stop-writes-on-bgsave-error yes');
      server.cli('SET', 'other', '1');
      rmSync(server.folder, { recursive: true });
      server.cli('BGSAVE');
      await until(() => server.cli('INFO', 'persistence').includes('rdb_last_bgsave_status:err'));
      return { server };
    },
    end: (server) => {
      mkdirSync(server.folder);
      server.cli('CONFIG', 'SET', 'stop-writes-on-bgsave-error', 'no');
    },
  },
  {
    title: 'a primary with too few replicas',
    reply: /NOREPLICAS/,
    hint: 'lower min-replicas-to-write',
    begin: async () => ({ server: await start('min-replicas-to-write 1') }),
    end: (server) => server.cli('CONFIG', 'SET', 'min-replicas-to-write', '0'),
  },
  {
    title: 'a server that loads its data',
    reply: /LOADING/,
    hint: 'wait until Redis is ready',
    begin: async () => {
      const server = await start(
        'save 3600 1',
        'rdbcompression no',
        'key-load-delay 15000',
        'loading-process-events-interval-bytes 1024',
      );
      server.cli('EVAL', "for i = 1, 200 do redis.call('SET', 'k' .. i, string.rep('v', 2000)) end", '0');
      server.cli('SAVE');
      await server.restart();
      return { server };
    },
    end: () => undefined,
  },
  {
    title: 'a user without a command that deliveries need',
    reply: /\(SET\)/,
    hint: 'docs/how-to/redis.md',
    begin: async () => {
      const server = await start();
      return {
        server,
        redis: allow(
          server,
          COMMANDS.filter((command) => command !== 'set'),
        ),
      };
    },
    end: (server) => allow(server, COMMANDS),
  },
];

describe.each(REFUSING)('$title', ({ reply, hint, begin, end }) => {
  test('is reported by check --connect, log, metric and /readyz, and is used as soon as it takes writes', async () => {
    const { server, redis = toUrl(server) } = await begin();
    const report = await check(redis);
    expect(report.text).toMatch(/error store\.redis: Redis at \S+ is down since \S+: Redis replied: /);
    expect(report.text).toMatch(reply);
    expect(report.text).toContain(hint);
    expect(report.code).toBe(1);

    gate = await startGate({ store: { redis }, routes: [toRoute(app.port)] });
    const { log, adminPort } = gate;
    await until(() => log().some(({ msg }) => msg === 'store_down'));
    const [down] = log().filter(({ msg }) => msg === 'store_down');
    expect(String(down?.['message'])).toMatch(reply);
    expect(String(down?.['hint'])).toContain(hint);
    expect(log().filter(({ msg }) => msg === 'store_up')).toEqual([]);
    expect((await send(adminPort, { method: 'GET', path: '/metrics' })).text).toMatch(/^sidegate_dedup_up 0$/m);
    const ready = await send(adminPort, { method: 'GET', path: '/readyz' });
    expect([ready.status, ready.text]).toEqual([200, expect.stringMatching(/^ready, but the store is down: Redis replied /)]);
    expect(ready.text).toMatch(reply);

    end(server);
    await until(() => log().some(({ msg }) => msg === 'store_up'));
    expect((await send(adminPort, { method: 'GET', path: '/readyz' })).text).toBe('ready\n');
    expect(server.cli('--scan', '--pattern', '*probe*')).toBe('');
  });
});

describe('a user with exactly the documented commands', () => {
  test('is enough, without a warning', async () => {
    const server = await start();
    const redis = allow(server, [...COMMANDS, ...OPTIONAL]);
    expect(await check(redis)).toMatchObject({ code: 0, text: expect.stringContaining(': connected') });
    gate = await startGate({ store: { redis }, routes: [toRoute(app.port)] });
    const { log } = gate;
    await until(() => log().some(({ msg }) => msg === 'store_up'));
    expect((await send(gate.port, makeDelivery())).status).toBe(200);
    expect(log().filter(({ msg }) => msg === 'store_warning')).toEqual([]);
  });

  test.each(COMMANDS.filter((command) => command !== 'eval'))('is named in the report if it lacks %s', async (command) => {
    const server = await start();
    // Sends the script, so that a user without EVAL can call it.
    await check(allow(server, COMMANDS));
    const report = await check(
      allow(
        server,
        COMMANDS.filter((each) => each !== command),
      ),
    );
    expect(report.text).toMatch(new RegExp(`Redis replied: .*(?:'${command}'|\\(${command}\\))`, 'i'));
    expect(report.text).toContain('docs/how-to/redis.md');
  });

  test.each(OPTIONAL)('gets deliveries handled without %s, which one line of the log names', async (command) => {
    const server = await start();
    const redis = allow(server, [...COMMANDS, ...OPTIONAL.filter((each) => each !== command)]);
    gate = await startGate({ store: { redis }, routes: [toRoute(app.port)] });
    const { log } = gate;
    await until(() => log().some(({ msg }) => msg === 'store_warning'));
    expect((await send(gate.port, makeDelivery())).status).toBe(200);
    const warnings = log().filter(({ msg }) => msg === 'store_warning');
    expect(warnings.map(({ message }) => message)).toEqual([
      expect.stringContaining(`does not allow ${command.replace('|', ' ').toUpperCase()}`),
    ]);
  });
});

test('every line of the log is JSON, also what a library or Node prints', async () => {
  const preload = join(folder, 'preload.cjs');
  writeFileSync(
    preload,
    `const timer = setInterval(() => {
       if (process.listenerCount('uncaughtException') === 0) return;
       clearInterval(timer);
       console.error('[library] %s', 'of a library');
       process.emitWarning('of Node');
     }, 10);`,
  );
  const file = join(folder, 'json.yaml');
  const ports = { listen: { address: '127.0.0.1:0' }, admin: { address: '127.0.0.1:0' }, shutdown: { grace: '0ms' } };
  writeFileSync(
    file,
    stringify({ ...ports, routes: [{ name: 'a', match: { path: '/a' }, upstream: 'http://127.0.0.1:1', allow: 'anyone' }] }),
  );
  const child = spawn(process.execPath, ['--require', preload, LAUNCHER, 'run', '--config', file]);
  let text = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => {
      text += chunk.toString();
    });
  const ended = once(child, 'exit');
  await until(() => text.includes('of a library') && text.includes('of Node'));
  child.kill('SIGTERM');
  await ended;
  const lines = text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  expect(lines.flatMap(({ msg, message }) => (msg === 'library_warning' ? [message] : []))).toEqual([
    '[library] of a library',
    'Warning: of Node',
  ]);
});

test('a policy that evicts keys is reported at the next connection, as after a failover', async () => {
  const server = await start('maxmemory 100mb', 'maxmemory-policy noeviction');
  gate = await startGate({ store: { redis: { url: `redis://127.0.0.1:${server.port}` } }, routes: [toRoute(app.port)] });
  expect(gate.logText()).not.toContain('Redis can evict IDs');
  server.cli('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru');
  server.cli('CLIENT', 'KILL', 'TYPE', 'normal');
  await until(() => gate?.logText().includes('Redis can evict IDs') === true);
});

test('a Cluster of which one primary refuses writes stays down, and each of its replies is reported once', async () => {
  const cluster = await startCluster(0);
  cluster.nodes[0]?.cli('CONFIG', 'SET', 'min-replicas-to-write', '3');
  const events: string[] = [];
  const options = { topology: cluster.topology, keyPrefix: 'sg:', commandTimeout: 1_000, connectTimeout: 1_000 };
  const store = createRedisStore(
    options,
    { onUp: () => events.push('up'), onDown: ({ reply = '' }) => events.push(reply), onWarning: () => undefined },
    systemClock,
  );
  await expect.poll(() => events.some((event) => event.startsWith('NOREPLICAS')), { timeout: 5_000 }).toBe(true);
  const startedAt = performance.now();
  // Three more probes.
  await expect.poll(() => performance.now() - startedAt, { timeout: 5_000 }).toBeGreaterThan(3_500);
  expect(events).not.toContain('up');
  expect(new Set(events).size).toBe(events.length);
  await store.close();
  await cluster.stop();
});
