import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Attempts, type AttemptsRule, withFallback } from '../../src/store/attempts.ts';
import { createMemoryAttempts } from '../../src/store/memory/memory-attempts.ts';
import { createRedisStore } from '../../src/store/redis/redis-store.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { until } from '../support/gate.ts';
import { type RedisServer, startRedis } from '../support/redis.ts';

const RULE: AttemptsRule = { failures: 3, per: 300, ban: 600 };

/** What every count of attempts promises; `pass` lets time pass in the store's own clock. */
function describeAttempts(title: string, make: () => { attempts: Attempts; pass: (ms: number) => Promise<void> }): void {
  describe(`attempts ${title}`, () => {
    let count = 0;
    /** Three attempts of a key, all let through. */
    const useUp = async (attempts: Attempts, key: string): Promise<void> => {
      for (let i = 0; i < 3; i++) expect(await attempts.take([key], RULE)).toBe(0);
    };
    const fresh = (): string => `k${count++}`;

    test('are let through so many times, then not until the ban is over', async () => {
      const { attempts, pass } = make();
      const key = fresh();
      await useUp(attempts, key);
      const ban = await attempts.take([key], RULE);
      expect(ban).toBeGreaterThan(400);
      expect(ban).toBeLessThanOrEqual(600);
      await pass(400);
      expect(await attempts.take([key], RULE)).toBeGreaterThan(0);
      await pass(300);
      expect(await attempts.take([key], RULE)).toBe(0);
    });

    test('are counted anew after the window', async () => {
      const { attempts, pass } = make();
      const key = fresh();
      for (let i = 0; i < 2; i++) await attempts.take([key], RULE);
      await pass(400);
      await useUp(attempts, key);
    });

    test('that did not fail are given back, and lift a ban that they alone made', async () => {
      const { attempts } = make();
      const key = fresh();
      for (let i = 0; i < 10; i++) {
        expect(await attempts.take([key], RULE)).toBe(0);
        await attempts.refund([key], RULE);
      }
      await useUp(attempts, key);
      await attempts.refund([key], RULE);
      expect(await attempts.take([key], RULE)).toBe(0);
      expect(await attempts.take([key], RULE)).toBeGreaterThan(0);
      await attempts.refund([fresh()], RULE);
    });

    test('of several keys are let through where all have one left, and count for none where one has not', async () => {
      const { attempts } = make();
      const [banned, other] = [fresh(), fresh()];
      await useUp(attempts, banned);
      for (let i = 0; i < 5; i++) expect(await attempts.take([banned, other], RULE)).toBeGreaterThan(0);
      await useUp(attempts, other);
    });

    test('that race are not more than allowed', async () => {
      const { attempts } = make();
      const key = fresh();
      const results = await Promise.all(Array.from({ length: 20 }, () => attempts.take([key], RULE)));
      expect(results.filter((ban) => ban === 0)).toHaveLength(3);
    });
  });
}

describeAttempts('in memory', () => {
  const clock = new FakeClock();
  return { attempts: createMemoryAttempts(clock, { maxKeys: 1_000 }), pass: (ms) => clock.advance(ms) };
});

let server: RedisServer;
let store: ReturnType<typeof createRedisStore>;
beforeAll(async () => {
  server = await startRedis();
  const nothing = (): void => undefined;
  store = createRedisStore(
    {
      topology: { kind: 'standalone', node: { host: '127.0.0.1', port: server.port } },
      keyPrefix: 'test:',
      connectTimeout: 1_000,
      commandTimeout: 500,
    },
    { onUp: nothing, onDown: nothing, onWarning: nothing },
  );
  await until(() => store.isUp());
});
afterAll(async () => {
  await store.close();
  await server.stop();
});
describeAttempts('in Redis', () => ({
  attempts: store,
  pass: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
}));

test('a flood of keys takes no more memory than allowed, and forgets those of longest ago', async () => {
  const attempts = createMemoryAttempts(new FakeClock(), { maxKeys: 100 });
  for (let i = 0; i < 3; i++) await attempts.take(['old'], RULE);
  for (let i = 0; i < 99; i++) await attempts.take([`flood ${i}`], RULE);
  expect(await attempts.take(['old'], RULE)).toBeGreaterThan(0);
  for (let i = 0; i < 100; i++) await attempts.take([`more ${i}`], RULE);
  expect(await attempts.take(['old'], RULE)).toBe(0);
});

test('while the shared store is away this process counts for itself', async () => {
  const own = createMemoryAttempts(new FakeClock(), { maxKeys: 10 });
  const away: Attempts = { take: () => Promise.reject(new Error('away')), refund: () => Promise.reject(new Error('away')) };
  const attempts = withFallback(away, own);
  for (let i = 0; i < 3; i++) expect(await attempts.take(['k'], RULE)).toBe(0);
  expect(await attempts.take(['k'], RULE)).toBeGreaterThan(0);
  await attempts.refund(['k'], RULE);
  expect(await attempts.take(['k'], RULE)).toBe(0);
});
