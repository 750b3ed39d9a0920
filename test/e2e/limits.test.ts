import type { ServerResponse } from 'node:http';
import { connect, type Socket } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { holdResponses } from '../support/app.ts';
import { send, sendRaw, toRequestText, toStatuses } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { useApp } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { makeEntry, toBasic } from '../support/users.ts';

const app = useApp();
let gate: TestGate | undefined;

afterEach(async () => {
  await gate?.stop();
  gate = undefined;
});

async function start(limits: Sections, webhook: Sections = {}): Promise<TestGate> {
  gate = await startGate({ limits, shutdown: { grace: '0ms', drain: '100ms' }, routes: [toRoute(app.port, { webhook })] });
  return gate;
}

function toHead(length: number): string {
  const { headers } = makeDelivery();
  return toRequestText([
    'POST /hooks/billing HTTP/1.1',
    'Host: a',
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
    `Content-Length: ${length}`,
  ]);
}

test('rejects a head that takes too long with 408', async () => {
  const { port, metric } = await start({ headTimeout: '300ms' });
  expect(toStatuses(await sendRaw(port, 'POST /hooks/billing HTTP/1.1\r\nHost: a\r\n'))).toEqual([408]);
  expect(await metric('sidegate_limit_hits_total{limit="head_timeout"}')).toBe(1);
});

test('rejects a body that stalls with 408, and counts it', async () => {
  const { port, metric } = await start({ bodyIdleTimeout: '300ms' });
  expect(toStatuses(await sendRaw(port, toHead(10), '{}'))).toEqual([408]);
  expect(await metric('sidegate_limit_hits_total{limit="body_idle"}')).toBe(1);
});

test('rejects a body below the minimum rate with 408, even if it never stalls', async () => {
  const { port, metric } = await start({ bodyIdleTimeout: '500ms', bodyMinRate: 5_000 });
  const socket = connect(port, '127.0.0.1');
  socket.write(toHead(100_000));
  const drip = setInterval(() => socket.write('x'), 50);
  let text = '';
  await new Promise((resolve) =>
    socket
      .on('data', (chunk) => (text += chunk.toString()))
      .on('close', resolve)
      .on('error', () => undefined),
  );
  clearInterval(drip);
  expect(toStatuses(text)).toEqual([408]);
  expect(await metric('sidegate_limit_hits_total{limit="body_rate"}')).toBe(1);
});

test('ends each body after the time that its kind has, also if it is streamed or discarded', { timeout: 60_000 }, async () => {
  const limits = {
    headTimeout: '1s',
    bodyTimeout: '2s',
    bodyIdleTimeout: '1s',
    streamTimeout: '6s',
    streamMinRate: 1,
    bodyMinRate: 1,
  };
  const open = {
    name: 'open',
    match: { pathPrefix: '/open' },
    upstream: `http://127.0.0.1:${app.port}`,
    allow: 'anyone',
    timeout: '1m',
  };
  const { port, metric } = await startGate({ limits, routes: [toRoute(app.port), open] }).then((started) => {
    gate = started;
    return started;
  });
  /** Sends a byte every 200 ms. Returns the response, and when the connection ended. */
  const trickle = (path: string, bytes: number): Promise<{ text: string; after: number }> =>
    new Promise((resolve) => {
      const started = performance.now();
      let text = '';
      let timer: NodeJS.Timeout | undefined;
      const socket = connect(port, '127.0.0.1', () => {
        socket.write(`POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Length: ${bytes}\r\n`);
        if (path === '/hooks/billing')
          for (const [name, value] of Object.entries(makeDelivery().headers)) socket.write(`${name}: ${value}\r\n`);
        socket.write('\r\n');
        let left = bytes;
        timer = setInterval(() => {
          if (left-- > 0) socket.write('x');
        }, 200);
      });
      socket.on('error', () => undefined);
      socket.on('data', (chunk) => {
        text += String(chunk);
        if (text.includes('handled')) socket.end();
      });
      socket.on('close', () => {
        clearInterval(timer);
        resolve({ text, after: (performance.now() - started) / 1_000 });
      });
    });
  const [long, endless, buffered, drained] = await Promise.all([
    trickle('/open/long', 23),
    trickle('/open/endless', 1_000),
    trickle('/hooks/billing', 1_000),
    trickle('/none', 1_000),
  ]);
  expect(long.text).toMatch(/^HTTP\/1\.1 200 /);
  expect(endless.text).toMatch(/^HTTP\/1\.1 408 /);
  expect(endless.after).toBeGreaterThan(5.9);
  expect(buffered.text).toMatch(/^HTTP\/1\.1 408 /);
  expect(buffered.after).toBeLessThan(5.5);
  expect(drained.text).toMatch(/^HTTP\/1\.1 404 /);
  expect(drained.after).toBeLessThan(5.5);
  expect(await metric('sidegate_limit_hits_total{limit="body_total"}')).toBe(2);
});

