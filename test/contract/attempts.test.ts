import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { MAX_DURATION, systemClock } from '../../src/core/clock.ts';
import type { RedisTopology } from '../../src/state/redis/client.ts';
import { createRedisStore } from '../../src/state/redis/redis-store.ts';
import {
  type AttemptKeys,
  type Attempts,
  type AttemptsRule,
  createMemoryAttempts,
  withBanCache,
  withFallback,
} from '../../src/users/attempts.ts';
import { FakeClock, settle } from '../support/fake-clock.ts';
import { findFreePort } from '../support/free-port.ts';
import { until } from '../support/gate.ts';
import { type RedisServer, startRedis } from '../support/redis.ts';

const RULE: AttemptsRule = { failures: 3, per: 300, ban: 600 };

/** Makes an attempt; 0 if it is allowed, else how long it is banned. */
async function leftOf(attempts: Attempts, keys: AttemptKeys): Promise<number> {
  const result = await attempts.take(keys, RULE);
  return result.kind === 'taken' ? 0 : result.left;
}

/** Makes an attempt that must be allowed, and gives its refund. */
async function take(attempts: Attempts, keys: AttemptKeys): Promise<() => Promise<void>> {
  const result = await attempts.take(keys, RULE);
  if (result.kind === 'banned') throw new Error(`${result.key} is banned`);
  return () => result.refund();
}

/** What every count of attempts promises; `pass` lets time pass in the store's own clock. */
function describeAttempts(title: string, make: () => { attempts: Attempts; pass: (ms: number) => Promise<void> }): void {
  describe(`attempts ${title}`, () => {
    let count = 0;
    /** Three attempts of a key, all let through. */
    const useUp = async (attempts: Attempts, key: string): Promise<void> => {
      for (let i = 0; i < 3; i++) expect(await leftOf(attempts, [key])).toBe(0);
    };
    const fresh = (): string => `k${count++}`;

    test('are allowed up to the limit, then rejected until the ban ends', async () => {
      const { attempts, pass } = make();
      const key = fresh();
      await useUp(attempts, key);
      const ban = await leftOf(attempts, [key]);
      expect(ban).toBeGreaterThan(400);
      expect(ban).toBeLessThanOrEqual(600);
      await pass(400);
      expect(await leftOf(attempts, [key])).toBeGreaterThan(0);
      await pass(300);
      expect(await leftOf(attempts, [key])).toBe(0);
    });

    test('are limited and banned for the longest times that a config can have', async () => {
      const { attempts } = make();
      const rule = { failures: 1, per: MAX_DURATION, ban: MAX_DURATION };
      const key = fresh();
      expect((await attempts.take([key], rule)).kind).toBe('taken');
      expect(await attempts.take([key], rule)).toMatchObject({ kind: 'banned', left: expect.any(Number) });
    });

    test('show a ban, and forget it when it is lifted, with the failures that led to it', async () => {
      const { attempts } = make();
      const key = fresh();
      expect([await attempts.findBan(key, RULE), await attempts.lift(key)]).toEqual([0, false]);
      await leftOf(attempts, [key]);
      expect(await attempts.findBan(key, RULE)).toBe(0);
      expect(await attempts.lift(key)).toBe(true);
      await useUp(attempts, key);
      expect(await leftOf(attempts, [key])).toBeGreaterThan(0);
      const left = await attempts.findBan(key, RULE);
      expect([left > 0, left <= 600]).toEqual([true, true]);
      expect(await attempts.lift(key)).toBe(true);
      expect(await attempts.findBan(key, RULE)).toBe(0);
      await useUp(attempts, key);
    });

    test('are counted from zero after the window', async () => {
      const { attempts, pass } = make();
      const key = fresh();
      for (let i = 0; i < 2; i++) await leftOf(attempts, [key]);
      await pass(400);
      await useUp(attempts, key);
    });

    test('that did not fail are refunded, and lift a ban that only they caused', async () => {
      const { attempts } = make();
      const key = fresh();
      for (let i = 0; i < 10; i++) await (await take(attempts, [key]))();
      const refunds = [];
      for (let i = 0; i < 3; i++) refunds.push(await take(attempts, [key]));
      expect(await leftOf(attempts, [key])).toBeGreaterThan(0);
      await refunds[0]?.();
      expect(await leftOf(attempts, [key])).toBe(0);
      expect(await leftOf(attempts, [key])).toBeGreaterThan(0);
    });

    test('of a client and a user count for neither if one is banned, and report the ban of the client first', async () => {
      const { attempts } = make();
      const [client, user, other] = [`{r}:${fresh()}`, `{r}:${fresh()}`, `{r}:${fresh()}`] as const;
      await useUp(attempts, client);
      for (let i = 0; i < 5; i++) expect(await leftOf(attempts, [client, user])).toBeGreaterThan(0);
      await useUp(attempts, user);
      expect(await attempts.take([client, user], RULE)).toMatchObject({ kind: 'banned', key: client });
      for (let i = 0; i < 5; i++) expect(await attempts.take([other, user], RULE)).toMatchObject({ kind: 'banned', key: user });
      await useUp(attempts, other);
    });

    test('of a client and a user count for both, and are refunded to both', async () => {
      const { attempts } = make();
      const [client, user] = [`{r}:${fresh()}`, `{r}:${fresh()}`] as const;
      const refund = await take(attempts, [client, user]);
      await take(attempts, [client, user]);
      await refund();
      for (const key of [client, user]) {
        for (let i = 0; i < 2; i++) expect(await leftOf(attempts, [key])).toBe(0);
        expect(await leftOf(attempts, [key])).toBeGreaterThan(0);
      }
    });

    test('that are banned do not extend the ban', async () => {
      const { attempts, pass } = make();
      const key = fresh();
      await useUp(attempts, key);
      await pass(400);
      expect(await leftOf(attempts, [key])).toBeLessThanOrEqual(200);
      await pass(300);
      expect(await leftOf(attempts, [key])).toBe(0);
    });

    test('that race never exceed the limit', async () => {
      const { attempts } = make();
      const key = fresh();
      const results = await Promise.all(Array.from({ length: 20 }, () => leftOf(attempts, [key])));
      expect(results.filter((ban) => ban === 0)).toHaveLength(3);
    });
  });
}

