import { expect, onTestFinished, test } from 'vitest';
import { send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { startRedis } from '../support/redis.ts';

const app = useApp();

async function start(redisPort: number): Promise<TestGate> {
  const redis = { url: `redis://127.0.0.1:${redisPort}`, commandTimeout: '500ms' };
  const gate = await startGate({ store: { redis }, routes: [toRoute(app.port)] });
  onTestFinished(() => void gate.stop());
  await until(async () => (await gate.metric('sidegate_dedup_up')) === 1);
  return gate;
}

interface Row {
  readonly id: string;
  readonly event: string;
}

const list = async ({ adminPort }: TestGate, query = ''): Promise<Row[]> =>
  JSON.parse((await send(adminPort, { method: 'GET', path: `/api/v1/deliveries${query}` })).text).data;

test('the console of one replica shows the requests of all that share a Redis, in one order, also after one has stopped', async () => {
  const redis = await startRedis();
  onTestFinished(() => void redis.stop());
  const [first, second] = [await start(redis.port), await start(redis.port)];
  const deliveries = [makeDelivery(), makeDelivery(), makeDelivery()];
  for (const [i, delivery] of deliveries.entries()) await send((i === 1 ? second : first).port, delivery);
  await send(second.port, { ...makeDelivery(), path: '/elsewhere?token=marked' });
  expect(await list(first)).toHaveLength(2);
  const all = await until(async () => {
    const rows = await list(first);
    return rows.length === 4 && rows;
  });
  expect(all.map(({ event }) => event)).toEqual([null, ...deliveries.map(({ id }) => id).toReversed()]);
  expect((await list(first, `?id=${deliveries[1]?.id}`)).map(({ id }) => id)).toEqual([all[2]?.id]);
  expect(await list(first, '?route=_unmatched')).toHaveLength(1);
  const detail = await send(first.adminPort, { method: 'GET', path: `/api/v1/deliveries/${all[2]?.id}` });
  expect(JSON.parse(detail.text)).toMatchObject({
    event: deliveries[1]?.id,
    headers: expect.any(Array),
    commands: { explain: null },
  });
  await until(async () => (await second.metric('sidegate_console_shared_total{outcome="sent"}')) === 2);
  await second.stop();
  expect(await list(first)).toHaveLength(4);
}, 30_000);

test('a Redis that is away costs the list only the requests of other replicas', async () => {
  const redis = await startRedis();
  onTestFinished(() => void redis.stop());
  const [first, second] = [await start(redis.port), await start(redis.port)];
  await send(second.port, makeDelivery());
  await until(async () => (await list(first)).length === 1);
  await redis.kill();
  await until(async () => (await first.metric('sidegate_dedup_up')) === 0);
  await send(first.port, { ...makeDelivery(), path: '/elsewhere' });
  expect(await list(first)).toHaveLength(2);
}, 30_000);
