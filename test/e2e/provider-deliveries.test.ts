import { request as openRequest } from 'node:http';
import { connect } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { SidegateError } from '../../src/core/errors.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { until } from '../support/gate.ts';
import { startApi, type TestApi } from '../support/provider/api.ts';
import { DEFAULTS, toConfigEndpoint } from '../support/provider/endpoints.ts';

const AT = 1_800_000_000_000;
const FAILED = { at: AT, duration: 12.5, status: 503, outcome: 'server_error', detail: 'HTTP 503' };

let api: TestApi;
beforeEach(async () => {
  api = await startApi();
});
afterEach(() => api.stop());

async function append(count: number, endpoint = 'acme'): Promise<string[]> {
  const ids = Array.from({ length: count }, (_, i) => `e${i}`);
  await api.queue.append(
    ids.map((id, i) => ({
      id,
      type: 'invoice.paid',
      createdAt: AT + i * 1_000,
      body: Buffer.from('{}'),
      metadata: '{}',
      targets: [{ endpoint }],
    })),
  );
  return ids;
}

const kill = (id: string): void =>
  api.queue.settle(id, 'acme', { state: 'dead', attempts: 10, settledAt: AT + 5, lastAttempt: FAILED });
const toLines = (text: string): unknown[] =>
  text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));

describe('the list of deliveries', () => {
  test('comes in pages, newest first', async () => {
    const ids = await append(5);
    const first = await api.request('GET', '/v1/deliveries?limit=3');
    expect(first.json).toMatchObject({ done: false, iterator: expect.any(String) });
    const second = await api.request('GET', `/v1/deliveries?limit=3&iterator=${encodeURIComponent(first.json.iterator)}`);
    expect(second.json).toMatchObject({ done: true, iterator: null });
    expect([...first.json.data, ...second.json.data].map(({ event }) => event)).toEqual(ids.toReversed());
    expect(first.json.data[0]).toEqual({
      id: 'e4~acme',
      event: 'e4',
      endpoint: 'acme',
      type: 'invoice.paid',
      state: 'waiting',
      createdAt: '2027-01-15T08:00:04.000Z',
      attempts: 0,
      due: '2027-01-15T08:00:04.000Z',
    });
  });

  test.each([
    ['state=dead', ['e1']],
    ['state=dead&state=waiting', ['e2', 'e1', 'e0']],
    ['event=e2', ['e2']],
    ['endpoint=other', []],
    ['type=invoice.paid&state=waiting', ['e2', 'e0']],
    ['from=2027-01-15T08:00:01Z&to=2027-01-15T08:00:02Z', ['e1']],
    ['from=2027-01-15T09:00:02%2B01:00', ['e2']],
  ])('is filtered by %s', async (query, expected) => {
    await append(3);
    kill('e1');
    const { json } = await api.request('GET', `/v1/deliveries?${query}`);
    expect(json.data.map(({ event }: { event: string }) => event)).toEqual(expected);
  });

  test.each([
    ['state=lost', 'state[0]'],
    ['stat=dead', 'stat'],
    ['from=yesterday', 'from'],
    ['event=a.b', 'event'],
    ['endpoint=', 'endpoint'],
    ['iterator=nonsense', 'iterator'],
  ])('rejects %s instead of listing everything', async (query, field) => {
    await append(1);
    expect((await api.request('GET', `/v1/deliveries?${query}`)).json).toMatchObject({ status: 422, field });
  });
});

test('shows a delivery with its attempts', async () => {
  await append(1);
  kill('e0');
  const { json } = await api.request('GET', '/v1/deliveries/e0~acme');
  const shown = { at: '2027-01-15T08:00:00.000Z', durationMs: 12.5, status: 503, outcome: 'server_error', detail: 'HTTP 503' };
  expect(json).toMatchObject({ id: 'e0~acme', state: 'dead', attempts: 10, lastAttempt: shown, history: [shown] });
  for (const path of ['e0~none', 'none~acme', 'e0', 'e0~acme~x', '~', 'e0~'])
    expect([path, (await api.request('GET', `/v1/deliveries/${path}`)).status]).toEqual([path, 404]);
});

