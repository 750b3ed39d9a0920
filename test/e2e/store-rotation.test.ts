/** Files of the store that change while the gate runs: passwords, the URL, the CA and the client certificate of Redis. */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeAll, expect, test } from 'vitest';
import { type Authority, makeAuthority, type Pair } from '../support/certificates.ts';
import { send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp, useFolder } from '../support/fixtures.ts';
import { startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { type RedisOptions, type RedisServer, startRedis } from '../support/redis.ts';
import { startCluster } from '../support/redis-topologies.ts';

const app = useApp();
const folder = useFolder();
const stops: (() => Promise<unknown>)[] = [];
let gate: TestGate;

afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

async function start(options: RedisOptions): Promise<RedisServer> {
  const server = await startRedis(options);
  stops.push(server.stop);
  return server;
}

const ADMIN = ['--user', 'admin', '--pass', 'admin', '--no-auth-warning'];

/** A server with this password for all users but redis-cli. */
const withPassword = (password: string, ...config: string[]): RedisOptions => ({
  config: [`requirepass ${password}`, 'user admin on >admin ~* &* +@all', ...config],
  cliArgs: ADMIN,
});

/** Starts a gate that has used its store. */
async function open(redis: object, files: Readonly<Record<string, string>>): Promise<void> {
  gate = await startGate({ store: { redis }, routes: [toRoute(app.port)] }, undefined, files);
  stops.push(gate.stop);
  await until(() => has('store_up'));
  expect(await deliver()).toBe(200);
}

const deliver = async (): Promise<number> => (await send(gate.port, makeDelivery())).status;
const count = (event: string): number => gate.log().filter(({ msg }) => msg === event).length;
const has = (event: string): boolean => count(event) > 0;
const write = (name: string, text: string): void => writeFileSync(join(gate.folder, name), text);

/** Saves a file, and waits until the gate has read it. */
async function replace(name: string, text: string): Promise<void> {
  const before = count('store_reloaded');
  write(name, text);
  await until(() => count('store_reloaded') > before);
}

/** Cuts the connections, after the server has another password. */
function cut({ cli }: RedisServer, password?: string): void {
  if (password !== undefined) cli('ACL', 'SETUSER', 'default', 'resetpass', `>${password}`);
  cli('CLIENT', 'KILL', 'TYPE', 'normal');
}

/** The gate has connected so many times, and accepts deliveries. */
async function untilUp(times: number): Promise<void> {
  await until(() => count('store_up') === times);
  expect(await deliver()).toBe(200);
}

test('uses a new password from the next connection on, and keeps the one that it has until then', async () => {
  const server = await start(withPassword('first'));
  await open({ url: `redis://127.0.0.1:${server.port}`, passwordFile: 'password' }, { password: 'first' });
  await replace('password', 'second\n');
  expect(has('store_down')).toBe(false);
  expect(await deliver()).toBe(200);
  cut(server, 'second');
  await untilUp(2);
  expect(gate.logText()).not.toMatch(/WRONGPASS|second/);
});

test('tries again until the password that the server has is in the file', async () => {
  const server = await start(withPassword('first'));
  await open({ url: `redis://127.0.0.1:${server.port}`, passwordFile: 'password' }, { password: 'first' });
  cut(server, 'second');
  await until(() => gate.logText().includes('WRONGPASS'));
  expect(await deliver()).toBe(503);
  write('password', 'second');
  await untilUp(2);
});

test('a file that is missing leaves the password before it in use, and is reported', async () => {
  const server = await start(withPassword('first'));
  await open({ url: `redis://127.0.0.1:${server.port}`, passwordFile: 'password' }, { password: 'first' });
  rmSync(join(gate.folder, 'password'));
  await until(() => has('store_reload_failed'));
  cut(server);
  await untilUp(2);
  expect(gate.log().filter(({ msg }) => msg === 'store_reload_failed')).toMatchObject([{ path: 'store.redis.passwordFile' }]);
});

test('SIGHUP reads the files, too, where they cannot be watched', async () => {
  const server = await start(withPassword('first'));
  await open({ url: `redis://127.0.0.1:${server.port}`, passwordFile: 'password' }, { password: 'first' });
  write('password', 'second');
  await gate.gate.reload();
  expect(has('store_reloaded')).toBe(false);
  cut(server, 'second');
  await untilUp(2);
});

test('a URL with another server, database and user leads the next connection there', async () => {
  const first = await start({});
  const second = await start(withPassword('second'));
  await open({ urlFile: 'url' }, { url: `redis://127.0.0.1:${first.port}/3` });
  await replace('url', `redis://default:second@127.0.0.1:${second.port}/5`);
  await first.kill();
  await untilUp(2);
  expect(second.cli('INFO', 'keyspace')).toMatch(/^db5:(?!.*^db)/ms);
  await replace('url', `redis://default:second@127.0.0.1:${second.port}`);
  cut(second);
  await untilUp(3);
  expect(second.cli('INFO', 'keyspace')).toContain('db0:');
  await second.kill();
  await until(() => count('store_down') === 3);
  expect(gate.log().findLast(({ msg }) => msg === 'store_down')).toMatchObject({ address: `127.0.0.1:${second.port}` });
});

test('a new password of the Sentinels is used while they reject the one before', async () => {
  const master = await start(withPassword('data'));
  const watch = [`sentinel monitor gate 127.0.0.1 ${master.port} 1`, 'sentinel auth-pass gate data'];
  const sentinel = await start({ ...withPassword('first', ...watch), binary: 'redis-sentinel' });
  const redis = {
    sentinel: { name: 'gate', nodes: [`127.0.0.1:${sentinel.port}`], passwordFile: 'sentinel' },
    passwordFile: 'password',
  };
  await open(redis, { sentinel: 'first', password: 'data' });
  cut(sentinel, 'second');
  cut(master);
  await until(() => gate.logText().includes('WRONGPASS'));
  write('sentinel', 'second');
  await untilUp(2);
});

test('a new password is used for all nodes of a Cluster', async () => {
  const cluster = await startCluster(0, ['user admin on >admin ~* &* +@all']);
  stops.push(cluster.stop);
  const nodes = cluster.topology.kind === 'cluster' ? cluster.topology.nodes.map(({ port }) => `127.0.0.1:${port}`) : [];
  const servers = cluster.nodes.map(({ cli, ...rest }) => ({ ...rest, cli: (...args: string[]) => cli(...ADMIN, ...args) }));
  for (const server of servers) cut(server, 'first');
  await open({ cluster: { nodes }, passwordFile: 'password' }, { password: 'first' });
  for (const server of servers) cut(server, 'second');
  await until(() => gate.logText().includes('WRONGPASS'));
  write('password', 'second');
  await until(() => count('store_up') > 1);
  expect(await Promise.all(Array.from({ length: 20 }, deliver))).toEqual(Array(20).fill(200));
});

let before: Authority;
let after: Authority;

beforeAll(() => {
  before = makeAuthority(folder, 'before');
  after = makeAuthority(folder, 'after');
});

const toTls = ({ cert, key }: Pair, { ca }: Authority): string[][] => [
  ['tls-cert-file', cert],
  ['tls-key-file', key],
  ['tls-ca-cert-file', ca],
];

test('a new CA and client certificate are used together, and half of the pair is not', async () => {
  const names = 'DNS:localhost,IP:127.0.0.1';
  const old = { server: before.issue('server', names), client: before.issue('client', names) };
  const renewed = { server: after.issue('server2', names), client: after.issue('client2', names) };
  const { server, client } = old;
  const redis = await start({
    isTls: true,
    // redis-cli has no certificate.
    config: [...toTls(server, before).map((line) => line.join(' ')), 'tls-auth-clients optional'],
    cliArgs: ['--tls', '--insecure'],
  });
  const tls = { caFile: 'ca', certFile: 'cert', keyFile: 'key' };
  const text = (file: string): string => readFileSync(file, 'utf8');
  const files = { ca: text(before.ca), cert: text(client.cert), key: text(client.key) };
  await open({ url: `rediss://127.0.0.1:${redis.port}`, tls }, files);
  write('key', text(renewed.client.key));
  await until(() => has('store_reload_failed'));
  cut(redis);
  await untilUp(2);
  await replace('cert', text(renewed.client.cert));
  await replace('ca', text(after.ca));
  redis.cli('CONFIG', 'SET', ...toTls(renewed.server, after).flat());
  cut(redis);
  await untilUp(3);
  expect(count('store_reload_failed')).toBe(1);
});
