import { afterEach, describe, expect, test } from 'vitest';
import { type Answer, send } from '../support/client.ts';
import { useApp, useRedis } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, until } from '../support/gate.ts';
import { makeEntry, toBasic } from '../support/users.ts';

const ALICE = '192.0.2.1';
const ATTACKER = '192.0.2.66';
const USERS = [makeEntry('alice', 'right'), makeEntry('bob', 'right')].join('\n');

const app = useApp();
const redis = useRedis();
let gate: TestGate;
afterEach(() => gate.stop());

const start = async (basic: Sections = {}, sections: Sections = {}): Promise<void> => {
  const route = {
    name: 'admin',
    match: { pathPrefix: '/' },
    upstream: `http://127.0.0.1:${app.port}`,
    basic: { realm: 'r', users: { file: 'users' }, requireTls: false, ...basic },
  };
  const listen = { address: '127.0.0.1:0', trustedProxies: ['127.0.0.1'] };
  gate = await startGate({ listen, routes: [route], ...sections }, undefined, { users: USERS });
};
const ask = (from: string, user: string, password: string): Promise<Answer> =>
  send(gate.port, {
    method: 'GET',
    path: '/',
    headers: { ...toBasic(user, password), 'X-Forwarded-For': from, 'X-Forwarded-Proto': 'https' },
  });
const statusOf = async (from: string, user: string, password: string): Promise<number> =>
  (await ask(from, user, password)).status;
/** Wrong passwords for one user name each, until the client is banned. */
const ban = async (from: string, failures = 3): Promise<void> => {
  for (let i = 0; i < failures; i++) expect(await statusOf(from, `nobody-${i}`, 'wrong')).toBe(401);
  expect(await statusOf(from, 'nobody', 'wrong')).toBe(429);
};
const LIMIT = { failures: 3, per: '1m', ban: '5m' };

describe('a banned client', () => {
  test('gets 429 for the right password of a user who is logged in from another network', async () => {
    await start({ limit: LIMIT });
    expect(await statusOf(ALICE, 'alice', 'right')).toBe(200);
    await ban(ATTACKER);
    expect(await statusOf(ATTACKER, 'alice', 'right')).toBe(429);
    expect(await statusOf(ALICE, 'alice', 'right')).toBe(200);
  });

  test('keeps its access with the password that it used before', async () => {
    await start({ limit: LIMIT });
    expect(await statusOf(ATTACKER, 'alice', 'right')).toBe(200);
    await ban(ATTACKER);
    expect(await statusOf(ATTACKER, 'alice', 'right')).toBe(200);
    expect(await statusOf(ATTACKER, 'bob', 'right')).toBe(429);
  });

  test('keeps its access, and has its password hashed again once the cache entry has expired', async () => {
    await start({ limit: LIMIT, cache: { ttl: '0s' } });
    expect(await statusOf(ATTACKER, 'alice', 'right')).toBe(200);
    await ban(ATTACKER);
    expect(await statusOf(ATTACKER, 'alice', 'right')).toBe(200);
    expect(await statusOf(ATTACKER, 'alice', 'wrong')).toBe(429);
  });

  test('loses its access as a user after 100 wrong passwords, so that another client in its NAT cannot keep guessing', async () => {
    await start({ limit: LIMIT });
    expect(await statusOf(ATTACKER, 'alice', 'right')).toBe(200);
    expect(await statusOf(ATTACKER, 'bob', 'right')).toBe(200);
    await ban(ATTACKER);
    const guesses = await Promise.all(Array.from({ length: 101 }, (_, i) => statusOf(ATTACKER, 'alice', `guess ${i}`)));
    expect(new Set(guesses)).toEqual(new Set([429]));
    expect(await statusOf(ATTACKER, 'alice', 'right')).toBe(429);
    expect(await statusOf(ATTACKER, 'bob', 'right')).toBe(200);
  });

  test('includes its whole /64 network if its address is IPv6', async () => {
    await start({ limit: LIMIT });
    expect(await statusOf(ALICE, 'alice', 'right')).toBe(200);
    await ban('2001:db8::1');
    expect(await statusOf('2001:db8::ffff:2', 'alice', 'right')).toBe(429);
    expect(await statusOf('2001:db8:0:1::1', 'alice', 'right')).toBe(200);
  });

  test('is rejected even if it sends all its guesses at once, before its ban begins', async () => {
    await start({ limit: LIMIT });
    expect(await statusOf(ALICE, 'alice', 'right')).toBe(200);
    const guesses = Array.from({ length: 200 }, (_, i) => (i === 150 ? 'right' : `guess ${i}`));
    const statuses = await Promise.all(guesses.map((guess) => statusOf(ATTACKER, 'alice', guess)));
    expect(statuses.filter((status) => status === 401)).toHaveLength(3);
    expect(statuses.filter((status) => status === 200)).toHaveLength(0);
    expect(await gate.metric('sidegate_password_checks_total{outcome="miss"}')).toBe(4);
  });
});