describe('retrying one delivery', () => {
  test('makes it due now, also if it waits', async () => {
    await append(1);
    kill('e0');
    const { status, json } = await api.request('POST', '/v1/deliveries/e0~acme/retry');
    expect([status, json]).toEqual([202, { id: 'e0~acme' }]);
    api.queue.settle('e0', 'acme', { state: 'waiting', attempts: 1, due: Date.now() + 3_600_000 });
    expect((await api.request('POST', '/v1/deliveries/e0~acme/retry')).status).toBe(202);
    const { due } = (await api.request('GET', '/v1/deliveries/e0~acme')).json;
    expect(Date.parse(due)).toBeLessThanOrEqual(Date.now());
    expect((await api.request('POST', '/v1/deliveries/e0~acme/replay')).status).toBe(404);
  });

  test('also sends an event to an endpoint that did not select it', async () => {
    await append(1, 'other');
    expect((await api.request('POST', '/v1/deliveries/e0~acme/retry')).status).toBe(202);
    expect((await api.request('GET', '/v1/deliveries/e0~acme')).json.state).toBe('waiting');
  });

  test.each([
    ['another tenant', 't1', { tenant: 't2' }, 'the event has the tenant t1 and the endpoint the tenant t2: '],
    ['no tenant', 't1', {}, 'the event has the tenant t1 and the endpoint no tenant: '],
    ['a tenant, if the event has none,', undefined, { tenant: 't2' }, 'the event has no tenant and the endpoint the tenant t2: '],
  ])('is rejected with 409 for an endpoint of %s', async (_, tenant, over, text) => {
    api.registry.replaceConfig([toConfigEndpoint('other', over)], DEFAULTS);
    await api.request('POST', '/v1/events', { id: 'x', type: 'a', data: {}, ...(tenant !== undefined && { tenant }) });
    const { status, json } = await api.request('POST', '/v1/deliveries/x~other/retry');
    const rule = 'an event can only go to endpoints of its tenant and to those for all tenants';
    expect([status, json.detail]).toEqual([409, text + rule]);
    expect((await api.request('GET', '/v1/deliveries?endpoint=other')).json.data).toEqual([]);
  });

  test('also sends an event of a tenant to an endpoint for all tenants', async () => {
    api.registry.replaceConfig([toConfigEndpoint('every', { allTenants: true, events: ['b'] })], DEFAULTS);
    await api.request('POST', '/v1/events', { id: 'x', type: 'a', data: {}, tenant: 't1' });
    expect((await api.request('POST', '/v1/deliveries/x~every/retry')).status).toBe(202);
    expect((await api.request('GET', '/v1/deliveries?tenant=t1')).json.data).toMatchObject([{ id: 'x~every', tenant: 't1' }]);
    expect((await api.request('GET', '/v1/deliveries?tenant=t2')).json.data).toEqual([]);
    expect((await api.request('GET', '/v1/deliveries?tenant=a%20b')).status).toBe(422);
  });

  test('is rejected for an unknown event or endpoint, an erased event, and a disabled endpoint', async () => {
    await append(1);
    expect((await api.request('POST', '/v1/deliveries/none~acme/retry')).status).toBe(404);
    expect((await api.request('POST', '/v1/deliveries/e0~none/retry')).status).toBe(404);
    expect((await api.request('DELETE', '/v1/events/e0/payload')).status).toBe(204);
    const erased = await api.request('POST', '/v1/deliveries/e0~acme/retry');
    expect([erased.status, erased.json.detail]).toEqual([409, expect.stringContaining('erased')]);
    await api.request('POST', '/v1/endpoints/acme/disable');
    expect((await api.request('POST', '/v1/deliveries/e0~acme/retry')).json.detail).toContain('enable it first');
  });
});

test('lists, shows and retries deliveries of an inbox, which is no endpoint of the API', async () => {
  api.stop();
  const app = toConfigEndpoint('inbox:billing.eu');
  api = await startApi({ receivers: { get: (id) => (id === app.id ? app : undefined), list: () => [app] } });
  await append(1, 'inbox:billing.eu');
  api.queue.settle('e0', 'inbox:billing.eu', { state: 'dead', attempts: 3 });
  const { json } = await api.request('GET', '/v1/deliveries?endpoint=inbox%3Abilling.eu');
  expect(json.data[0].id).toBe('e0~inbox:billing.eu');
  const path = '/v1/deliveries/e0%7Einbox%3Abilling.eu';
  expect((await api.request('GET', path)).json.state).toBe('dead');
  expect((await api.request('POST', `${path}/retry`)).status).toBe(202);
  expect((await api.request('POST', '/v1/endpoints/inbox:billing.eu/disable')).status).toBe(404);
  const recovered = await api.request('POST', '/v1/repairs', {
    action: 'recover',
    endpoint: app.id,
    from: '2020-01-01T00:00:00Z',
  });
  expect(recovered.status).toBe(409);
});

