import { readFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Clock, systemClock } from '../../src/core/clock.ts';
import { Secret } from '../../src/core/secret.ts';
import { createMemorySeenIds } from '../../src/state/memory.ts';
import type { RedisStoreOptions } from '../../src/state/redis/client.ts';
import { createRedisStore } from '../../src/state/redis/redis-store.ts';
import type { SeenIds } from '../../src/state/seen-ids.ts';
import { makeAuthority } from '../support/certificates.ts';
import { FakeClock, settle } from '../support/fake-clock.ts';
import { until } from '../support/gate.ts';
import { type RedisServer, startRedis } from '../support/redis.ts';
import { describeSeenIds } from './seen-ids.contract.ts';

describeSeenIds('in memory', () => {
  const clock = new FakeClock();
  return { store: createMemorySeenIds(clock, { maxIds: 1_000 }), pass: (ms) => clock.advance(ms) };
});

let server: RedisServer;
let shared: SeenIds;
const opened: SeenIds[] = [];
const events: string[] = [];

function options(port: number, over: Partial<RedisStoreOptions> = {}): RedisStoreOptions {
  return {
    topology: { kind: 'standalone', node: { host: '127.0.0.1', port } },
    keyPrefix: 'test:',
    connectTimeout: 1_000,
    commandTimeout: 500,
    ...over,
  };
}

/** Opens a store; its events are noted. */
function open(settings: RedisStoreOptions, clock: Clock = systemClock): SeenIds {
  const store = createRedisStore(
    settings,
    {
      onUp: () => events.push('up'),
      onDown: ({ message }) => events.push(`down: ${message}`),
      onWarning: (message) => events.push(`warning: ${message}`),
    },
    clock,
  );
  opened.push(store);
  return store;
}

const CLAIM = { key: 'k', token: 't', fingerprint: 'f', leaseMs: 60_000 };

beforeAll(async () => {
  server = await startRedis();
  shared = open(options(server.port));
  await until(() => shared.isUp());
});
afterAll(async () => {
  await Promise.all(opened.map((store) => store.close()));
  await server.stop();
});

describeSeenIds('in Redis', () => ({ store: shared, pass: (ms) => new Promise((resolve) => setTimeout(resolve, ms)) }));