describe('a banned user', () => {
  test('keeps sessions from other networks; all other logins with that user name are rejected', async () => {
    await start({ limit: { ...LIMIT, by: ['user'] } });
    expect(await statusOf(ALICE, 'alice', 'right')).toBe(200);
    for (let i = 0; i < 3; i++) await ask(ATTACKER, 'alice', `guess ${i}`);
    expect(await statusOf(ATTACKER, 'alice', 'right')).toBe(429);
    expect(await statusOf(ALICE, 'alice', 'right')).toBe(200);
    expect(await statusOf(ATTACKER, 'bob', 'right')).toBe(200);
  });
});

const startShared = async (basic: Sections = {}): Promise<void> => {
  redis.cli('flushall');
  await start(basic, { store: { redis: { url: `redis://127.0.0.1:${redis.port}` } } });
  await until(() => gate.logText().includes('store_up'));
};

describe.each([
  ['in memory', start],
  ['in Redis', startShared],
] as const)('with attempts %s, logins at the same moment, more than may fail,', (_, begin) => {
  const many = (toLogin: (i: number) => Promise<number>): Promise<number[]> =>
    Promise.all(Array.from({ length: 40 }, (_each, i) => toLogin(i)));

  test('of one user from many networks, or of users of one network, are all allowed if they are right', async () => {
    await begin({ limit: LIMIT });
    expect(new Set(await many((i) => statusOf(`192.0.2.${i}`, 'alice', 'right')))).toEqual(new Set([200]));
    const users = ['alice', 'bob'];
    const logins = await many((i) => statusOf('198.51.100.1', users[i % 2] as string, 'right'));
    expect(new Set(logins)).toEqual(new Set([200]));
  });

  test('allow no more guesses than one after the other', async () => {
    await begin({ limit: LIMIT });
    const fromOne = await many((i) => statusOf(ATTACKER, `nobody-${i}`, 'guess'));
    const ofOne = await many((i) => statusOf(`192.0.2.${i + 100}`, 'bob', `guess ${i}`));
    for (const statuses of [fromOne, ofOne]) {
      expect(statuses.filter((status) => status === 401)).toHaveLength(3);
      expect(statuses.filter((status) => status === 429)).toHaveLength(37);
    }
    expect(await statusOf('198.51.100.2', 'bob', 'right')).toBe(429);
  });
});

describe('with Redis, a banned client', () => {
  const writes = (): number =>
    redis
      .cli('info', 'commandstats')
      .split('\n')
      .filter((line) => /^cmdstat_(?:incr|decr|set|del|pexpire)(?:\|\w+)?:/.test(line))
      .reduce((sum, line) => sum + Number(/calls=(\d+)/.exec(line)?.[1]), 0);

  test('causes no keys, no writes and almost no round trips, with any user names', async () => {
    await startShared({ limit: LIMIT });
    await ban(ATTACKER);
    const keys = redis.cli('dbsize');
    redis.cli('config', 'resetstat');
    const statuses = await Promise.all(Array.from({ length: 500 }, (_, i) => statusOf(ATTACKER, `user-${i}`, 'x')));
    expect(new Set(statuses)).toEqual(new Set([429]));
    expect(redis.cli('dbsize')).toBe(keys);
    expect(Number(keys)).toBeLessThanOrEqual(4);
    expect(writes()).toBe(0);
    const calls = Number(/cmdstat_evalsha:calls=(\d+)/.exec(redis.cli('info', 'commandstats'))?.[1] ?? 0);
    expect(calls).toBeLessThanOrEqual(25);
  });

  test('is banned from all replicas', async () => {
    await startShared({ limit: LIMIT });
    const first = gate;
    await ban(ATTACKER);
    await start({ limit: LIMIT }, { store: { redis: { url: `redis://127.0.0.1:${redis.port}` } } });
    await until(() => gate.logText().includes('store_up'));
    expect(await statusOf(ATTACKER, 'alice', 'right')).toBe(429);
    await first.stop();
  });
});

test('guesses from all networks of an IPv6 site delay users who are logged in, and new ones elsewhere, but lock out nobody', async () => {
  await start({ cache: { ttl: '0s' } }, { limits: { passwordThreads: 1, passwordQueue: 8 } });
  expect(await statusOf(ALICE, 'alice', 'right')).toBe(200);
  const guesses: Promise<number>[] = [];
  for (let i = 0; i < 200; i++) guesses.push(statusOf(`2001:db8:0:${i.toString(16)}::1`, `nobody-${i}`, 'x'));
  await Promise.any(guesses.map(async (guess) => expect(await guess).toBe(429)));
  const logins = [ALICE, '192.0.2.3'].flatMap((from) => [statusOf(from, 'alice', 'right'), statusOf(from, 'bob', 'right')]);
  expect(await Promise.all(logins)).toEqual([200, 200, 200, 200]);
  expect(new Set(await Promise.all(guesses))).toEqual(new Set([401, 429]));
});

test('a reload of the config keeps logged-in clients exempt from bans', async () => {
  await start({ limit: { ...LIMIT, by: ['user'] } });
  expect(await statusOf(ALICE, 'alice', 'right')).toBe(200);
  for (let i = 0; i < 3; i++) await ask(ATTACKER, 'alice', `guess ${i}`);
  await gate.gate.reload();
  expect(await statusOf(ALICE, 'alice', 'right')).toBe(200);
});