test('rejects an incomplete body, and does not forward it', async () => {
  const { port, log } = await start({});
  const socket = connect(port, '127.0.0.1');
  socket.end(`${toHead(10)}{}`);
  await until(() => log().some(({ reason }) => reason === 'body_aborted' || reason === 'framing'));
  expect(app.received).toHaveLength(0);
});

test('rejects bodies above the total buffer limit with 503 and Retry-After', async () => {
  const { port, metric } = await start({ maxBufferedBytes: '100k' });
  const answer = await send(port, makeDelivery({ body: Buffer.alloc(200_000, 0x20) }));
  expect([answer.status, answer.code, answer.headers['retry-after']]).toEqual([503, 'overloaded', '5']);
  expect(await metric('sidegate_limit_hits_total{limit="buffer"}')).toBe(1);
  // What was refused is given back.
  expect(await metric('sidegate_buffered_bytes')).toBe(0);
  expect((await send(port, makeDelivery({ body: Buffer.alloc(90_000, 0x20) }))).status).toBe(200);
});

test('rejects requests beyond the places and the queue with 503, and serves queued ones', async () => {
  const { port, metric } = await start({ maxInFlight: 1, maxQueued: 1, queueTimeout: '60s' });
  const finish = holdResponses(app);
  const first = send(port, makeDelivery());
  await until(() => app.received.length === 1);
  const second = send(port, makeDelivery());
  await until(async () => (await metric('sidegate_http_requests_queued')) === 1);
  const delivery = makeDelivery();
  expect(await send(port, delivery)).toMatchObject({ status: 503, code: 'overloaded' });
  expect(await metric('sidegate_limit_hits_total{limit="in_flight_queue"}')).toBe(1);
  finish();
  expect((await first).text).toBe('handled');
  await until(() => app.received.length === 2);
  finish();
  expect((await second).text).toBe('handled');
  // What was turned away is not remembered.
  app.handler = (_request, response) => response.end('handled');
  expect((await send(port, delivery)).text).toBe('handled');
});

test('rejects a request that waits too long for a place with 503, and forwards its retry', async () => {
  const { port, metric } = await start({ maxInFlight: 1, queueTimeout: '50ms' });
  const finish = holdResponses(app);
  const first = send(port, makeDelivery());
  await until(() => app.received.length === 1);
  const delivery = makeDelivery();
  expect(await send(port, delivery)).toMatchObject({ status: 503, code: 'overloaded' });
  expect(await metric('sidegate_limit_hits_total{limit="queue_timeout"}')).toBe(1);
  finish();
  await first;
  app.handler = (_request, response) => response.end('handled');
  expect((await send(port, delivery)).text).toBe('handled');
});

test('rejects more waiting deliveries than allowed with 503 at once', async () => {
  const { port, metric } = await start({ maxWaiting: 1 }, { dedup: { maxWait: '30s' } });
  const finish = holdResponses(app);
  const delivery = makeDelivery();
  const first = send(port, delivery);
  await until(() => app.received.length === 1);
  const second = send(port, delivery);
  await until(async () => (await metric('sidegate_dedup_operations_total{outcome="in_progress"}')) === 1);
  expect(await send(port, delivery)).toMatchObject({ status: 503, code: 'in_progress' });
  expect(await metric('sidegate_limit_hits_total{limit="waiters"}')).toBe(1);
  finish();
  expect((await first).text).toBe('handled');
  expect((await second).code).toBe('duplicate');
});