describe('repairing many deliveries', () => {
  const repair = (body: object) => api.request('POST', '/v1/repairs', body);
  const retry = (body: object) => repair({ action: 'retry', ...body });
  const last = async (body: object): Promise<unknown> => toLines((await repair(body)).text).at(-1);

  test('reports its progress line by line, and ends with done', async () => {
    for (const id of await append(5)) kill(id);
    const { status, headers, text } = await retry({ endpoint: 'acme' });
    expect([status, headers['content-type']]).toEqual([200, 'application/x-ndjson']);
    expect(toLines(text)).toEqual([
      { changed: 2, total: 5, excluded: 0, done: false },
      { changed: 4, total: 5, excluded: 0, done: false },
      { changed: 5, total: 5, excluded: 0, done: false },
      { changed: 5, total: 5, excluded: 0, done: true },
    ]);
    expect(await last({ action: 'retry', endpoint: 'acme' })).toEqual({ changed: 0, total: 0, excluded: 0, done: true });
  });

  test('selects states by the action, others on request', async () => {
    await append(4);
    kill('e0');
    api.queue.settle('e1', 'acme', { state: 'delivered', attempts: 1 });
    const since = { from: '2027-01-15T08:00:00Z' };
    expect(await last({ action: 'retry', ...since })).toMatchObject({ changed: 1 });
    expect(await last({ action: 'retry', event: 'e1', states: ['delivered'] })).toMatchObject({ changed: 1 });
    expect(await last({ action: 'retry', type: 'invoice.paid', states: ['waiting'] })).toMatchObject({ changed: 4 });
    expect(await last({ action: 'purge', ...since })).toEqual({ changed: 0, total: 0, done: true });
    expect(await last({ action: 'cancel', ...since, to: '2027-01-15T08:00:03Z' })).toEqual({ changed: 3, total: 3, done: true });
    expect(await last({ action: 'purge', endpoint: 'acme' })).toEqual({ changed: 3, total: 3, done: true });
    expect((await api.request('GET', '/v1/deliveries')).json.data).toMatchObject([{ id: 'e3~acme', state: 'waiting' }]);
  });

  test('only counts in a dry run', async () => {
    for (const id of await append(5)) kill(id);
    expect(toLines((await retry({ endpoint: 'acme', dryRun: true })).text)).toEqual([
      { changed: 0, total: 5, excluded: 0, done: false },
      { changed: 0, total: 5, excluded: 0, done: true },
    ]);
    expect(await last({ action: 'purge', endpoint: 'acme', dryRun: true })).toEqual({ changed: 0, total: 5, done: true });
    expect((await api.request('GET', '/v1/deliveries?state=dead')).json.data).toHaveLength(5);
  });

  test('retries nothing for an endpoint that is disabled, unknown, or of another tenant, and says so', async () => {
    const make = (id: string, over: object) => api.request('POST', '/v1/endpoints', { id, url: 'https://a.example', ...over });
    for (const [id, over] of [
      ['off', {}],
      ['t1', { tenant: 't1' }],
      ['all', { allTenants: true }],
      ['none', {}],
    ] as const)
      await make(id, over);
    const event = { type: 'a', createdAt: AT, body: Buffer.from('{}'), metadata: '{}' };
    const to = (...ids: string[]) => ids.map((endpoint) => ({ endpoint }));
    const all = ['off', 't1', 'all', 'none', 'gone'];
    await api.queue.append([
      { ...event, id: 'a', tenant: 't1', targets: to(...all) },
      { ...event, id: 'b', targets: to(...all) },
    ]);
    await api.request('POST', '/v1/endpoints/off/disable');
    const settled = { state: 'dead', attempts: 1 } as const;
    for (const endpoint of all) for (const id of ['a', 'b']) api.queue.settle(id, endpoint, settled);
    expect((await retry({ endpoint: 'off' })).json).toMatchObject({ status: 409, detail: expect.stringContaining('enable it') });
    expect((await retry({ endpoint: 'gone' })).status).toBe(404);
    expect(await last({ action: 'retry', endpoint: 't1', dryRun: true })).toMatchObject({ total: 1, excluded: 1 });
    expect(await last({ action: 'retry', from: '2020-01-01T00:00:00Z' })).toEqual({
      changed: 4,
      total: 4,
      excluded: 6,
      done: true,
    });
    const { json } = await api.request('GET', '/v1/deliveries?state=waiting');
    expect(json.data.map(({ id }: { id: string }) => id).toSorted()).toEqual(['a~all', 'a~t1', 'b~all', 'b~none']);
    expect(await last({ action: 'purge', endpoint: 'gone' })).toMatchObject({ changed: 2 });
    expect(await last({ action: 'purge', endpoint: 'off' })).toMatchObject({ changed: 2 });
  });

  test.each([
    [{}, 'action'],
    [{ action: 'replay', endpoint: 'acme' }, 'action'],
    [{ action: 'retry' }, ''],
    [{ action: 'purge', states: ['dead'] }, ''],
    [{ action: 'cancel', dryRun: true }, ''],
    [{ action: 'cancel', endpoint: 'acme', states: ['waiting', 'dead'] }, 'states[1]'],
    [{ action: 'retry', endpoint: 'acme', states: [] }, 'states'],
    [{ action: 'retry', endpoint: 'acme', states: Array(5_000).fill('dead') }, 'states'],
    [{ action: 'retry', endpoint: 'acme', state: 'dead' }, 'state'],
    [{ action: 'retry', endpoint: ['acme'] }, 'endpoint'],
    [{ action: 'retry', endpoint: 'acme', receivers: [] }, 'receivers'],
    [{ action: 'retry', from: 'today' }, 'from'],
    [{ action: 'recover' }, 'endpoint'],
    [{ action: 'recover', endpoint: 'acme' }, 'from'],
    [{ action: 'recover', endpoint: 'acme', from: '2020-01-01T00:00:00Z', event: 'e0' }, 'event'],
    [{ action: 'recover', endpoint: 'acme', from: '2020-01-01T00:00:00Z', states: ['dead'] }, 'states'],
  ])('rejects %j: a mistake must not change everything', async (body, field) => {
    for (const id of await append(1)) kill(id);
    expect((await repair(body)).json).toMatchObject({ status: 422, field });
    expect((await api.request('GET', '/v1/deliveries/e0~acme')).json.state).toBe('dead');
  });

  test('rejects a huge filter', async () => {
    expect((await repair({ action: 'retry', endpoint: 'acme', type: 'a'.repeat(70_000) })).status).toBe(413);
  });

  test('says in its last line that the store failed, without done', async () => {
    for (const id of await append(5)) kill(id);
    const pending = retry({ endpoint: 'acme' });
    api.queue.failure = new SidegateError('system', 'queue_unavailable', 'the store is down');
    const line = toLines((await pending).text).at(-1);
    expect(line).toMatchObject({ done: false, error: 'the store is down' });
    expect(api.reported.errors).toEqual([]);
  });

  test('disconnects a client that does not read', async () => {
    const clock = new FakeClock();
    api.stop();
    api = await startApi({ clock });
    const lines = 200_000;
    api.queue.repair = async function* () {
      for (let i = 1; i <= lines; i++) yield { changed: i, total: lines };
    };
    const socket = connect(api.port, '127.0.0.1');
    socket.on('error', () => undefined);
    const body = '{"action":"cancel","endpoint":"acme"}';
    socket.write(
      `POST /v1/repairs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
    socket.pause();
    await until(async () => {
      await clock.advance(31_000);
      return api.reported.requests.length > 0;
    });
    socket.destroy();
  });

  test('stops when the client disconnects, and at most 4 run at once', async () => {
    api.queue.repairStep = 1;
    for (const id of await append(2_000)) kill(id);
    const open = () =>
      new Promise<{ destroy(): void }>((resolve, reject) => {
        const outgoing = openRequest({
          port: api.port,
          method: 'POST',
          path: '/v1/repairs',
          headers: { 'Content-Type': 'application/json' },
        });
        outgoing.on('response', (incoming) =>
          incoming.once('data', () => {
            incoming.pause();
            resolve(outgoing);
          }),
        );
        outgoing.on('error', reject);
        outgoing.end('{"action":"retry","endpoint":"acme"}');
      });
    const running = await Promise.all(Array.from({ length: 4 }, open));
    const { status, headers } = await retry({ endpoint: 'acme' });
    expect([status, headers['retry-after']]).toEqual([503, '1']);
    for (const each of running) each.destroy();
    await until(async () => (await retry({ event: 'e0' })).status === 200);
    const { json } = await api.request('GET', '/v1/deliveries?state=dead&limit=250');
    expect(json.data.length).toBeGreaterThan(0);
  });
});

describe('recovering events that were never for an endpoint', () => {
  const recover = async (more: object = {}): Promise<unknown> => {
    const body = { action: 'recover', endpoint: 'late', from: '2020-01-01T00:00:00Z', ...more };
    const { status, json, text } = await api.request('POST', '/v1/repairs', body);
    return status === 200 ? toLines(text).at(-1) : [status, json.detail];
  };
  const post = (id: string, over: object = {}) =>
    api.request('POST', '/v1/events', { id, type: 'invoice.paid', data: {}, ...over });
  const create = (over: object) =>
    api.request('POST', '/v1/endpoints', { id: 'late', url: 'https://a.example', events: ['invoice.*'], ...over });

  test('creates the deliveries that its patterns and its tenant select, once', async () => {
    await post('a', { tenant: 't1' });
    await post('b', { tenant: 't2' });
    await post('c');
    await post('d', { tenant: 't1', type: 'other' });
    await post('e', { tenant: 't1' });
    await api.request('DELETE', '/v1/events/e/payload');
    await create({ tenant: 't1' });
    await post('f', { tenant: 't1' });
    expect(await recover({ dryRun: true })).toEqual({ changed: 0, total: 1, done: true });
    expect((await api.request('GET', '/v1/deliveries?endpoint=late')).json.data).toHaveLength(1);
    expect(await recover({ type: 'other' })).toEqual({ changed: 0, total: 0, done: true });
    expect(await recover({ to: '2020-01-02T00:00:00Z' })).toEqual({ changed: 0, total: 0, done: true });
    expect(await recover()).toEqual({ changed: 1, total: 1, done: true });
    expect(await recover()).toEqual({ changed: 0, total: 0, done: true });
    const { json } = await api.request('GET', '/v1/deliveries?endpoint=late&state=waiting');
    expect(json.data.map(({ event }: { event: string }) => event).toSorted()).toEqual(['a', 'f']);
  });

  test('never sends what came in by an inbox, or what sidegate itself created for others', async () => {
    await create({ allTenants: true, events: [] });
    const metadata = JSON.stringify({ inbox: { method: 'POST', path: '/', headers: [] } });
    const event = { type: 'inbox', createdAt: AT, body: Buffer.from('{}'), metadata, targets: [{ endpoint: 'inbox:a' }] };
    await api.queue.append([
      { ...event, id: 'in_1' },
      { ...event, id: 'in_2', type: 'renamed' },
    ]);
    expect((await api.request('POST', '/v1/endpoints/acme/test')).status).toBe(202);
    expect(await recover()).toEqual({ changed: 0, total: 0, done: true });
  });

  test('is rejected for an endpoint that gets no events of the app, and one that is disabled or unknown', async () => {
    expect(await recover()).toEqual([404, expect.any(String)]);
    await create({ operational: true });
    expect(await recover()).toEqual([409, expect.stringContaining('only endpoints that select events')]);
    await api.request('POST', '/v1/endpoints/late/disable');
    expect(await recover()).toEqual([409, expect.stringContaining('enable it first')]);
  });
});

test('disabling and deleting an endpoint cancels what waits for it', async () => {
  await api.request('POST', '/v1/endpoints', { id: 'one', url: 'https://a.example' });
  await append(3, 'one');
  await api.request('POST', '/v1/endpoints/one/disable');
  expect((await api.request('GET', '/v1/deliveries?endpoint=one&state=skipped')).json.data).toHaveLength(3);
  await api.request('POST', '/v1/endpoints/one/enable');
  await api.request('POST', '/v1/repairs', { action: 'retry', endpoint: 'one' });
  expect((await api.request('DELETE', '/v1/endpoints/one')).status).toBe(204);
  expect((await api.request('GET', '/v1/deliveries?endpoint=one&state=waiting')).json.data).toEqual([]);
  expect((await api.request('POST', '/v1/endpoints', { id: 'one', url: 'https://a.example' })).status).toBe(201);
});

test('a new schedule applies to what waits', async () => {
  await api.request('POST', '/v1/endpoints', { id: 'one', url: 'https://a.example' });
  await api.request('PATCH', '/v1/endpoints/one', { description: 'x' });
  expect(api.queue.rescheduled).toEqual([]);
  await api.request('PATCH', '/v1/endpoints/one', { schedule: ['1s', '2s'] });
  await api.request('PATCH', '/v1/endpoints/one', { schedule: ['1s', '2s'] });
  await api.request('PUT', '/v1/endpoints/one', { url: 'https://a.example' });
  const [first, second, third] = api.queue.rescheduled;
  expect([first, second]).toEqual([
    ['one', [1_000, 2_000]],
    ['one', [1_000, 2_000]],
  ]);
  expect(third).toEqual(['one', DEFAULTS.schedule]);
});
