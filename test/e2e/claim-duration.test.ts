/** A claim lasts as long as the app's work: it is settled by the head of the response, and no request starts that could outlast it. */
import type { ServerResponse } from 'node:http';
import { afterEach, describe, expect, test } from 'vitest';
import { holdResponses } from '../support/app.ts';
import { send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { useApp, useRedis } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';

const app = useApp();
const redis = useRedis();
const stops: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
});

const TIMES = { timeout: '1s', connectTimeout: '500ms' };

async function start(webhook: Sections, store: Sections = {}, clock?: FakeClock): Promise<TestGate> {
  const gate = await startGate({ ...store, routes: [toRoute(app.port, { route: TIMES, webhook })] }, clock);
  stops.push(gate.stop);
  return gate;
}

/** The app sends the head and one byte; each call of the result sends one more, or ends the oldest response. */
function drip(status = 200): { more: () => void; end: () => void; cut: () => void } {
  const open: ServerResponse[] = [];
  app.handler = (_request, response) => {
    response.writeHead(status, { 'Content-Type': 'text/plain' });
    response.write('.');
    open.push(response);
  };
  return {
    more: () => void open[0]?.write('.'),
    end: () => void open.shift()?.end(),
    cut: () => void open.shift()?.destroy(),
  };
}

describe.each(['memory', 'redis'] as const)(
  'an app whose response takes longer than the lease, with the store in %s',
  (store) => {
    const sections = (): Sections => (store === 'memory' ? {} : { store: { redis: { url: `redis://127.0.0.1:${redis.port}` } } });

    test('gets the event once: its 2xx confirms the claim before the body has ended', async () => {
      const gate = await start({ dedup: { lease: '3s', maxWait: '1s' } }, sections());
      if (store === 'redis') await until(() => gate.log().some(({ msg }) => msg === 'store_up'));
      const response = drip();
      const delivery = makeDelivery();
      const first = send(gate.port, delivery);
      await until(() => app.received.length === 1);
      // Also for those who ask at once.
      const others = await Promise.all(Array.from({ length: 5 }, () => send(gate.port, delivery)));
      expect(others.map(({ status, code }) => [status, code])).toEqual(Array(5).fill([200, 'duplicate']));
      response.more();
      response.end();
      expect(await first).toMatchObject({ status: 200, text: '..' });
      expect(app.received).toHaveLength(1);
      expect(await gate.metric('sidegate_dedup_operations_total{outcome="confirmed"}')).toBe(1);
      expect(await gate.metric('sidegate_dedup_operations_total{outcome="held"}')).toBe(0);
    });
  },
);

test('an event is handled once although its response lasts for twice the lease', async () => {
  const clock = new FakeClock(Date.now());
  const gate = await start({ dedup: { lease: '3s', maxWait: '1s' } }, {}, clock);
  const response = drip();
  const delivery = makeDelivery();
  const first = send(gate.port, delivery);
  await until(() => app.received.length === 1);
  for (let i = 0; i < 12; i++) {
    response.more();
    await until(async () => (await gate.metric('sidegate_dedup_operations_total{outcome="confirmed"}')) === 1);
    await clock.advance(500);
    expect(await send(gate.port, delivery)).toMatchObject({ status: 200, code: 'duplicate' });
  }
  response.end();
  expect((await first).status).toBe(200);
  expect(app.received).toHaveLength(1);
  stops.length = 0;
  const stopped = gate.stop();
  await clock.advance(10_000);
  await stopped;
});

test('a response that breaks off after its 2xx head is not complete for the sender, but the event is handled', async () => {
  const gate = await start({});
  const response = drip();
  const delivery = makeDelivery();
  const first = send(gate.port, delivery);
  await until(() => app.received.length === 1);
  response.cut();
  await expect(first).rejects.toThrow(/aborted|hang up|ECONNRESET/);
  expect(await send(gate.port, delivery)).toMatchObject({ status: 200, code: 'duplicate' });
});

test.each([500, 503, 404, 302])('the head of a %i releases the event, however long its body takes', async (status) => {
  const gate = await start({});
  const response = drip(status);
  const delivery = makeDelivery();
  const first = send(gate.port, delivery);
  await until(async () => (await gate.metric('sidegate_dedup_operations_total{outcome="released"}')) === 1);
  app.handler = (_request, retried) => retried.end('handled');
  expect(await send(gate.port, delivery)).toMatchObject({ status: 200, text: 'handled' });
  response.end();
  expect((await first).status).toBe(status);
});

test('1xx responses settle nothing', async () => {
  const gate = await start({ dedup: { inProgress: 'reject' } });
  let held: ServerResponse | undefined;
  app.handler = (_request, response) => {
    response.writeProcessing();
    response.writeEarlyHints({ link: '</a.css>; rel=preload' });
    held = response;
  };
  const delivery = makeDelivery();
  const first = send(gate.port, delivery);
  await until(() => held !== undefined);
  expect(await send(gate.port, delivery)).toMatchObject({ status: 503, code: 'in_progress' });
  held?.writeHead(204).end();
  expect((await first).status).toBe(204);
  expect(await send(gate.port, delivery)).toMatchObject({ status: 200, code: 'duplicate' });
});

test('with order, the next event of the resource starts at the head of the response', async () => {
  const gate = await start({ order: { key: '$.id', version: '$.v' } });
  const toEvent = (v: number) => makeDelivery({ body: JSON.stringify({ id: 'a', v }) });
  const response = drip();
  const first = send(gate.port, toEvent(2));
  await until(async () => (await gate.metric('sidegate_order_operations_total{outcome="confirmed"}')) === 1);
  expect(await send(gate.port, toEvent(1))).toMatchObject({ status: 200, code: 'stale' });
  response.end();
  expect((await first).status).toBe(200);
});

test('a delivery that waited for a slot is not forwarded if the app could work on it for longer than its lease', async () => {
  const clock = new FakeClock(Date.now());
  const slow = {
    name: 'slow',
    match: { path: '/slow' },
    upstream: `http://127.0.0.1:${app.port}`,
    allow: 'anyone',
    timeout: '60s',
  };
  const billing = toRoute(app.port, { route: TIMES, webhook: { dedup: { lease: '3s', maxWait: '1s' } } });
  const gate = await startGate({ limits: { maxInFlight: 1, queueTimeout: '30s' }, routes: [slow, billing] }, clock);
  const respond = holdResponses(app);
  const holder = send(gate.port, { path: '/slow', body: 'x' });
  await until(() => app.received.length === 1);
  const delivery = makeDelivery();
  const waiting = send(gate.port, delivery);
  await until(async () => (await gate.metric('sidegate_http_requests_queued')) === 1);
  // 1.4 s of the lease are left, and the app may take 1.5 s.
  await clock.advance(1_600);
  respond();
  await holder;
  expect(await waiting).toMatchObject({ status: 503, code: 'in_progress' });
  expect(gate.log().at(-1)).toMatchObject({ reason: 'lease_expired' });
  app.handler = (_request, response) => response.end('handled');
  // No byte went to the app, so the claim was released.
  expect((await send(gate.port, delivery)).text).toBe('handled');
  const stopped = gate.stop();
  await clock.advance(10_000);
  await stopped;
});
