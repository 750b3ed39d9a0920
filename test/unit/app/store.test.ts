import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { openStore, readStoreSettings, type StoreSettings } from '../../../src/app/store.ts';
import type { Config } from '../../../src/config/schema/config.ts';
import { ConfigSchema } from '../../../src/config/schema/schema.ts';
import { makeAuthority, readPair } from '../../support/certificates.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { useFolder } from '../../support/fixtures.ts';

const folder = useFolder();
const file = (name: string, text: string): string => {
  writeFileSync(join(folder, name), text);
  return join(folder, name);
};
const ROUTE = {
  name: 'a',
  match: { path: '/' },
  upstream: 'http://127.0.0.1:1',
  webhook: { keys: [{ name: 'k', secret: { env: 'X' } }] },
};
const read = (redis: unknown, routes: readonly object[] = [ROUTE], memory = {}): Promise<StoreSettings> =>
  readStoreSettings(ConfigSchema.parse({ store: { redis, memory }, routes }) as Config);
const authority = makeAuthority(folder, 'ca');
const pair = authority.issue('client', 'DNS:client');
const node = (port: number) => ({ host: '127.0.0.1', port });

test('without Redis there is memory', async () => {
  expect(await read(undefined)).toEqual({
    redis: undefined,
    maxIds: 250_000,
    isShared: { ids: false, resources: false },
    problems: [],
  });
});

test('in memory, a route leaves some room if another one remembers IDs, also after a reload', async () => {
  const toOther = (webhook: object) => ({
    ...ROUTE,
    name: 'b',
    match: { path: '/b' },
    webhook: { ...ROUTE.webhook, ...webhook },
  });
  const memory = { maxIds: 4 };
  const single = await read(undefined, [ROUTE, toOther({ dedup: 'off' })], memory);
  const several = await read(undefined, [ROUTE, toOther({})], memory);
  const ordered = await read(undefined, [ROUTE, toOther({ dedup: 'off', order: { key: '$.id', version: '$.version' } })], memory);
  // IDs and resources have a memory each.
  expect([single, several, ordered].map(({ isShared }) => isShared)).toEqual([
    { ids: false, resources: false },
    { ids: true, resources: false },
    { ids: false, resources: false },
  ]);
  const hits: string[] = [];
  const nothing = (): void => undefined;
  const events = { onUp: nothing, onDown: nothing, onWarning: nothing, onFull: (limit: string) => void hits.push(limit) };
  const store = openStore(single, new FakeClock(), events);
  const lease = { token: 't', leaseMs: 60_000 };
  const claim = (key: string) => store.seenIds.claim({ ...lease, key, fingerprint: 'f' });
  const enter = (key: string) => store.versions.enter({ ...lease, key, version: '1' });
  for (const id of ['1', '2', '3', '4']) await claim(`a:i:${id}`);
  await expect(claim('a:i:5')).rejects.toMatchObject({ failure: 'full' });
  const order = { key: '$.id', version: '$.version' };
  const first = { ...ROUTE, webhook: { ...ROUTE.webhook, order } };
  store.update(await read(undefined, [first, toOther({ order })], memory));
  for (const id of ['1', '2', '3']) await enter(`a:o1:i:${id}`);
  await expect(enter('a:o1:i:4')).rejects.toMatchObject({ failure: 'full' });
  expect(hits).toEqual(['store', 'store_share']);
});

