import { afterEach, describe, expect, test } from 'vitest';
import { SidegateError } from '../../src/core/errors.ts';
import { until } from '../support/gate.ts';
import { startApi, type TestApi, type TestApiOptions } from '../support/provider/api.ts';
import { DEFAULTS, toConfigEndpoint } from '../support/provider/endpoints.ts';

const TRACEPARENT = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';

let api: TestApi;
afterEach(() => api.stop());

async function start(options?: TestApiOptions): Promise<void> {
  api = await startApi(options);
}

const post = (body: unknown, headers = {}) => api.request('POST', '/v1/events', body, headers);
const batch = (events: unknown) => api.request('POST', '/v1/events:batch', { events });

describe('accepting an event', () => {
  test('responds 202 once it is stored, with its endpoints', async () => {
    await start();
    let store = (): void => undefined;
    api.queue.gate = new Promise((resolve) => {
      store = resolve;
    });
    let isDone = false;
    const pending = post({ type: 'invoice.paid', data: { n: 1 } }).then((answer) => {
      isDone = true;
      return answer;
    });
    await until(() => api.queue.appends === 1);
    expect(isDone).toBe(false);
    store();
    const { status, json } = await pending;
    expect([status, json]).toEqual([202, { id: expect.stringMatching(/^msg_[\w-]{22}$/), duplicate: false, endpoints: 1 }]);
    expect(api.queue.events.get(json.id)?.targets).toEqual([{ endpoint: 'acme' }]);
    expect(api.reported.accepted).toEqual([['stored', 1]]);
  });

  test('sends the data byte for byte as it was posted, in the envelope', async () => {
    await start();
    const data = '{"amount": 12345678901234567890.10, "é\\u00e9":"\\/",\n "__proto__":{"a":1e400}}';
    await post(`{"data":${data} , "id":"in_1","created":1700000000.5,"type":"user.created"}`);
    expect(api.queue.events.get('in_1')?.body.toString()).toBe(
      `{"type":"user.created","id":"in_1","created":1700000000.5,"data":${data}}`,
    );
  });

  test('fills in the current second, and keeps tenant and trace context', async () => {
    await start();
    await post({ type: 'a', data: {}, id: 'x', tenant: 'tenant:1' }, { traceparent: TRACEPARENT, tracestate: 'v=1' });
    const event = api.queue.events.get('x');
    const now = Date.now() / 1_000;
    expect(event).toMatchObject({ type: 'a', tenant: 'tenant:1' });
    expect(Math.abs(JSON.parse(event?.body.toString() ?? '').created - now)).toBeLessThan(5);
    expect(JSON.parse(event?.metadata ?? '')).toEqual({ traceparent: TRACEPARENT, tracestate: 'v=1' });
    await post({ type: 'a', data: {}, id: 'y' }, { traceparent: 'nonsense', tracestate: 'v=1' });
    expect(api.queue.events.get('y')?.metadata).toBe('{}');
  });

  test('changes nothing if the event was accepted before', async () => {
    await start();
    await post({ type: 'invoice.paid', data: { n: 1 }, id: 'x' });
    const { status, json } = await post({ type: 'invoice.paid', data: { n: 1 }, id: 'x' });
    expect([status, json]).toEqual([202, { id: 'x', duplicate: true, endpoints: 0 }]);
    expect(api.reported.accepted).toEqual([
      ['stored', 1],
      ['duplicate', 1],
    ]);
  });

  test.each([
    ['type', { type: 'invoice.void' }],
    ['data', { data: { n: 2 } }],
    ['tenant', { tenant: 't' }],
    ['time of creation', { created: 7 }],
  ])('rejects another %s for the same ID with 409', async (_, over) => {
    await start();
    const event = { type: 'invoice.paid', data: { n: 1 }, id: 'x' };
    await post(event);
    const { status, json } = await post({ ...event, ...over });
    expect([status, json.code, json.field]).toEqual([409, 'conflict', 'id']);
    expect(json.detail).toBe('another event with the ID x is stored, with other content; nothing was changed');
    expect(api.queue.events.get('x')?.type).toBe('invoice.paid');
    expect([api.reported.accepted, api.reported.rejected]).toEqual([[['stored', 1]], ['conflict']]);
  });

  test('reports events that no endpoint selects', async () => {
    await start();
    await post({ type: 'invoice.paid', data: {} });
    await post({ type: 'other', data: {}, id: 'x' });
    await post({ type: 'other', data: {}, id: 'x' });
    await batch([
      { type: 'a', data: {} },
      { type: 'b', data: {} },
      { type: 'invoice.paid', data: {} },
    ]);
    expect(api.reported.unrouted).toEqual([
      ['other', 1],
      ['a', 2],
    ]);
  });

  test.each([
    ['type', { data: {} }, 'type'],
    ['an empty type', { type: '', data: {} }, 'type'],
    ['a type with an empty segment', { type: 'a..b', data: {} }, 'type'],
    ['a type that is too long', { type: 'a'.repeat(129), data: {} }, 'type'],
    ['a pattern as the type', { type: 'a.*', data: {} }, 'type'],
    ['no data', { type: 'a' }, 'data'],
    ['a list as data', { type: 'a', data: [] }, 'data'],
    ['null as data', { type: 'a', data: null }, 'data'],
    ['text as data', { type: 'a', data: '{}' }, 'data'],
    ['an ID with a dot', { type: 'a', data: {}, id: 'a.b' }, 'id'],
    ['an ID with a tilde', { type: 'a', data: {}, id: 'a~b' }, 'id'],
    ['an ID that is too long', { type: 'a', data: {}, id: 'a'.repeat(129) }, 'id'],
    ['a number as the ID', { type: 'a', data: {}, id: 7 }, 'id'],
    ['a time as text', { type: 'a', data: {}, created: '2026-01-01T00:00:00Z' }, 'created'],
    ['a negative time', { type: 'a', data: {}, created: -1 }, 'created'],
    ['milliseconds instead of seconds', { type: 'a', data: {}, created: 1_800_000_000_000 }, 'created'],
    ['an invalid tenant', { type: 'a', data: {}, tenant: 'a b' }, 'tenant'],
    ['an unknown member', { type: 'a', data: {}, tennant: 'a' }, 'tennant'],
    ['a list', [], ''],
    ['text', '"a"', ''],
  ])('rejects %s with 422 that names the field', async (_, body, field) => {
    await start();
    const { status, json, headers } = await post(body);
    expect([status, json.code, json.field, headers['content-type']]).toEqual([
      422,
      'invalid_request',
      field,
      'application/problem+json',
    ]);
    expect(json.errors[0]).toEqual({ field, message: expect.stringMatching(/\w/) });
    expect([api.queue.events.size, api.reported.rejected]).toEqual([0, ['invalid']]);
  });

  test('suggests the member that was meant', async () => {
    await start();
    expect((await post({ type: 'a', data: {}, tennant: 'a' })).json.detail).toBe('tennant: unknown member; did you mean tenant?');
  });

  test('accepts an event of exactly provider.maxEventSize, and rejects one byte more with 413', async () => {
    await start({ settings: { maxEventSize: 1_000, rotationGrace: () => 1 } });
    const envelope = Buffer.byteLength('{"type":"a","id":"x","created":1,"data":{"a":""}}');
    const event = (bytes: number, id: string) => post({ type: 'a', data: { a: 'x'.repeat(bytes - envelope) }, id, created: 1 });
    expect((await event(1_000, 'x')).status).toBe(202);
    const { status, json } = await event(1_001, 'y');
    expect([status, json.code, json.field]).toEqual([413, 'too_large', 'data']);
    expect(json.detail).toBe('the event has 1001 bytes; provider.maxEventSize is 1000');
    const huge = await event(1_000_000, 'z');
    expect([huge.status, huge.json.code]).toEqual([413, 'too_large']);
    expect(api.reported.rejected).toEqual(['too_large', 'too_large']);
    expect([...api.queue.events.keys()]).toEqual(['x']);
  });

  test.each([
    ['queue_full', 'queue_full', '30'],
    ['queue_unavailable', 'queue_unavailable', '5'],
  ])('responds 503 with Retry-After on %s', async (code, problem, retryAfter) => {
    await start();
    api.queue.failure = new SidegateError('system', code, 'a secret detail');
    const { status, json, headers, text } = await post({ type: 'a', data: {} });
    expect([status, json.code, headers['retry-after']]).toEqual([503, problem, retryAfter]);
    // The text of a full queue names the endpoint or the tenant.
    expect(text.includes('a secret detail')).toBe(code === 'queue_full');
    expect([api.reported.rejected, api.reported.errors]).toEqual([[problem], []]);
  });

  test('responds 422 to a value that the store cannot hold, and reports no outage', async () => {
    await start();
    api.queue.failure = new SidegateError('user', 'unstorable', 'a secret detail');
    const { status, json, text } = await post({ type: 'a', data: {} });
    expect([status, json.code]).toEqual([422, 'invalid_request']);
    expect(text).not.toContain('a secret detail');
    expect([api.reported.rejected, api.reported.errors]).toEqual([['invalid'], []]);
  });

  test('responds 500 without details on a bug, and reports it', async () => {
    await start();
    api.queue.failure = new TypeError('a secret detail');
    const { status, json, text } = await post({ type: 'a', data: {} });
    expect([status, json.code]).toEqual([500, 'internal']);
    expect(text).not.toContain('a secret detail');
    expect(api.reported.errors).toEqual([api.queue.failure]);
  });
});

