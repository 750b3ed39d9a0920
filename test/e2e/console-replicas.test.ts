import { writeFileSync } from 'node:fs';
import { type IncomingMessage, request } from 'node:http';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { Overview } from '../../src/admin/console/schemas.ts';
import { systemClock } from '../../src/core/clock.ts';
import { createRedisStore } from '../../src/state/redis/redis-store.ts';
import { send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { type RedisServer, startRedis } from '../support/redis.ts';

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

test('the overview of one replica sums the requests of all, also after one has stopped, and of itself during an outage', async () => {
  const redis = await startRedis();
  onTestFinished(() => void redis.stop());
  const [first, second] = [await start(redis.port), await start(redis.port)];
  const read = async (): Promise<Overview> =>
    JSON.parse((await send(first.adminPort, { method: 'GET', path: '/api/v1/overview' })).text);
  const requestsOf = ({ routes }: Overview): unknown =>
    routes[0] && [routes[0].lastMinutes.requests, routes[0].lastMinutes.rejected];
  await send(first.port, makeDelivery());
  for (let i = 0; i < 3; i++) await send(second.port, makeDelivery());
  await send(second.port, { ...makeDelivery(), headers: {} });
  const alone = await read();
  expect(alone.replicas).toEqual([hostname()]);
  const all = await until(async () => {
    const overview = await read();
    // Requests count once their interval of ten seconds is over.
    return String(requestsOf(overview)) === '5,1' && overview;
  });
  expect(all.replicas).toEqual([hostname(), hostname()]);
  const [route] = all.routes;
  expect(route?.lastMinutes.perSecond).toBeGreaterThan(0);
  expect(route?.recent.requests).toBe(1);
  expect(Date.parse(route?.lastAt ?? '')).toBeGreaterThan(Date.parse(alone.routes[0]?.lastAt ?? ''));
  await second.stop();
  expect(requestsOf(await read())).toEqual([5, 1]);
  await redis.kill();
  await until(async () => String(requestsOf(await read())) === '1,0');
  expect((await read()).replicas).toEqual([hostname()]);
}, 30_000);

test('a console that opens late reads the newest batches of a long stream', async () => {
  const redis = await startRedis();
  onTestFinished(() => void redis.stop());
  const topology = { kind: 'standalone', node: { host: '127.0.0.1', port: redis.port } } as const;
  const options = { topology, keyPrefix: 'test:', connectTimeout: 1_000, commandTimeout: 500 };
  const nothing = (): void => undefined;
  const store = createRedisStore(options, { onUp: nothing, onDown: nothing, onWarning: nothing }, systemClock);
  onTestFinished(() => store.close());
  await until(() => store.isUp());
  for (let i = 0; i < 150; i++) await store.publish('figures', String(i));
  const read = await store.read('figures', '0');
  expect(read.map(({ text }) => Number(text))).toEqual(Array.from({ length: 128 }, (_, i) => 22 + i));
  expect(await store.read('figures', read.at(-1)?.id ?? '')).toEqual([]);
});

test('requests of a replica that does not have a secret yet are shown without it', async () => {
  const redis = await startRedis();
  onTestFinished(() => void redis.stop());
  const [first, second] = [await start(redis.port), await start(redis.port)];
  const later = 'a-secret-that-only-one-replica-has-yet';
  writeFileSync(join(first.folder, 'later'), later);
  const webhook = { scheme: 'github', keys: [{ name: 'later', secret: { file: 'later' } }] };
  const other = toRoute(app.port, { match: { path: '/other' }, route: { name: 'other' }, webhook });
  first.writeConfig({ ...first.sections, routes: [toRoute(app.port), other] });
  await first.gate.reload();
  const stream = await openStream(first);
  const headers = { 'User-Agent': later };
  const rows = await until(async () => {
    await send(second.port, { method: 'GET', path: `/${later}`, headers });
    const found = await list(first);
    return found.length > 0 && found;
  });
  const [id = ''] = rows.map((row) => row.id);
  await until(() => stream.text().includes(id));
  const detail = await send(first.adminPort, { method: 'GET', path: `/api/v1/deliveries/${id}` });
  expect(JSON.parse(detail.text)).toMatchObject({ path: '[redacted]', commands: { repeat: '[redacted]' } });
  for (const text of [JSON.stringify(rows), stream.text(), detail.text]) expect(text).not.toContain(later);
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

interface Stream {
  readonly text: () => string;
  readonly isOpen: () => boolean;
  readonly close: () => void;
}

async function openStream({ adminPort }: TestGate, query = '', headers: Record<string, string> = {}): Promise<Stream> {
  const path = `/api/v1/deliveries/stream${query}`;
  const outgoing = request({ host: '127.0.0.1', port: adminPort, path, headers, agent: false });
  onTestFinished(() => void outgoing.destroy());
  const response = await new Promise<IncomingMessage>((resolve, reject) =>
    outgoing.on('response', resolve).on('error', reject).end(),
  );
  let text = '';
  let isOpen = true;
  response.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk;
  });
  response
    .on('error', () => undefined)
    .on('close', () => {
      isOpen = false;
    });
  return { text: () => text, isOpen: () => isOpen, close: () => void outgoing.destroy() };
}

/** How often the server ran a command. */
const countCalls = (redis: RedisServer, command: string): number =>
  Number(new RegExp(`cmdstat_${command}:calls=(\\d+)`).exec(redis.cli('INFO', 'commandstats'))?.[1] ?? 0);

test('the stream of one replica has the requests of all, filtered, each once, and continues after an interruption', async () => {
  const redis = await startRedis();
  onTestFinished(() => void redis.stop());
  const [first, second] = [await start(redis.port), await start(redis.port)];
  const [all, rejected] = [await openStream(first), await openStream(first, '?outcome=rejected')];
  const [own, others] = [makeDelivery(), [makeDelivery(), makeDelivery()]];
  await send(first.port, own);
  for (const delivery of others) await send(second.port, delivery);
  await send(second.port, { ...makeDelivery(), path: '/elsewhere' });
  await until(() => rejected.text().includes('route_not_found'));
  await until(() => all.text().includes('route_not_found'));
  const sent = all.text();
  for (const { id } of [own, ...others]) expect(sent.split(`"event":"${id}"`)).toHaveLength(2);
  expect(rejected.text().match(/^id: /gm)).toHaveLength(1);
  const lastId = [...sent.matchAll(/^id: (.*)$/gm)].at(-1)?.[1] ?? '';
  all.close();
  const missed = makeDelivery();
  await send(second.port, missed);
  const again = await openStream(first, '', { 'Last-Event-ID': lastId });
  await until(() => again.text().includes(missed.id));
  expect(again.text().match(/^id: /gm)).toHaveLength(1);
}, 60_000);

test('nothing is read for the stream once its last client has left', async () => {
  const redis = await startRedis();
  onTestFinished(() => void redis.stop());
  const gate = await start(redis.port);
  const streams = [await openStream(gate), await openStream(gate)];
  await until(() => countCalls(redis, 'xrange') >= 3);
  for (const stream of streams) stream.close();
  // The gate goes on to look every two seconds whether a console is open.
  const waitForLooks = async (count: number): Promise<void> => {
    const before = countCalls(redis, 'exists');
    await until(() => countCalls(redis, 'exists') >= before + count);
  };
  await waitForLooks(1);
  const reads = countCalls(redis, 'xrange');
  await waitForLooks(2);
  expect(countCalls(redis, 'xrange')).toBe(reads);
}, 60_000);

test('a Redis that is away does not end the stream; it says so, and continues with the requests of others', async () => {
  const redis = await startRedis();
  onTestFinished(() => void redis.stop());
  const [first, second] = [await start(redis.port), await start(redis.port)];
  const stream = await openStream(first);
  await send(second.port, makeDelivery());
  await until(() => stream.text().includes('"route":"billing"'));
  await redis.kill();
  await until(() => stream.text().includes('event: replicas\ndata: {"isAvailable":false}'));
  await send(first.port, { ...makeDelivery(), path: '/own' });
  await until(() => stream.text().includes('/own'));
  await redis.restart();
  await until(() => stream.text().includes('event: replicas\ndata: {"isAvailable":true}'));
  await until(async () => (await second.metric('sidegate_dedup_up')) === 1);
  await send(second.port, { ...makeDelivery(), path: '/other' });
  await until(() => stream.text().includes('/other'));
  expect(stream.isOpen()).toBe(true);
}, 60_000);
