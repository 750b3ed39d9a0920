import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { OPERATE } from '../../src/state/redis/operations.ts';
import { until } from '../support/gate.ts';
import { type RedisServer, startRedis } from '../support/redis.ts';
import { createRandom, type Random } from '../support/seeded.ts';
import { type ModelReply, RedisModel } from './redis-model.ts';

const LONG = '60000';
const SHORT = '2';
/** Precision of the remaining time of a lease: calls take time. */
const MAX_DIFFERENCE_MS = 1_000;
const TOKENS = ['t1', 't2', 't3'];

let server: RedisServer;
let client: Redis;
beforeAll(async () => {
  server = await startRedis();
  client = new Redis(server.port, '127.0.0.1');
});
afterAll(async () => {
  client.disconnect();
  await server.stop();
});

async function readClock(): Promise<number> {
  const [seconds, microseconds] = await client.time();
  return Number(seconds) * 1_000 + Number(microseconds) / 1_000;
}

function pick<T>(random: Random, choices: readonly T[]): T {
  return choices[random(choices.length)] as T;
}

/** Keys `id-…` are those of events, `res-…` those of resources, as in the store. */
function createOperation(random: Random): readonly [key: string, ...args: string[]] {
  const lease = random(4) === 0 ? SHORT : LONG;
  const token = pick(random, TOKENS);
  const [id, resource] = [`id-${random(3)}`, `res-${random(2)}`];
  const version = String(1 + random(5)).padStart(4, '0');
  return pick(random, [
    [id, 'claim', token, 'f', lease],
    [id, 'confirm', token, 'f', lease],
    [id, 'release', token, '', ''],
    [id, 'forget', '', '', ''],
    [resource, 'enter', version, token, lease],
    [resource, 'leave', token, version, lease],
    [resource, 'leave', token, '', ''],
  ]);
}

function isSame(actual: unknown, expected: ModelReply): boolean {
  if (typeof expected === 'number' || !Array.isArray(actual)) return actual === expected;
  return actual[0] === expected[0] && Math.abs(Number(actual[1]) - expected[1]) < MAX_DIFFERENCE_MS;
}

test.for([1, 2, 3, 4])('gives the same replies as the script in Redis (seed %i)', async (seed) => {
  await client.flushall();
  const random = createRandom(seed);
  let now = await readClock();
  const model = new RedisModel(() => now);
  for (let count = 0; count < 1_500; count++) {
    const [key, ...args] = createOperation(random);
    now = await readClock();
    const actual = (await client.eval(OPERATE, 1, key, ...args)) as unknown[];
    const [expected = 0] = model.run([key], args);
    expect(isSame(actual[0], expected), `${key} ${args.join(' ')}: ${JSON.stringify([actual[0], expected])}`).toBe(true);
    // What expires soon has expired in both, or in neither.
    if (!args.includes(SHORT)) continue;
    // Redis may have run the command long after `now`.
    const end = (await readClock()) + Number(SHORT) + 1;
    await until(async () => (await readClock()) > end);
  }
});