describeAttempts('in memory', () => {
  const clock = new FakeClock();
  return { attempts: createMemoryAttempts(clock, 1_000), pass: (ms) => clock.advance(ms) };
});

const servers: RedisServer[] = [];
let store: ReturnType<typeof createRedisStore>;
let clusterStore: ReturnType<typeof createRedisStore>;
const open = (topology: RedisTopology): ReturnType<typeof createRedisStore> => {
  const nothing = (): void => undefined;
  const options = { topology, keyPrefix: 'test:', connectTimeout: 1_000, commandTimeout: 500 };
  return createRedisStore(options, { onUp: nothing, onDown: nothing, onWarning: nothing }, systemClock);
};
const toNode = ({ port }: RedisServer) => ({ host: '127.0.0.1', port });

/** The port of the cluster bus would be 10,000 higher, which may be none. */
async function startMember(): Promise<RedisServer> {
  return startRedis({ config: ['cluster-enabled yes', `cluster-port ${await findFreePort()}`] });
}

/** Two masters with half of the slots each. */
async function startCluster(): Promise<[RedisServer, RedisServer]> {
  const [one, two] = await Promise.all([startMember(), startMember()]);
  one.cli('cluster', 'addslotsrange', '0', '8191');
  two.cli('cluster', 'addslotsrange', '8192', '16383');
  one.cli('cluster', 'meet', '127.0.0.1', String(two.port), two.cli('config', 'get', 'cluster-port').split('\n')[1] ?? '');
  await until(() => [one, two].every(({ cli }) => cli('cluster', 'info').includes('cluster_state:ok')));
  return [one, two];
}

