/** The sending side through the console's API: what is sent, and how an operator repairs it. */
import { afterEach, expect, test } from 'vitest';
import { type Answer, send } from '../support/client.ts';
import { LOGIN, startConsoleGate } from '../support/console.ts';
import { useApp } from '../support/fixtures.ts';
import { type TestGate, until } from '../support/gate.ts';
import { postEvent } from '../support/provider/client.ts';

const app = useApp();
let gate: TestGate;
afterEach(() => gate.stop());

const call = (method: string, path: string, headers: Record<string, string> = {}, body?: unknown): Promise<Answer> =>
  send(gate.adminPort, {
    method,
    path: `/api/v1/outgoing${path}`,
    headers: { ...headers, ...(body !== undefined && { 'Content-Type': 'application/json' }) },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
// biome-ignore lint/suspicious/noExplicitAny: the tests read members of many different bodies
const read = async (path: string): Promise<any> => JSON.parse((await call('GET', path)).text);

test('shows endpoints and dead deliveries to local readers, and retries one for a user who logs in', async () => {
  app.handler = (_request, response) => response.writeHead(503).end();
  gate = await startConsoleGate(app.port);
  const id = await postEvent(gate.providerPort);
  await until(async () => (await read('/deliveries?state=dead')).data.length === 1);
  expect((await read('/endpoints')).data).toMatchObject([{ id: 'acme', source: 'config' }]);
  expect((await read('/endpoints/acme/stats')).failing).toEqual({
    failures: 1,
    since: expect.any(String),
    lastAttempt: expect.objectContaining({ status: 503, outcome: 'server_error' }),
  });
  expect(await read(`/deliveries/${id}~acme`)).toMatchObject({ state: 'dead', history: [{ status: 503 }] });
  app.handler = (_request, response) => response.end();
  expect((await call('POST', `/deliveries/${id}~acme/retry`)).status).toBe(401);
  expect((await call('POST', `/deliveries/${id}~acme/retry`, LOGIN)).status).toBe(202);
  await until(async () => (await read(`/deliveries/${id}~acme`)).state === 'delivered');
  expect((await read('/endpoints/acme/stats')).failing).toBeUndefined();
});

test('retries many with progress, one line of JSON after the other', async () => {
  app.handler = (_request, response) => response.writeHead(503).end();
  gate = await startConsoleGate(app.port);
  for (let i = 0; i < 3; i++) await postEvent(gate.providerPort);
  await until(async () => (await read('/deliveries?state=dead')).data.length === 3);
  const { status, headers, text } = await call('POST', '/repairs', LOGIN, { action: 'retry', endpoint: 'acme' });
  expect([status, headers['content-type']]).toEqual([200, 'application/x-ndjson']);
  expect(JSON.parse(text.trimEnd().split('\n').at(-1) ?? '')).toMatchObject({ changed: 3 });
});

test('disables and enables an endpoint, and counts logins', async () => {
  gate = await startConsoleGate(app.port);
  expect((await call('POST', '/endpoints/acme/disable', LOGIN)).status).toBe(200);
  expect((await read('/endpoints/acme')).disabled).toBeDefined();
  expect((await call('POST', '/endpoints/acme/enable', LOGIN)).status).toBe(200);
  expect((await read('/endpoints/acme')).disabled).toBeUndefined();
  expect(await gate.metric('sidegate_auth_decisions_total{route="_admin",scheme="basic",decision="allow",reason="ok"}')).toBe(2);
});

test('lists events, and those that no endpoint selects', async () => {
  gate = await startConsoleGate(app.port, {}, { events: ['invoice.*'] });
  const [routed, unrouted] = [await postEvent(gate.providerPort), await postEvent(gate.providerPort, { type: 'user.added' })];
  expect((await read('/events')).data).toMatchObject([
    { id: unrouted, deliveries: 0 },
    { id: routed, deliveries: 1 },
  ]);
  expect((await read('/events?unrouted=true')).data).toMatchObject([{ id: unrouted }]);
  expect((await read('/events?endpoint=acme&state=waiting&state=delivered&state=dead')).data).toMatchObject([{ id: routed }]);
  expect((await read('/events?endpoint=other')).data).toEqual([]);
  expect(await read('/events?type=invoice.paid&limit=1')).toMatchObject({ data: [{ id: routed }] });
  expect((await call('GET', '/events?type=..')).status).toBe(422);
});

test('posts, shows and erases no event and changes no endpoint, which are up to the app', async () => {
  gate = await startConsoleGate(app.port);
  const id = await postEvent(gate.providerPort);
  expect((await call('POST', '/events', LOGIN, { type: 'a', data: {} })).status).toBe(405);
  expect((await call('GET', `/events/${id}`, LOGIN)).status).toBe(404);
  expect((await call('DELETE', `/events/${id}/payload`, LOGIN)).status).toBe(404);
  expect((await call('POST', '/endpoints', LOGIN, { url: 'https://a.example' })).status).toBe(405);
  expect((await call('DELETE', '/endpoints/acme', LOGIN)).status).toBe(405);
});