test('rejects a delivery that waited too long with 503 and Retry-After while the first is in progress', async () => {
  const { port } = await start({}, { dedup: { maxWait: '100ms' } });
  const finish = holdResponses(app);
  const delivery = makeDelivery();
  const first = send(port, delivery);
  await until(() => app.received.length === 1);
  const answer = await send(port, delivery);
  expect([answer.status, answer.code]).toEqual([503, 'in_progress']);
  expect(Number(answer.headers['retry-after'])).toBeGreaterThan(0);
  finish();
  await first;
});

test('closes the connection that was idle for longest when too many are open, and counts it', async () => {
  const { port, metric } = await start({ maxConnections: 2 });
  const sockets: Socket[] = [];
  let closed: number[] = [];
  for (const index of [0, 1]) {
    const socket = connect(port, '127.0.0.1').on('error', () => undefined);
    sockets.push(socket.on('close', () => (closed = [...closed, index])));
    await until(async () => (await metric('sidegate_connections')) === index + 1);
  }
  expect((await send(port, makeDelivery())).status).toBe(200);
  await until(() => closed.length > 0);
  expect(closed).toEqual([0]);
  expect(await metric('sidegate_limit_hits_total{limit="connections"}')).toBe(1);
  for (const socket of sockets) socket.destroy();
});

test('closes a new connection if all allowed ones have requests in progress', async () => {
  const { port, metric } = await start({ maxConnections: 2 });
  const finish: (() => void)[] = [];
  app.handler = (_request, response) => void finish.push(() => response.end('handled'));
  const busy = [send(port, makeDelivery()), send(port, makeDelivery())];
  await until(() => finish.length === 2);
  expect(await sendRaw(port, 'GET / HTTP/1.1\r\nHost: a\r\n\r\n')).toBe('');
  expect(await metric('sidegate_limit_hits_total{limit="connections"}')).toBe(1);
  for (const each of finish) each();
  for (const each of busy) expect((await each).text).toBe('handled');
});

test('hostile traffic adds no metric series', async () => {
  const { port, metrics } = await start({});
  await send(port, { path: '/x', method: 'BREW' }).catch(() => undefined);
  await send(port, makeDelivery());
  await send(port, { method: 'PROPFIND' });
  const count = async (): Promise<number> => (await metrics()).split('\n').filter((line) => line.startsWith('sidegate_')).length;
  const before = await count();
  for (let i = 0; i < 300; i++) {
    await send(port, {
      method: i % 2 === 0 ? 'PROPFIND' : 'MKCOL',
      path: i % 3 === 0 ? '/hooks/billing' : `/${i}`,
      headers: { Host: `h${i}`, 'Webhook-Id': `id${i}`, 'User-Agent': `ua${i}` },
    });
  }
  expect((await count()) - before).toBeLessThanOrEqual(2);
  expect(await count()).toBeLessThan(400);
});

test.each([
  [65_536, 'keep-alive'],
  [65_537, 'close'],
])('a rejection before %i bytes of the body leaves the connection: %s', async (length, connection) => {
  const { port } = await start({});
  const socket = connect(port, '127.0.0.1').on('error', () => undefined);
  socket.write(toRequestText(['POST /nowhere HTTP/1.1', 'Host: a', `Content-Length: ${length}`]));
  const head = String(await new Promise((resolve) => socket.once('data', resolve)));
  expect(toStatuses(head)).toEqual([404]);
  expect(/^connection: (.+)\r$/im.exec(head)?.[1]?.toLowerCase()).toBe(connection);
  socket.destroy();
});