describe('the memory store', () => {
  test('rejects a new ID if it is full of live ones, and forgets none', async () => {
    const clock = new FakeClock();
    const store = createMemorySeenIds(clock, { maxIds: 2 });
    await store.claim({ ...CLAIM, key: 'a' });
    await store.claim({ ...CLAIM, key: 'b' });
    await expect(store.claim({ ...CLAIM, key: 'c' })).rejects.toMatchObject({ name: 'StoreUnavailable', failure: 'full' });
    expect(await store.claim({ ...CLAIM, key: 'a', token: 'x' })).toMatchObject({ state: 'in-progress' });
    expect(await store.confirm('a', 't', 'f', 1_000)).toBe(true);
    await clock.advance(2_000);
    expect(await store.claim({ ...CLAIM, key: 'c' })).toEqual({ state: 'new' });
  });

  test('costs nothing for the time before its first ID: the clock of a worker is zero until its first request', async () => {
    const clock = new FakeClock();
    const store = createMemorySeenIds(clock, { maxIds: 1 });
    clock.pass(1_800_000_000_000);
    expect(await store.claim({ ...CLAIM, key: 'a' })).toEqual({ state: 'new' });
    clock.pass(CLAIM.leaseMs + 1_000);
    expect(await store.claim({ ...CLAIM, key: 'b' })).toEqual({ state: 'new' });
  });

  test('keeps an ID whose retention is longer than the lease of its claim', async () => {
    const clock = new FakeClock();
    const store = createMemorySeenIds(clock, { maxIds: 10 });
    await store.claim(CLAIM);
    await store.confirm(CLAIM.key, CLAIM.token, 'f', 600_000);
    await clock.advance(120_000);
    expect(await store.claim({ ...CLAIM, token: 'x' })).toMatchObject({ state: 'handled' });
  });

  describe('with IDs of several routes', () => {
    let clock: FakeClock;
    let store: SeenIds;
    let isShared: boolean;
    const hits: string[] = [];
    /** Claims IDs until one is rejected; returns how many were not. */
    async function fill(route: string, retentionMs = 600_000): Promise<number> {
      for (let i = 0; ; i++) {
        const key = `${route}:i:${i}`;
        const hit = hits.length;
        const result = await store.claim({ ...CLAIM, key }).catch((thrown: unknown) => thrown);
        if (hits.length > hit) return i;
        expect(result).toEqual({ state: 'new' });
        await store.confirm(key, CLAIM.token, 'f', retentionMs);
      }
    }

    beforeEach(() => {
      clock = new FakeClock();
      isShared = true;
      hits.length = 0;
      store = createMemorySeenIds(clock, { maxIds: 16, isShared: () => isShared, onFull: (limit) => hits.push(limit) });
    });

    test('one of them holds three times what it leaves, also if it was the first', async () => {
      expect(await fill('a')).toBe(12);
      await expect(store.claim({ ...CLAIM, key: 'a:i:x' })).rejects.toMatchObject({
        failure: 'full',
        message: 'the memory store is full for this sender (12 of 16 IDs)',
      });
      expect([await fill('b'), await fill('c')]).toEqual([3, 1]);
      expect(hits).toEqual(['store_share', 'store_share', 'store_share', 'store']);
      expect(await store.claim({ ...CLAIM, key: 'a:i:0' })).toMatchObject({ state: 'handled' });
    });

    test('it holds fewer while others hold some, and as many again once IDs are released, forgotten or expired', async () => {
      expect([await fill('b', 5_000), await fill('a', 5_000)]).toEqual([12, 3]);
      await clock.advance(7_000);
      expect(await fill('a')).toBe(12);
      await store.forget('a:i:0');
      await store.forget('a:i:0');
      await store.claim({ ...CLAIM, key: 'a:i:x' });
      await store.release('a:i:x', CLAIM.token);
      expect(await store.claim({ ...CLAIM, key: 'a:i:y' })).toEqual({ state: 'new' });
      await expect(store.claim({ ...CLAIM, key: 'a:i:z' })).rejects.toMatchObject({ failure: 'full' });
    });

    test('keys of every kind count for their route, whatever is in an ID', async () => {
      const names = ['a:i:b:i:1', 'a:d:digest', 'a:h:hash', 'a:k1:digest', 'a:k12:digest', 'a:o1:i:name', 'a:o2:h:hash'];
      for (const key of [...names, 'a:i::d:1', 'a:i:x:o1:', 'a:i:5', 'a:i:6', 'a:i:7']) await store.claim({ ...CLAIM, key });
      await expect(store.claim({ ...CLAIM, key: 'a:i:8' })).rejects.toMatchObject({ failure: 'full' });
      expect(await store.claim({ ...CLAIM, key: 'a.b:i:1' })).toEqual({ state: 'new' });
    });

    test('an event that was handled is remembered beyond the share: its claim may have expired', async () => {
      await fill('a');
      expect(await store.confirm('a:i:late', CLAIM.token, 'f', 600_000)).toBe(true);
      expect(await store.claim({ ...CLAIM, key: 'a:i:late' })).toMatchObject({ state: 'handled' });
    });

    test('a single one may have all', async () => {
      isShared = false;
      expect(await fill('a')).toBe(16);
      expect(hits).toEqual(['store']);
    });
  });

  test('rejects once it is closed', async () => {
    const store = createMemorySeenIds(new FakeClock(), { maxIds: 10 });
    await store.close();
    expect(store.isUp()).toBe(false);
    await expect(store.claim(CLAIM)).rejects.toMatchObject({ failure: 'unreachable' });
  });
});