beforeAll(async () => {
  const [alone, [one, two]] = await Promise.all([startRedis(), startCluster()]);
  servers.push(alone, one, two);
  store = open({ kind: 'standalone', node: toNode(alone) });
  clusterStore = open({ kind: 'cluster', nodes: [toNode(one)] });
  await until(() => store.isUp() && clusterStore.isUp());
});
afterAll(async () => {
  await Promise.all([store.close(), clusterStore.close()]);
  await Promise.all(servers.map((server) => server.stop()));
});
const passReally = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
describeAttempts('in Redis', () => ({ attempts: store, pass: passReally }));
describeAttempts('in a Redis Cluster', () => ({ attempts: clusterStore, pass: passReally }));

describe('attempts in memory', () => {
  const FLOOD: AttemptsRule = { failures: 3, per: 60_000, ban: 60_000 };
  const fill = async (attempts: Attempts, from: number, to: number, tries = 1): Promise<void> => {
    for (let i = from; i < to; i++) for (let each = 0; each < tries; each++) await attempts.take([`flood ${i}`], FLOOD);
  };

  test('forget counters for new keys, and never a ban', async () => {
    const attempts = createMemoryAttempts(new FakeClock(), 100);
    for (let i = 0; i < 3; i++) await attempts.take(['banned'], FLOOD);
    await fill(attempts, 0, 1_000);
    expect(await attempts.take(['banned'], FLOOD)).toMatchObject({ kind: 'banned' });
  });

  test('are rejected with a reason for new keys while all others are banned, until a ban ends', async () => {
    const clock = new FakeClock();
    let full = 0;
    const attempts = createMemoryAttempts(clock, 10, () => void full++);
    await fill(attempts, 0, 10, 3);
    expect(full).toBe(0);
    expect(await attempts.take(['new'], FLOOD)).toEqual({ kind: 'banned', key: 'new', left: 1_000 });
    expect(full).toBe(1);
    for (let i = 0; i < 10; i++) expect(await attempts.take([`flood ${i}`], FLOOD)).toMatchObject({ kind: 'banned' });
    await clock.advance(60_000);
    expect(await attempts.take(['new'], FLOOD)).toMatchObject({ kind: 'taken' });
  });

  test('never evict the counter of a client for a user of the same request', async () => {
    const attempts = createMemoryAttempts(new FakeClock(), 2);
    await attempts.take(['client', 'user 0'], FLOOD);
    await attempts.take(['client', 'user 1'], FLOOD);
    await attempts.take(['client', 'user 2'], FLOOD);
    expect(await attempts.take(['client', 'user 3'], FLOOD)).toMatchObject({ kind: 'banned', key: 'client' });
  });
});

