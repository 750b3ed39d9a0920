import { afterEach, describe, expect, test } from 'vitest';
import { holdResponses } from '../support/app.ts';
import { send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';

const app = useApp();
let gate: TestGate;
afterEach(() => gate.stop());
const start = async (webhook: Sections): Promise<void> => {
  gate = await startGate({ routes: [toRoute(app.port, { webhook })] });
};
const json = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));

describe('a route that requires envelopes', () => {
  const envelope = { type: 'invoice.paid', id: 'evt_1', created: 1_700_000_000, data: {} };

  test('accepts one whose ID equals the signed one', async () => {
    await start({ envelope: { requireMatchingId: true } });
    expect((await send(gate.port, makeDelivery({ id: 'evt_1', body: json(envelope) }))).status).toBe(200);
    expect(app.received).toHaveLength(1);
  });

  test.each([
    ['another id', { ...envelope, id: 'evt_2' }],
    ['no id', { ...envelope, id: undefined }],
    ['an id that is a number', { ...envelope, id: 1 }],
    ['no type', { ...envelope, type: undefined }],
    ['a time that is text', { ...envelope, created: '2026-01-01' }],
    ['no data', { ...envelope, data: undefined }],
    ['data that is a list', { ...envelope, data: [] }],
    ['data that is null', { ...envelope, data: null }],
    ['a list around it', [envelope]],
    ['null', null],
    ['text', 'evt_1'],
  ])('rejects %s with 422, and the ID stays free', async (_, body) => {
    await start({ envelope: { requireMatchingId: true } });
    const answer = await send(gate.port, makeDelivery({ id: 'evt_1', body: json(body) }));
    expect([answer.status, answer.code]).toEqual([422, 'envelope_mismatch']);
    expect((await send(gate.port, makeDelivery({ id: 'evt_1', body: json(envelope) }))).status).toBe(200);
    expect(app.received).toHaveLength(1);
  });

  test.each([
    ['is not JSON', Buffer.from('{"id":"evt_1"')],
    ['is not UTF-8', Buffer.concat([Buffer.from('{"id":"evt_1","x":"'), Buffer.from([0xff]), Buffer.from('"}')])],
  ])('rejects a body that %s', async (_, body) => {
    await start({ envelope: { requireMatchingId: true } });
    expect((await send(gate.port, makeDelivery({ id: 'evt_1', body }))).code).toBe('envelope_mismatch');
  });
});

describe('a route without dedup', () => {
  test('forwards every valid delivery, each time it arrives', async () => {
    await start({ dedup: 'off' });
    const delivery = makeDelivery();
    for (let i = 0; i < 3; i++) expect((await send(gate.port, delivery)).code).toBeUndefined();
    expect(app.received).toHaveLength(3);
  });
});

describe('a route that does not let deliveries wait', () => {
  test('responds with 503 and Retry-After while the first is in progress', async () => {
    await start({ dedup: { inProgress: 'reject' } });
    const finish = holdResponses(app, 'done');
    const delivery = makeDelivery();
    const first = send(gate.port, delivery);
    await until(() => app.received.length === 1);
    const second = await send(gate.port, delivery);
    expect([second.status, second.code]).toEqual([503, 'in_progress']);
    expect(Number(second.headers['retry-after'])).toBeGreaterThan(0);
    finish();
    expect((await first).text).toBe('done');
    expect((await send(gate.port, delivery)).code).toBe('duplicate');
  });
});

describe('a part that the signature does not cover', () => {
  test('is forwarded if the route allows it', async () => {
    await start({ allowQuery: true, allowContentEncoding: true, allowDotInId: true });
    const delivery = makeDelivery({ id: 'evt.1' });
    const answer = await send(gate.port, {
      ...delivery,
      path: '/hooks/billing?a=1',
      headers: { ...delivery.headers, 'Content-Encoding': 'gzip' },
    });
    expect(answer.status).toBe(200);
    expect(app.received[0]?.url).toBe('/hooks/billing?a=1');
  });
});

describe('the admin port', () => {
  const ask = (path: string, method = 'GET'): Promise<Response> => fetch(`http://127.0.0.1:${gate.adminPort}${path}`, { method });

  test('serves health, readiness and metrics, and has no other path than those of the console', async () => {
    await start({});
    expect([(await ask('/healthz')).status, (await ask('/readyz')).status]).toEqual([200, 200]);
    expect((await ask('/readyz', 'HEAD')).status).toBe(200);
    const metrics = await ask('/metrics?x=1');
    expect(metrics.headers.get('content-type')).toMatch(/^text\/plain; version=0\.0\.4/);
    expect(await metrics.text()).toContain('sidegate_build_info{version="test"');
    expect((await ask('/none')).status).toBe(404);
    expect((await ask('/metrics', 'POST')).status).toBe(405);
  });
});