describe('Redis is found', () => {
  test.each([
    ['redis://127.0.0.1', { topology: { kind: 'standalone', node: node(6379) } }],
    ['redis://127.0.0.1:7000/3', { topology: { kind: 'standalone', node: node(7000) }, db: 3 }],
    ['redis://127.0.0.1/', { topology: { kind: 'standalone', node: node(6379) } }],
    ['redis://[::1]:7000', { topology: { kind: 'standalone', node: { host: '::1', port: 7000 } } }],
    ['rediss://gate:p%40ss@127.0.0.1', { username: 'gate', tls: {} }],
  ])('by %s', async (url, expected) => {
    const { redis, problems } = await read({ url });
    expect(problems).toEqual([]);
    expect(redis).toMatchObject(expected);
  });

  test('with the password of the URL, unescaped, and never shown', async () => {
    const { redis } = await read({ urlFile: file('url', 'redis://gate:p%40ss@127.0.0.1:7000\n') });
    expect(redis?.password?.expose().toString()).toBe('p@ss');
    expect(JSON.stringify(redis)).not.toContain('p@ss');
  });

  test('with a separate user and password, which override those of the URL', async () => {
    const { redis } = await read({
      url: 'redis://other:other@127.0.0.1',
      username: 'gate',
      passwordFile: file('password', 'from file\n'),
      db: 2,
    });
    expect([redis?.username, redis?.password?.expose().toString(), redis?.db]).toEqual(['gate', 'from file', 2]);
    process.env['SIDEGATE_TEST_PASSWORD'] = 'from env';
    const fromEnv = await read({ url: 'redis://127.0.0.1', passwordEnv: 'SIDEGATE_TEST_PASSWORD' });
    expect(fromEnv.redis?.password?.expose().toString()).toBe('from env');
  });

  test('by its Sentinels, with a separate password', async () => {
    const { redis } = await read({
      sentinel: { name: 'gate', nodes: ['127.0.0.1:1', '127.0.0.1:2'], username: 's', passwordFile: file('sentinel', 'sp') },
    });
    expect(redis?.topology).toMatchObject({ kind: 'sentinel', name: 'gate', nodes: [node(1), node(2)], username: 's' });
    const bare = await read({ sentinel: { name: 'gate', nodes: ['127.0.0.1:1'] } });
    expect(bare.redis?.topology).toEqual({ kind: 'sentinel', name: 'gate', nodes: [node(1)] });
  });

  test('by nodes of a Cluster', async () => {
    const { redis } = await read({ cluster: { nodes: ['127.0.0.1:1'] }, keyPrefix: 'x:' });
    expect(redis).toMatchObject({ topology: { kind: 'cluster', nodes: [node(1)] }, keyPrefix: 'x:' });
  });

  test('over TLS, with the CAs of the system or of files', async () => {
    expect((await read({ url: 'redis://127.0.0.1', tls: true })).redis?.tls).toEqual({});
    const { redis } = await read({
      url: 'redis://127.0.0.1',
      tls: { caFile: authority.ca, certFile: pair.cert, keyFile: pair.key, serverName: 'redis' },
    });
    const { cert, key } = readPair(pair);
    expect(redis?.tls).toMatchObject({ ca: readFileSync(authority.ca), cert, serverName: 'redis' });
    expect(redis?.tls?.key?.expose()).toEqual(Buffer.from(key.toString().trimEnd()));
  });
});

describe('an error has its path, and never a password:', () => {
  test.each([
    ['a missing file', { urlFile: '/nowhere/url' }, 'store.redis.urlFile'],
    ['a URL that is none', { urlFile: file('bad', 'http://u:canary@h') }, 'store.redis.urlFile'],
    ['half an escape', { urlFile: file('half', 'redis://u:canary%zz@h') }, 'store.redis.urlFile'],
    ['a database in the query', { url: 'redis://h:6379?db=3' }, 'store.redis.url'],
    ['a path after the database', { url: 'redis://h:6379/3/' }, 'store.redis.url'],
    ['a database with a name', { url: 'redis://h/canary' }, 'store.redis.url'],
    ['options of TLS in the query', { url: 'rediss://h?ssl_cert_reqs=none' }, 'store.redis.url'],
    ['a password with @ and #', { urlFile: file('hash', 'redis://:p@canary#1@h:6379') }, 'store.redis.urlFile'],
    ['a password with /', { urlFile: file('slash', 'redis://:canary/1@h:6379') }, 'store.redis.urlFile'],
    ['no password', { url: 'redis://h', passwordFile: '/nowhere/password' }, 'store.redis.passwordFile'],
    ['no variable', { url: 'redis://h', passwordEnv: 'SIDEGATE_NOT_SET' }, 'store.redis.passwordEnv'],
    [
      'no password of the Sentinels',
      { sentinel: { name: 'g', nodes: ['h:1'], passwordFile: '/nowhere/p' } },
      'store.redis.sentinel.passwordFile',
    ],
    ['no CA', { url: 'redis://h', tls: { caFile: '/nowhere/ca' } }, 'store.redis.tls.caFile'],
    ['a key that is none', { url: 'redis://h', tls: { keyFile: file('canary', 'canary') } }, 'store.redis.tls'],
    ['no key', { url: 'redis://h', tls: { keyFile: '/nowhere/key' } }, 'store.redis.tls.keyFile'],
  ])('%s', async (_, redis, path) => {
    const settings = await read(redis);
    expect(settings.redis).toBeUndefined();
    expect(settings.problems.map(({ path: found }) => found.join('.'))).toEqual([path]);
    expect(JSON.stringify(settings.problems)).not.toContain('canary');
  });

  test('says which characters of a password in a URL must be escaped', async () => {
    for (const url of ['redis://:a/b@h', 'redis://:a?b@h', 'redis://:a#b@h', 'redis://:a@h#b@h'])
      expect((await read({ urlFile: file('unescaped', url) })).problems[0]?.hint).toContain('write @ as %40, / as %2F');
  });
});