describe('bans that are cached in front of the store', () => {
  const count = (own: Attempts): { attempts: Attempts; calls: () => number } => {
    let calls = 0;
    return {
      attempts: {
        take(keys, rule) {
          calls++;
          return own.take(keys, rule);
        },
        findBan: (key, rule) => own.findBan(key, rule),
        lift: (key) => own.lift(key),
      },
      calls: () => calls,
    };
  };

  test('cost one round trip per second, and end when the store reports it', async () => {
    const clock = new FakeClock();
    const rule = { failures: 1, per: 60_000, ban: 5_500 };
    const { attempts, calls } = count(createMemoryAttempts(clock, 10));
    const cached = withBanCache(attempts, clock, { maxBans: 10 });
    expect(await cached.take(['c', 'u'], rule)).toMatchObject({ kind: 'taken' });
    for (let i = 0; i < 50; i++)
      expect(await cached.take(['c', `u${i}`], rule)).toEqual({ kind: 'banned', key: 'c', left: 5_500 });
    expect(calls()).toBe(2);
    await clock.advance(1_000);
    expect(await cached.take(['c', 'u'], rule)).toMatchObject({ kind: 'banned', left: 4_500 });
    expect(calls()).toBe(3);
    await clock.advance(4_500);
    expect(await cached.take(['c', 'other'], rule)).toMatchObject({ kind: 'taken' });
  });

  test('end with a refund, although another attempt was banned while it was under way', async () => {
    const clock = new FakeClock();
    const memory = createMemoryAttempts(clock, 10);
    let last: Promise<unknown> = Promise.resolve();
    // Like Redis: one after the other, each a while after it was sent.
    const queue = <T>(run: () => Promise<T>): Promise<T> => {
      const result = last.then(() => settle()).then(run);
      last = result;
      return result;
    };
    const remote: Attempts = {
      ...memory,
      findBan: (key, rule) => memory.findBan(key, rule),
      take: (keys, rule) =>
        queue(async () => {
          const result = await memory.take(keys, rule);
          return result.kind === 'taken' ? { kind: 'taken', refund: () => queue(() => result.refund()) } : result;
        }),
    };
    const cached = withBanCache(remote, clock, { maxBans: 10 });
    const rule = { failures: 1, per: 60_000, ban: 60_000 };
    const first = await cached.take(['c'], rule);
    const second = cached.take(['c'], rule);
    if (first.kind === 'taken') await first.refund();
    expect(await second).toMatchObject({ kind: 'banned' });
    expect(await cached.take(['c'], rule)).toMatchObject({ kind: 'taken' });
  });

  test('end at once when an attempt is refunded, and are bounded in number', async () => {
    const clock = new FakeClock();
    const { attempts, calls } = count(createMemoryAttempts(clock, 10));
    const cached = withBanCache(attempts, clock, { maxBans: 1 });
    const refunds = [];
    for (let i = 0; i < 3; i++) refunds.push(await take(cached, ['c']));
    expect(await leftOf(cached, ['c'])).toBeGreaterThan(0);
    await refunds[0]?.();
    expect(await leftOf(cached, ['c'])).toBe(0);
    for (let i = 0; i < 3; i++) await cached.take(['d'], RULE);
    for (const key of ['c', 'd', 'c', 'd']) expect(await leftOf(cached, [key])).toBeGreaterThan(0);
    expect(calls()).toBe(12);
  });
});

test('while the shared store is unreachable this process counts alone, and a refund goes to the store that counted the attempt', async () => {
  const clock = new FakeClock();
  const own = createMemoryAttempts(clock, 10);
  let isAway = true;
  const shared: Attempts = {
    take: async () => {
      if (isAway) throw new Error('away');
      return { kind: 'taken', refund: () => Promise.reject(new Error('away')) };
    },
    findBan: () => Promise.reject(new Error('away')),
    lift: () => Promise.reject(new Error('away')),
  };
  const attempts = withFallback(shared, own);
  const refund = await take(attempts, ['k']);
  for (let i = 0; i < 2; i++) expect(await leftOf(attempts, ['k'])).toBe(0);
  expect(await leftOf(attempts, ['k'])).toBeGreaterThan(0);
  isAway = false;
  await (await take(attempts, ['k']))();
  isAway = true;
  expect(await leftOf(attempts, ['k'])).toBeGreaterThan(0);
  expect(await attempts.findBan('k', RULE)).toBeGreaterThan(0);
  await refund();
  expect(await leftOf(attempts, ['k'])).toBe(0);
  // It is not known whether the store still bans the key.
  await expect(attempts.lift('k')).rejects.toThrow('away');
});

test('a refund rejects if Redis cannot record it', async () => {
  const server = await startRedis();
  servers.push(server);
  const own = open({ kind: 'standalone', node: toNode(server) });
  await until(() => own.isUp());
  const refund = await take(own, ['refunded']);
  await server.kill();
  await until(() => !own.isUp());
  await expect(refund()).rejects.toMatchObject({ name: 'StoreUnavailable', failure: 'unreachable' });
  await own.close();
});