describe('the Redis store', () => {
  let own: RedisServer | undefined;
  afterEach(async () => {
    await own?.stop();
    own = undefined;
    events.length = 0;
  });

  test('grants an ID to one of many claims in the same turn', async () => {
    const asks = Array.from({ length: 200 }, (_, i) =>
      shared.claim({ ...CLAIM, key: `turn-${i % 50}`, token: `t${i}`, fingerprint: `f${i % 50}` }),
    );
    const results = await Promise.all(asks);
    expect(results.slice(0, 50)).toEqual(Array(50).fill({ state: 'new' }));
    for (const [i, late] of results.slice(50).entries())
      expect(late).toMatchObject({ state: 'in-progress', fingerprint: `f${i % 50}` });
  });

  test('fails only the operation that failed, and no other of the same turn', async () => {
    server.cli('RPUSH', 'test:list', 'a');
    const [good, bad, alsoGood] = await Promise.allSettled([
      shared.claim({ ...CLAIM, key: 'beside-1' }),
      shared.claim({ ...CLAIM, key: 'list' }),
      shared.claim({ ...CLAIM, key: 'beside-2' }),
    ]);
    expect([good, alsoGood]).toEqual(Array(2).fill({ status: 'fulfilled', value: { state: 'new' } }));
    expect(bad).toMatchObject({ status: 'rejected', reason: { name: 'StoreUnavailable', failure: 'error' } });
  });

  describe('while claims are frequent', () => {
    let clock: FakeClock;
    let store: SeenIds;
    let prefix = 0;

    /** One claim every `gap` ms, until the store has noticed. */
    async function claimEvery(gap: number): Promise<void> {
      for (let i = 0; i < 40; i++) {
        clock.pass(gap);
        await store.claim({ ...CLAIM, key: `${prefix++}` });
      }
    }

    function countCalls(): number {
      return Number(/cmdstat_evalsha:calls=(\d+)/.exec(server.cli('INFO', 'commandstats'))?.[1] ?? 0);
    }

    beforeEach(async () => {
      clock = new FakeClock();
      store = open(options(server.port, { keyPrefix: `paced-${prefix++}:` }), clock);
      await until(() => store.isUp());
    });

    test('a confirm goes with the next claim, in one call and before it', async () => {
      await claimEvery(1);
      await store.claim(CLAIM);
      const calls = countCalls();
      const confirmed = store.confirm(CLAIM.key, CLAIM.token, CLAIM.fingerprint, 60_000);
      await settle();
      expect(countCalls()).toBe(calls);
      const repeated = store.claim({ ...CLAIM, token: 'other' });
      expect(await confirmed).toBe(true);
      expect(await repeated).toMatchObject({ state: 'handled', fingerprint: CLAIM.fingerprint });
      expect(countCalls()).toBe(calls + 1);
      expect(clock.timers).toBe(0);
    });

    test('a confirm waits no longer than 2 ms for a claim', async () => {
      await claimEvery(1);
      await store.claim(CLAIM);
      const confirmed = store.confirm(CLAIM.key, CLAIM.token, CLAIM.fingerprint, 60_000);
      await clock.advance(1);
      expect(await Promise.race([confirmed, settle()])).toBeUndefined();
      await clock.advance(1);
      expect(await confirmed).toBe(true);
    });

    test('a release never waits', async () => {
      await claimEvery(1);
      await store.claim(CLAIM);
      expect(await store.release(CLAIM.key, CLAIM.token)).toBe(true);
    });

    test('a confirm does not wait once claims are rare again', async () => {
      await claimEvery(1);
      await claimEvery(10);
      await store.claim(CLAIM);
      expect(await store.confirm(CLAIM.key, CLAIM.token, CLAIM.fingerprint, 60_000)).toBe(true);
    });
  });

  test('loads its scripts again if Redis lost them', async () => {
    server.cli('SCRIPT', 'FLUSH');
    expect(await shared.claim({ ...CLAIM, key: 'after-flush' })).toEqual({ state: 'new' });
  });

  test('writes its keys under the prefix, with an expiry', async () => {
    await shared.claim({ ...CLAIM, key: 'visible' });
    expect(server.cli('GET', 'test:visible')).toBe('p t f');
    expect(Number(server.cli('PTTL', 'test:visible'))).toBeGreaterThan(50_000);
  });

  test('rejects at once if nothing listens, without details of the library', async () => {
    own = await startRedis();
    await own.kill();
    const store = open(options(own.port));
    await expect(store.claim(CLAIM)).rejects.toMatchObject({ name: 'StoreUnavailable', failure: 'unreachable' });
    expect(store.isUp()).toBe(false);
  });

  test('rejects in time if Redis hangs, and works again when it continues', async () => {
    own = await startRedis();
    const store = open(options(own.port, { commandTimeout: 200 }));
    await until(() => store.isUp());
    own.signal('SIGSTOP');
    await expect(store.claim(CLAIM)).rejects.toMatchObject({ failure: 'timeout' });
    expect(store.isUp()).toBe(false);
    own.signal('SIGCONT');
    await until(() => store.claim({ ...CLAIM, key: 'later' }).catch(() => undefined));
    await until(() => store.isUp());
  });

  test('sends no claim while a reply is overdue, and claims again as soon as Redis has given it', async () => {
    own = await startRedis();
    const clock = new FakeClock();
    const store = open(options(own.port), clock);
    await until(() => store.isUp());
    own.signal('SIGSTOP');
    const slow = store.claim(CLAIM).catch((thrown: unknown) => thrown);
    await settle();
    await clock.advance(500);
    expect(await slow).toMatchObject({ failure: 'timeout' });
    const refused = Array.from({ length: 100 }, (_, i) => store.claim({ ...CLAIM, key: `refused-${i}` }));
    for (const result of await Promise.allSettled(refused)) expect(result).toMatchObject({ reason: { failure: 'timeout' } });
    own.signal('SIGCONT');
    await until(() => store.claim({ ...CLAIM, key: 'later' }).catch(() => undefined));
    expect(own.cli('KEYS', 'test:refused-*')).toBe('');
  });

  test('reconnects by itself after a restart of Redis', async () => {
    own = await startRedis();
    const store = open(options(own.port));
    await until(() => store.isUp());
    await own.kill();
    await until(() =>
      store.claim(CLAIM).then(
        () => false,
        () => true,
      ),
    );
    await own.restart();
    await until(() => store.claim({ ...CLAIM, key: 'again' }).catch(() => undefined));
    expect(events.filter((event) => event === 'up').length).toBeGreaterThanOrEqual(2);
  });

  test('reports that Redis is full, and that it may evict keys', async () => {
    own = await startRedis();
    const store = open(options(own.port));
    await until(() => store.isUp());
    own.cli('CONFIG', 'SET', 'maxmemory', '1');
    await expect(store.claim(CLAIM)).rejects.toMatchObject({ failure: 'full' });
    await own.stop();
    own = await startRedis({ config: ['maxmemory 100mb', 'maxmemory-policy volatile-lru'] });
    open(options(own.port));
    await until(() => events.some((event) => event.startsWith('warning:') && event.includes('volatile-lru')));
  });

  test('reports once that Redis is up, and no eviction if none can happen', async () => {
    const configs = [
      ['maxmemory 0', 'maxmemory-policy allkeys-lru'],
      ['maxmemory 100mb', 'maxmemory-policy noeviction'],
    ];
    for (const config of configs) {
      own = await startRedis({ config });
      events.length = 0;
      const store = open(options(own.port));
      await until(() => store.isUp());
      for (let i = 0; i < 3; i++) await store.claim({ ...CLAIM, key: `up-${i}` });
      // The connection answers in order: what was asked when it came up is answered before any claim.
      await settle();
      expect(events).toEqual(['up']);
      await store.close();
      await own.stop();
    }
  });

  test('authenticates as an ACL user over TLS, and never shows the password if that fails', async () => {
    const folder = server.folder;
    const authority = makeAuthority(folder, 'ca');
    const { ca } = authority;
    const { cert, key } = authority.issue('server', 'DNS:localhost,IP:127.0.0.1');
    const acl = ['user default off', 'user gate on >s3cret-canary ~test:* +@all'];
    own = await startRedis({
      isTls: true,
      config: [`tls-cert-file ${cert}`, `tls-key-file ${key}`, `tls-ca-cert-file ${ca}`, 'tls-auth-clients no', ...acl],
    });
    const secure = options(own.port, { username: 'gate', tls: { ca: readFileSync(ca) } });
    const store = open({ ...secure, password: new Secret(Buffer.from('s3cret-canary')) });
    await until(() => store.claim(CLAIM).catch(() => undefined));
    const wrong = open({ ...secure, password: new Secret(Buffer.from('s3cret-canary-wrong')) });
    await until(() => events.some((event) => event.startsWith('down:')));
    await expect(wrong.claim(CLAIM)).rejects.toMatchObject({ name: 'StoreUnavailable' });
    expect(events.join()).not.toContain('s3cret');
    const untrusting = open({ ...secure, tls: {}, password: new Secret(Buffer.from('s3cret-canary')) });
    await expect(untrusting.claim(CLAIM)).rejects.toMatchObject({ failure: 'unreachable' });
  });
});
