import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { createMemoryNewestVersions } from '../../src/state/memory.ts';
import { createRedisStore } from '../../src/state/redis/redis-store.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { until } from '../support/gate.ts';
import { type RedisServer, startRedis } from '../support/redis.ts';
import { describeNewestVersions } from './newest-versions.contract.ts';

const ENTER = { key: 'k', version: '5', token: 't', leaseMs: 60_000 };

describeNewestVersions('in memory', () => {
  const clock = new FakeClock();
  return { store: createMemoryNewestVersions(clock, { maxResources: 1_000 }), pass: (ms) => clock.advance(ms) };
});

let server: RedisServer;
let shared: ReturnType<typeof createRedisStore>;

beforeAll(async () => {
  server = await startRedis();
  const nothing = (): void => undefined;
  shared = createRedisStore(
    {
      topology: { kind: 'standalone', node: { host: '127.0.0.1', port: server.port } },
      keyPrefix: 'test:',
      connectTimeout: 1_000,
      commandTimeout: 1_000,
    },
    { onUp: nothing, onDown: nothing, onWarning: nothing },
    systemClock,
  );
  await until(() => shared.isUp());
});
afterAll(async () => {
  await shared.close();
  await server.stop();
});

describeNewestVersions('in Redis', () => ({ store: shared, pass: (ms) => new Promise((resolve) => setTimeout(resolve, ms)) }));

describe('in memory', () => {
  test('a resource is rejected if the store is full of live ones, and none is forgotten', async () => {
    const clock = new FakeClock();
    const store = createMemoryNewestVersions(clock, { maxResources: 2 });
    await store.enter({ ...ENTER, key: 'a' });
    await store.enter({ ...ENTER, key: 'b', leaseMs: 1_000 });
    await expect(store.enter({ ...ENTER, key: 'c' })).rejects.toMatchObject({ name: 'StoreUnavailable', failure: 'full' });
    expect(await store.enter({ ...ENTER, key: 'a', token: 'x' })).toMatchObject({ state: 'busy' });
    await clock.advance(2_000);
    expect(await store.enter({ ...ENTER, key: 'c' })).toEqual({ state: 'entered' });
  });

  test('a route holds three times what it leaves to others', async () => {
    const store = createMemoryNewestVersions(new FakeClock(), { maxResources: 4 });
    for (const name of ['1', '2', '3']) await store.enter({ ...ENTER, key: `a:o1:i:${name}` });
    await expect(store.enter({ ...ENTER, key: 'a:o1:i:4' })).rejects.toMatchObject({
      failure: 'full',
      message: 'the memory store is full for this sender (3 of 4 resources)',
    });
    expect(await store.enter({ ...ENTER, key: 'b:o1:i:1' })).toEqual({ state: 'entered' });
  });

  test('a closed store rejects, and leaves no timer', async () => {
    const clock = new FakeClock();
    const store = createMemoryNewestVersions(clock, { maxResources: 2 });
    await store.close();
    expect(clock.timers).toBe(0);
    await expect(store.enter(ENTER)).rejects.toMatchObject({ failure: 'unreachable' });
    await expect(store.leave(ENTER)).rejects.toMatchObject({ failure: 'unreachable' });
  });
});

describe('in Redis', () => {
  test('a key has the prefix, lives as long as the longer of lease and retention, and is deleted when it is empty', async () => {
    const key = 'visible';
    const ttl = (): number => Number(server.cli('PTTL', `test:${key}`));
    await shared.enter({ ...ENTER, key });
    expect(server.cli('GET', `test:${key}`)).toMatch(/^- 0 t \d{13}$/);
    expect(ttl()).toBeGreaterThan(50_000);
    await shared.leave({ key, token: 't' });
    expect(server.cli('EXISTS', `test:${key}`)).toBe('0');
    await shared.enter({ ...ENTER, key });
    await shared.leave({ key, token: 't', handled: { version: '5', retentionMs: 600_000 } });
    expect(server.cli('GET', `test:${key}`)).toMatch(/^5 \d{13} - 0$/);
    expect(ttl()).toBeGreaterThan(590_000);
    await shared.enter({ ...ENTER, key });
    expect(ttl()).toBeGreaterThan(590_000);
  });

  test('claims, places and attempts of one turn share one call, each with its own reply', async () => {
    const before = Number(/cmdstat_evalsha:calls=(\d+)/.exec(server.cli('INFO', 'commandstats'))?.[1] ?? 0);
    const answers = await Promise.all([
      shared.claim({ key: 'mixed', token: 't', fingerprint: 'f', leaseMs: 60_000 }),
      shared.enter({ ...ENTER, key: 'mixed-place' }),
      shared.enter({ ...ENTER, key: 'mixed-place', token: 'x' }),
      shared.leave({ key: 'mixed-place', token: 't', handled: { version: '7', retentionMs: 60_000 } }),
      shared.enter({ ...ENTER, key: 'mixed-place', version: '6' }),
      shared.forget('mixed'),
      shared.take(['mixed', 'mixed-user'], { failures: 2, per: 1_000, ban: 1_000 }),
      shared.claim({ key: 'last', token: 't', fingerprint: 'f', leaseMs: 60_000 }),
    ]);
    expect(answers).toEqual([
      { state: 'new' },
      { state: 'entered' },
      { state: 'busy', remainingMs: expect.closeTo(60_000, -2) },
      true,
      { state: 'stale' },
      { was: 'in-progress', fingerprint: 'f' },
      { kind: 'taken', refund: expect.any(Function) },
      { state: 'new' },
    ]);
    const after = Number(/cmdstat_evalsha:calls=(\d+)/.exec(server.cli('INFO', 'commandstats'))?.[1] ?? 0);
    expect(after - before).toBe(1);
  });
});
