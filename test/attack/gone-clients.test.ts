/** Clients that leave while sidegate works on their requests: these still count, end soon, and reach no app for nobody. */
import { connect, type Socket } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { send, toRequestText } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { makeEntry, toBasic } from '../support/users.ts';

const PASSWORD = 'open sesame';
const app = useApp();
let gate: TestGate;
afterEach(() => gate.stop());

/** Passwords take a quarter of a second to check. */
async function start(limits: Sections, admin: Sections = {}): Promise<TestGate> {
  const upstream = `http://127.0.0.1:${app.port}`;
  const basic = { realm: 'r', users: { file: 'users' }, requireTls: false, limit: 'off' };
  const routes = [
    toRoute(app.port),
    { name: 'admin', match: { pathPrefix: '/admin' }, upstream, basic, ...admin },
    { name: 'open', match: { pathPrefix: '/open' }, upstream, allow: 'anyone' },
  ];
  const users = makeEntry('Aladdin', PASSWORD, ['-B', '-C', '12']);
  gate = await startGate({ limits, shutdown: { grace: '0ms' }, routes }, undefined, { users });
  return gate;
}

const toHead = (line: string, ...fields: readonly string[]): string => toRequestText([`${line} HTTP/1.1`, 'Host: a', ...fields]);
const WRONG = `Authorization: ${toBasic('Aladdin', 'wrong').Authorization}`;

/** Sends a request; resolves once it is on its way. */
function open(text: string): Promise<Socket> {
  return new Promise((resolve) => {
    const socket = connect(gate.port, '127.0.0.1', () => socket.write(text, () => resolve(socket)));
    socket.on('error', () => undefined);
  });
}

test('requests count for their client until the check of their password has ended', async () => {
  const { port, metric } = await start({ maxRequestsPerClient: 4 });
  const sockets = await Promise.all(Array.from({ length: 4 }, () => open(toHead('GET /admin', WRONG))));
  await until(async () => (await metric('sidegate_http_requests_in_flight')) !== undefined);
  for (const socket of sockets) socket.resetAndDestroy();
  await until(async () => (await metric('sidegate_connections')) === 0);
  expect((await send(port, { method: 'GET', path: '/open' })).status).toBe(503);
  await until(async () => (await send(port, { method: 'GET', path: '/open' })).status === 200);
});

test('every outcome gives back what it counted', async () => {
  const { port } = await start({ maxRequestsPerClient: 1, maxHeaderFields: 20 });
  const { body, headers } = makeDelivery();
  const outcomes = [
    { method: 'GET', path: '/nowhere' },
    { method: 'GET', path: '/a%2f..%2fb' },
    { method: 'POST', path: '/nowhere', body: 'x'.repeat(70_000) },
    { method: 'GET', path: '/hooks/billing' },
    { method: 'GET', path: '/admin', headers: toBasic('Aladdin', 'wrong') },
    { method: 'GET', path: '/admin', headers: toBasic('Aladdin', PASSWORD) },
    { method: 'POST', path: '/open', body: 'x'.repeat(200_000) },
    { body, headers: { ...headers, 'Content-Type': 'text/plain' } },
    { body: `${body} `, headers },
    { body, headers },
    { body, headers },
    { method: 'GET', path: '/open', headers: { Connection: 'Upgrade', Upgrade: 'websocket' } },
    { method: 'GET', path: '/open', headers: { Expect: 'a-miracle' } },
  ];
  for (const outcome of outcomes) {
    await send(port, outcome).catch(() => undefined);
    await until(async () => (await send(port, { method: 'GET', path: '/open' })).status === 200);
  }
});

test('an upload to an observed route ends at once if its client left during the check of its password', {
  timeout: 10_000,
}, async () => {
  const { metric } = await start({ bodyIdleTimeout: '1h', bodyTimeout: '1h', maxRequestsPerClient: 1 }, { mode: 'observe' });
  const socket = await open(`${toHead('POST /admin', WRONG, 'Content-Length: 5')}xx`);
  socket.resetAndDestroy();
  await until(async () => (await metric('sidegate_connections')) === 0);
  await until(async () => (await send(gate.port, { method: 'GET', path: '/open' })).status === 200);
});

test('a request whose client left while it waited for a slot does not reach the app', async () => {
  const { port, metric } = await start({
    maxInFlight: 1,
    maxInFlightPerClient: 1,
    maxInFlightUnverified: 1,
    maxQueued: 4,
    queueTimeout: '30s',
  });
  const held = Promise.withResolvers<() => void>();
  app.handler = (_request, response) => held.resolve(() => response.end('handled'));
  const first = send(port, { method: 'GET', path: '/open/first' });
  const release = await held.promise;
  app.handler = (_request, response) => response.end('handled');
  const waiting = await open(toHead('GET /open/second'));
  await until(async () => (await metric('sidegate_http_requests_queued')) === 1);
  waiting.resetAndDestroy();
  await until(async () => (await metric('sidegate_connections')) === 1);
  release();
  expect((await first).status).toBe(200);
  expect((await send(port, { method: 'GET', path: '/open/third' })).status).toBe(200);
  expect(app.received.map(({ url }) => url)).not.toContain('/open/second');
});