describe('accepting a batch', () => {
  test('stores all events, and says which were duplicates', async () => {
    await start();
    await post({ type: 'a', data: {}, id: 'e1' });
    const { status, json } = await batch([
      { type: 'invoice.paid', data: { n: 1.0 }, id: 'e0' },
      { type: 'a', data: {}, id: 'e1' },
    ]);
    expect(status).toBe(202);
    expect(json).toEqual({
      events: [
        { id: 'e0', duplicate: false, endpoints: 1 },
        { id: 'e1', duplicate: true, endpoints: 0 },
      ],
    });
  });

  test('rejects IDs of other events with 409, and stores the rest', async () => {
    await start();
    await post({ type: 'a', data: {}, id: 'e1' });
    const events = Array.from({ length: 60 }, (_, i) => ({ type: 'a', data: { i }, id: `e${i}` }));
    await batch(events.slice(30));
    const { status, json } = await batch(events.map((event, i) => (i >= 30 ? { ...event, data: {} } : event)));
    expect([status, json.code, json.field]).toEqual([409, 'conflict', 'events[1].id']);
    expect(json.errors).toHaveLength(31);
    expect(json.detail).toBe(
      '31 of these IDs are stored already, with other content; all other events of the request are stored',
    );
    expect(api.queue.events.size).toBe(60);
  });

  test('keeps the bytes of each event apart', async () => {
    await start();
    await api.request(
      'POST',
      '/v1/events:batch',
      '{"events":[{"id":"a","type":"t","data":{"x":1.0}},\n {"data":{"y": "]},"},"type":"t","id":"b"}]}',
    );
    expect(JSON.parse(api.queue.events.get('b')?.body.toString() ?? '').data).toEqual({ y: ']},' });
    expect(api.queue.events.get('a')?.body.toString()).toContain('"data":{"x":1.0}}');
  });

  test.each([
    [
      'one invalid event',
      [
        { type: 'a', data: {} },
        { type: 'a b', data: {} },
      ],
      'events[1].type',
    ],
    [
      'a repeated ID',
      [
        { type: 'a', data: {}, id: 'x' },
        { type: 'a', data: {} },
        { type: 'b', data: {}, id: 'x' },
      ],
      'events[2].id',
    ],
    ['no events', [], 'events'],
    ['too many events', Array.from({ length: 101 }, () => ({ type: 'a', data: {} })), 'events'],
    ['an unknown member', [{ type: 'a', data: {}, x: 1 }], 'events[0].x'],
  ])('stores nothing for %s', async (_, events, field) => {
    await start();
    const { status, json } = await batch(events);
    expect([status, json.field]).toEqual([422, field]);
    expect(api.queue.events.size).toBe(0);
  });

  test('stores nothing if one event is too large, or the queue has no room for all', async () => {
    await start({ settings: { maxEventSize: 1_000, rotationGrace: () => 1 } });
    const large = await batch([
      { type: 'a', data: {} },
      { type: 'a', data: { a: 'x'.repeat(1_000) } },
    ]);
    expect([large.status, large.json.field]).toEqual([413, 'events[1].data']);
    api.queue.maxEvents = 1;
    expect(
      (
        await batch([
          { type: 'a', data: {} },
          { type: 'a', data: {} },
        ])
      ).status,
    ).toBe(503);
    expect(api.queue.events.size).toBe(0);
  });
});

