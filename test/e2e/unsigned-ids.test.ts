/** Senders whose signature does not cover the delivery's id: what was signed identifies the event. */
import { createHmac, randomBytes, randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { type Answer, send } from '../support/client.ts';
import { useApp, useRedis } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';

const SECRET = "It's a Secret to Everybody";

const app = useApp();
const redis = useRedis();

function toGitHubRoute(webhook: Sections = {}): Sections {
  return toRoute(app.port, { webhook: { scheme: 'github', ...webhook } });
}

async function start(store: 'memory' | 'redis', webhook?: Sections): Promise<TestGate> {
  const sections = { routes: [toGitHubRoute(webhook)] };
  if (store === 'memory') return startGate(sections, undefined, { secret: SECRET });
  const redisSections = { store: { redis: { url: `redis://127.0.0.1:${redis.port}` } } };
  const gate = await startGate({ ...sections, ...redisSections }, undefined, { secret: SECRET });
  await until(() => gate.log().some(({ msg }) => msg === 'store_up'));
  return gate;
}

function push(port: number, body: string, id: string = randomUUID()): Promise<Answer> {
  const signature = `sha256=${createHmac('sha256', SECRET).update(body).digest('hex')}`;
  const headers = { 'Content-Type': 'application/json', 'X-GitHub-Delivery': id, 'X-Hub-Signature-256': signature };
  return send(port, { path: '/hooks/billing', headers, body });
}

function toBody(): string {
  return JSON.stringify({ ref: 'refs/heads/main', after: randomUUID() });
}

describe.each(['memory', 'redis'] as const)('with the store in %s', (store) => {
  test('a captured body never reaches the app under another ID; as it may be another event, it gets no 2xx', async () => {
    const gate = await start(store);
    const body = toBody();
    expect((await push(gate.port, body, 'first')).text).toBe('handled');
    expect(await push(gate.port, body, 'first')).toMatchObject({ status: 200, code: 'duplicate' });
    expect(await push(gate.port, body, 'second')).toMatchObject({ status: 503, code: 'event_conflict' });
    expect(await push(gate.port, toBody())).toMatchObject({ status: 200, text: 'handled' });
    expect(app.received).toHaveLength(2);
    expect(await gate.metric('sidegate_dedup_operations_total{outcome="replayed_under_new_id"}')).toBe(1);
    await gate.stop();
    const replay = gate.log().find(({ code }) => code === 'event_conflict');
    expect(replay).toMatchObject({
      reason: 'replayed_under_new_id',
      level: 'warn',
      detail: expect.stringContaining('unsignedId: trust'),
    });
  });

  test('one of many concurrent deliveries of one body under different IDs is forwarded, across two replicas', async () => {
    const gates = store === 'redis' ? [await start(store), await start(store)] : [await start(store)];
    const bodies = Array.from({ length: 10 }, toBody);
    const answers = await Promise.all(
      bodies.flatMap((body) => Array.from({ length: 12 }, (_, i) => push(gates[i % gates.length]?.port ?? 0, body))),
    );
    expect(answers.filter(({ text }) => text === 'handled')).toHaveLength(bodies.length);
    expect(answers.every(({ text, code }) => text === 'handled' || code === 'event_conflict')).toBe(true);
    expect(new Set(app.received.map(({ body }) => body.toString())).size).toBe(bodies.length);
    expect(app.received).toHaveLength(bodies.length);
    for (const gate of gates) await gate.stop();
  });

  test('a delivery that the app failed to handle can be retried, under its ID or another', async () => {
    const gate = await start(store);
    const body = toBody();
    app.handler = (_request, response) => {
      response.statusCode = 500;
      response.end('failed');
    };
    const id = randomUUID();
    expect((await push(gate.port, body, id)).status).toBe(500);
    expect((await push(gate.port, body)).status).toBe(500);
    app.handler = (_request, response) => response.end('handled');
    expect((await push(gate.port, body, id)).text).toBe('handled');
    await gate.stop();
  });

  test('a repeated ID with another body gets 503: the ID is not signed, so it does not prove that the event was handled', async () => {
    const gate = await start(store);
    const id = randomUUID();
    expect((await push(gate.port, toBody(), id)).text).toBe('handled');
    const body = toBody();
    expect(await push(gate.port, body, id)).toMatchObject({ status: 503, code: 'event_conflict' });
    expect(await gate.metric('sidegate_dedup_operations_total{outcome="id_reused"}')).toBe(1);
    // What was claimed for the other body is given back.
    expect((await push(gate.port, body)).text).toBe('handled');
    await gate.stop();
  });
});

test('only the ID counts if the route trusts it', async () => {
  const gate = await start('memory', { dedup: { unsignedId: 'trust' } });
  const body = toBody();
  expect((await push(gate.port, body, 'a')).text).toBe('handled');
  expect((await push(gate.port, body, 'b')).text).toBe('handled');
  expect((await push(gate.port, body, 'b')).code).toBe('duplicate');
  await gate.stop();
});

test('an event without an ID is identified by its signed content', async () => {
  const gate = await start('memory');
  const body = toBody();
  const headers = {
    'Content-Type': 'application/json',
    'X-Hub-Signature-256': `sha256=${createHmac('sha256', SECRET).update(body).digest('hex')}`,
  };
  expect((await send(gate.port, { path: '/hooks/billing', headers, body })).text).toBe('handled');
  expect((await send(gate.port, { path: '/hooks/billing', headers, body })).code).toBe('duplicate');
  await gate.stop();
  expect(gate.log().find(({ code }) => code === 'duplicate')).toMatchObject({ webhookId: expect.stringMatching(/^sha256-/) });
});

describe('a sender that signs nothing', () => {
  const tokenRoute = (webhook: Sections): Sections => toRoute(app.port, { webhook: { scheme: 'bearer', ...webhook } });
  const toHeaders = (token: string) => ({ 'Content-Type': 'application/json', Authorization: `bearer ${token}` });

  test('is authenticated by its token, and its events are distinguished by the configured ID', async () => {
    const gate = await startGate({ routes: [tokenRoute({ id: { json: '$.event.id' } })] }, undefined, {
      secret: 'a-long-enough-token',
    });
    const path = '/hooks/billing';
    const body = JSON.stringify({ event: { id: 'e1' } });
    expect(await send(gate.port, { path, headers: toHeaders('wrong'), body })).toMatchObject({ code: 'signature_mismatch' });
    expect(await send(gate.port, { path, headers: toHeaders('a-long-enough-toke'), body })).toMatchObject({ status: 401 });
    expect((await send(gate.port, { path, headers: toHeaders('a-long-enough-token'), body })).text).toBe('handled');
    expect((await send(gate.port, { path, headers: toHeaders('a-long-enough-token'), body })).code).toBe('duplicate');
    // Without an id a repeat cannot be told from a new event, and none may be lost.
    for (let i = 0; i < 2; i++)
      expect((await send(gate.port, { path, headers: toHeaders('a-long-enough-token'), body: '{}' })).text).toBe('handled');
    expect(await gate.metric('sidegate_dedup_operations_total{outcome="unidentified"}')).toBe(2);
    await gate.stop();
  });

  test('is a config error if nothing distinguishes its events', async () => {
    await expect(startGate({ routes: [tokenRoute({})] })).rejects.toThrow(/bearer has no ID that identifies duplicates/);
  });
});

test('no field in another spelling, and no Connection option, can change an ID between the gate and the app', async () => {
  const gate = await start('memory');
  const body = toBody();
  const signature = `sha256=${createHmac('sha256', SECRET).update(body).digest('hex')}`;
  const signed = { 'Content-Type': 'application/json', 'X-GitHub-Delivery': 'a', 'X-Hub-Signature-256': signature };
  const named = { ...signed, Connection: 'close, X-GitHub-Delivery' };
  expect(await send(gate.port, { path: '/hooks/billing', headers: named, body })).toMatchObject({ code: 'malformed_signature' });
  const spelled = { ...signed, X_GitHub_Delivery: 'b', 'X-Hub_Signature-256': 'sha256=00' };
  expect((await send(gate.port, { path: '/hooks/billing', headers: spelled, body })).text).toBe('handled');
  const { headers = {} } = app.received[0] ?? {};
  expect(Object.keys(headers).filter((name) => /github|hub/i.test(name))).toEqual(['x-github-delivery', 'x-hub-signature-256']);
  await gate.stop();
});

test('the same content under another topic is another event if a sender distinguishes kinds only by a header', async () => {
  const route = toRoute(app.port, { webhook: { scheme: 'shopify' } });
  const gate = await startGate({ routes: [route] }, undefined, { secret: SECRET });
  const body = JSON.stringify({ id: 1 });
  const signature = createHmac('sha256', SECRET).update(body).digest('base64');
  const post = (topic: string): Promise<Answer> => {
    const ids = { 'X-Shopify-Webhook-Id': `id-${topic}`, 'X-Shopify-Topic': topic };
    const headers = { 'Content-Type': 'application/json', 'X-Shopify-Hmac-Sha256': signature, ...ids };
    return send(gate.port, { path: '/hooks/billing', headers, body });
  };
  expect((await post('orders/create')).text).toBe('handled');
  expect((await post('orders/paid')).text).toBe('handled');
  expect((await post('orders/create')).code).toBe('duplicate');
  await gate.stop();
});

describe('an event with the bytes of an earlier one never gets 2xx unless the app handled it', () => {
  const key = randomBytes(24).toString('hex');
  const signed = (body: string, encoding: 'hex' | 'base64'): string => createHmac('sha256', key).update(body).digest(encoding);

  test.each([
    ['bitbucket', 'X-Request-UUID', (body: string) => ({ 'X-Hub-Signature': `sha256=${signed(body, 'hex')}` })],
    ['sentry', 'Request-ID', (body: string) => ({ 'Sentry-Hook-Signature': signed(body, 'hex') })],
    ['shopify', 'X-Shopify-Webhook-Id', (body: string) => ({ 'X-Shopify-Hmac-Sha256': signed(body, 'base64') })],
    ['greenhouse', 'Greenhouse-Event-ID', (body: string) => ({ Signature: `sha256 ${signed(body, 'hex')}` })],
    ['scrapfly', 'X-Scrapfly-Webhook-Job-Id', (body: string) => ({ 'X-Scrapfly-Webhook-Signature': signed(body, 'hex') })],
  ])('%s: 503 under another ID', async (scheme, id, toHeaders) => {
    const gate = await startGate({ routes: [toRoute(app.port, { webhook: { scheme } })] }, undefined, { secret: key });
    const body = '{"id":42}';
    const deliver = (value: string): Promise<Answer> =>
      send(gate.port, {
        path: '/hooks/billing',
        headers: { 'Content-Type': 'application/json', [id]: value, ...toHeaders(body) },
        body,
      });
    expect((await deliver('a')).text).toBe('handled');
    expect((await deliver('a')).code).toBe('duplicate');
    expect(await deliver('b')).toMatchObject({ status: 503, code: 'event_conflict' });
    await gate.stop();
  });

  test.each(['bunny-stream', 'clickup', 'clio', 'onfido', 'paystack', 'woocommerce'])(
    '%s, which sends no ID: check asks for a decision',
    async (scheme) => {
      const start = startGate({ routes: [toRoute(app.port, { webhook: { scheme } })] }, undefined, { secret: key });
      await expect(start).rejects.toThrow('can send the same bytes for different events');
    },
  );
});