test('a delivery whose lease ended while it waited for a slot is not forwarded: its retry may have been handled', async () => {
  const clock = new FakeClock(Date.now());
  const dedup = { lease: '2s', maxWait: '1s' };
  const slow = {
    name: 'slow',
    match: { path: '/slow' },
    upstream: `http://127.0.0.1:${app.port}`,
    allow: 'anyone',
    timeout: '60s',
  };
  const billing = toRoute(app.port, { webhook: { dedup }, route: { timeout: '500ms', connectTimeout: '500ms' } });
  gate = await startGate({ limits: { maxInFlight: 1, queueTimeout: '30s' }, routes: [slow, billing] }, clock);
  const { port, metric } = gate;
  const respond = holdResponses(app);
  const holder = send(port, { path: '/slow', body: 'x' });
  await until(() => app.received.length === 1);
  const delivery = makeDelivery();
  const first = send(port, delivery);
  await until(async () => (await metric('sidegate_http_requests_queued')) === 1);
  await clock.advance(2_001);
  const retry = send(port, delivery);
  await until(async () => (await metric('sidegate_http_requests_queued')) === 2);
  respond();
  await holder;
  const late = await first;
  expect([late.status, late.code]).toEqual([503, 'in_progress']);
  await until(() => app.received.length === 2);
  respond();
  expect((await retry).status).toBe(200);
  expect(app.received.filter(({ headers }) => headers['webhook-id'] === delivery.id)).toHaveLength(1);
  expect((await send(port, delivery)).code).toBe('duplicate');
  const stopped = gate.stop();
  await clock.advance(10_000);
  await stopped;
  gate = undefined;
});

test('an upload that lost its memory while it waited for a slot gives the slot back, although its client stays', async () => {
  const open = { name: 'open', match: { pathPrefix: '/' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' };
  const limits = { maxBufferedBytes: '1Mi', maxInFlight: 4, maxQueued: 64 };
  gate = await startGate({ limits, routes: [{ ...open, timeout: '2s', connectTimeout: '500ms' }] });
  const { metric, port } = gate;
  const answerOne = holdResponses(app);
  const sockets = Array.from({ length: 24 }, () => connect(port, '127.0.0.1').on('error', () => undefined));
  for (const socket of sockets) socket.resume().write('POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789');
  await until(async () => (await metric('sidegate_limit_hits_total{limit="buffer_share"}')) > 0);
  await until(async () => {
    answerOne();
    return (await metric('sidegate_http_requests_in_flight')) === 0;
  });
  for (const socket of sockets) socket.destroy();
});

test('a route whose users give a password counts all bytes that its bodies hold', async () => {
  const basic = { realm: 'a', users: { file: 'users' }, requireTls: false };
  const routes = [
    toRoute(app.port, { match: { path: '/x' }, route: { name: 'x', basic } }),
    toRoute(app.port, { match: { path: '/y' }, route: { name: 'y' } }),
  ];
  gate = await startGate({ limits: { maxBufferedBytes: '1Mi' }, routes }, undefined, { users: makeEntry('Aladdin', 'open') });
  const { port, metric } = gate;
  const deliver = (path: string): Promise<number> => {
    const { headers, body } = makeDelivery({ body: JSON.stringify({ text: 'x'.repeat(60_000) }) });
    const sent = { ...headers, ...toBasic('Aladdin', 'open') };
    return send(port, { path, headers: sent, body }).then(({ status }) => status);
  };
  for (let i = 0; i < 20; i++) expect(await deliver('/x')).toBe(200);
  const held: ServerResponse[] = [];
  app.handler = ({ url }, response) => void (url === '/y' ? response.end('handled') : held.push(response));
  const uploads = Array.from({ length: 30 }, () => deliver('/x'));
  // As many as the share of the route, and no more.
  await until(async () => (await metric('sidegate_limit_hits_total{limit="buffer"}')) > 0);
  expect(await deliver('/y')).toBe(200);
  app.handler = (_request, response) => response.end('handled');
  for (const response of held) response.end('handled');
  await Promise.all(uploads);
});