test('a batch with too many deliveries is rejected, a single event never', async () => {
  await start();
  api.registry.replaceConfig(
    Array.from({ length: 2_000 }, (_, i) => toConfigEndpoint(`e${i}`)),
    DEFAULTS,
  );
  const toEvents = (length: number) => Array.from({ length }, () => ({ type: 'a', data: {} }));
  const { status, json } = await batch(toEvents(6));
  expect([status, json.code, api.queue.events.size]).toEqual([413, 'too_large', 0]);
  expect((await batch(toEvents(5))).status).toBe(202);
  expect((await post({ type: 'a', data: {} })).json.endpoints).toBe(2_000);
});

test('shows a stored event with the bytes that are sent', async () => {
  await start();
  await post({ type: 'a', data: { n: 1 }, id: 'x:1', tenant: 'c', created: 5 });
  const { status, json } = await api.request('GET', `/v1/events/${encodeURIComponent('x:1')}`);
  expect([status, json]).toEqual([
    200,
    {
      id: 'x:1',
      type: 'a',
      tenant: 'c',
      createdAt: expect.any(String),
      erased: false,
      body: '{"type":"a","id":"x:1","created":5,"data":{"n":1}}',
    },
  ]);
  await api.queue.append([{ id: 'raw', type: 'a', createdAt: 0, body: Buffer.from([0xff]), metadata: '', targets: [] }]);
  expect((await api.request('GET', '/v1/events/raw')).json.bodyBase64).toBe('/w==');
  for (const path of ['/v1/events/none', '/v1/events/a.b', '/v1/events/%00', '/v1/events/%ff', '/v1/events/'])
    expect([path, [400, 404].includes((await api.request('GET', path)).status)]).toEqual([path, true]);
});

describe('the list of events', () => {
  test('comes in pages, newest first, stable while new ones arrive', async () => {
    await start();
    for (let i = 0; i < 5; i++) await post({ type: 'invoice.paid', data: {}, id: `e${i}` });
    const first = await api.request('GET', '/v1/events?limit=3');
    expect(first.json).toMatchObject({ done: false, iterator: expect.any(String) });
    await post({ type: 'invoice.paid', data: {}, id: 'new' });
    const second = await api.request('GET', `/v1/events?limit=3&iterator=${encodeURIComponent(first.json.iterator)}`);
    expect(second.json).toMatchObject({ done: true, iterator: null });
    expect([...first.json.data, ...second.json.data].map(({ id }) => id)).toEqual(['e4', 'e3', 'e2', 'e1', 'e0']);
    const shown = { id: 'e4', type: 'invoice.paid', createdAt: expect.any(String), deliveries: 1, waiting: 1, failed: 0 };
    expect(first.json.data[0]).toEqual(shown);
  });

  test.each([
    ['unrouted=true', ['c', 'b']],
    ['tenant=t', ['b']],
    ['type=invoice.paid', ['b', 'a']],
    ['from=2100-01-01T00:00:00Z', []],
    ['to=2100-01-01T00:00:00Z', ['c', 'b', 'a']],
  ])('is filtered by %s', async (query, expected) => {
    await start();
    await post({ type: 'invoice.paid', data: {}, id: 'a' });
    await post({ type: 'invoice.paid', data: {}, id: 'b', tenant: 't' });
    await post({ type: 'other', data: {}, id: 'c' });
    const { json } = await api.request('GET', `/v1/events?${query}`);
    expect(json.data.map(({ id }: { id: string }) => id)).toEqual(expected);
  });

  test.each([
    ['unrouted=false', 'unrouted'],
    ['unrouted', 'unrouted'],
    ['tenant=a%20b', 'tenant'],
    ['iterator=nonsense', 'iterator'],
    [`iterator=${'9'.repeat(2_000)}`, 'iterator'],
    ['limit=251', 'limit'],
    ['state=lost', 'state[0]'],
  ])('rejects %s instead of listing everything', async (query, field) => {
    await start();
    expect((await api.request('GET', `/v1/events?${query}`)).json).toMatchObject({ status: 422, field });
  });
});

describe('erasing payloads', () => {
  test('removes the body of an event, whose ID stays in use', async () => {
    await start();
    const event = { type: 'invoice.paid', data: { secret: 1 }, id: 'x' };
    await post(event);
    for (let i = 0; i < 2; i++) expect((await api.request('DELETE', '/v1/events/x/payload')).status).toBe(204);
    const { json, text } = await api.request('GET', '/v1/events/x');
    expect([json.erased, json.body, text.includes('secret')]).toEqual([true, undefined, false]);
    expect((await post(event)).json).toEqual({ id: 'x', duplicate: true, endpoints: 0 });
    expect((await api.request('GET', '/v1/deliveries?event=x')).json.data).toMatchObject([{ state: 'skipped' }]);
    expect((await api.request('DELETE', '/v1/events/none/payload')).status).toBe(404);
  });

  test('removes the bodies of all events of a tenant, and of no other', async () => {
    await start();
    for (const [id, tenant] of [
      ['a', 't'],
      ['b', 't'],
      ['c', 'u'],
      ['d', undefined],
    ] as const)
      await post({ type: 'a', data: {}, id, ...(tenant !== undefined && { tenant }) });
    expect((await api.request('DELETE', '/v1/tenants/t/payloads')).json).toEqual({ erased: 2 });
    expect((await api.request('DELETE', '/v1/tenants/t/payloads')).json).toEqual({ erased: 0 });
    const erased = await Promise.all(['a', 'b', 'c', 'd'].map((id) => api.request('GET', `/v1/events/${id}`)));
    expect(erased.map(({ json }) => json.erased)).toEqual([true, true, false, false]);
    expect((await api.request('DELETE', '/v1/tenants/a%20b/payloads')).status).toBe(404);
    expect((await api.request('DELETE', '/v1/tenants//payloads')).status).toBe(404);
  });
});
