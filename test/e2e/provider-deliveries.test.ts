import { request as openRequest } from 'node:http';
import { connect } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { SidegateError } from '../../src/core/errors.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { until } from '../support/gate.ts';
import { startApi, type TestApi } from '../support/provider/api.ts';
import { toConfigEndpoint } from '../support/provider/endpoints.ts';

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

describe('repeating one delivery', () => {
  test('makes it due again and wakes its endpoint', async () => {
    await append(1);
    kill('e0');
    const { status, json } = await api.request('POST', '/v1/deliveries/e0~acme/replay');
    expect([status, json]).toEqual([202, { id: 'e0~acme', replayed: true }]);
    expect(api.queue.woken).toEqual(['acme']);
    expect((await api.request('POST', '/v1/deliveries/e0~acme/replay')).json).toEqual({ id: 'e0~acme', replayed: false });
  });

  test('also sends an event to an endpoint that did not select it', async () => {
    await append(1, 'other');
    expect((await api.request('POST', '/v1/deliveries/e0~acme/replay')).json.replayed).toBe(true);
  });

  test('is rejected for an unknown event or endpoint, and for a disabled endpoint', async () => {
    await append(1);
    expect((await api.request('POST', '/v1/deliveries/none~acme/replay')).status).toBe(404);
    expect((await api.request('POST', '/v1/deliveries/e0~none/replay')).status).toBe(404);
    await api.request('POST', '/v1/endpoints/acme/disable');
    expect((await api.request('POST', '/v1/deliveries/e0~acme/replay')).status).toBe(409);
  });
});

test('lists, shows and repeats deliveries of an inbox, which is no endpoint of the API', async () => {
  api.stop();
  api = await startApi({ receivers: { get: (id) => (id === 'inbox:billing.eu' ? toConfigEndpoint(id) : undefined) } });
  await append(1, 'inbox:billing.eu');
  api.queue.settle('e0', 'inbox:billing.eu', { state: 'dead', attempts: 3 });
  const { json } = await api.request('GET', '/v1/deliveries?endpoint=inbox%3Abilling.eu');
  expect(json.data[0].id).toBe('e0~inbox:billing.eu');
  const path = '/v1/deliveries/e0%7Einbox%3Abilling.eu';
  expect((await api.request('GET', path)).json.state).toBe('dead');
  expect((await api.request('POST', `${path}/replay`)).json.replayed).toBe(true);
  expect((await api.request('POST', '/v1/endpoints/inbox:billing.eu/disable')).status).toBe(404);
});

describe('repeating many deliveries', () => {
  const replay = (body: object) => api.request('POST', '/v1/replays', body);

  test('reports its progress line by line, and ends with done', async () => {
    for (const id of await append(5)) kill(id);
    const { status, headers, text } = await replay({ endpoint: 'acme' });
    expect([status, headers['content-type']]).toEqual([200, 'application/x-ndjson']);
    expect(toLines(text)).toEqual([
      { replayed: 2, total: 5, done: false },
      { replayed: 4, total: 5, done: false },
      { replayed: 5, total: 5, done: false },
      { replayed: 5, total: 5, done: true },
    ]);
    expect(api.queue.woken).toEqual(['acme']);
    expect(toLines((await replay({ endpoint: 'acme' })).text).at(-1)).toEqual({ replayed: 0, total: 0, done: true });
  });

  test('selects dead and skipped ones by default, others on request', async () => {
    await append(3);
    kill('e0');
    api.queue.settle('e1', 'acme', { state: 'delivered', attempts: 1 });
    expect(toLines((await replay({ from: '2027-01-15T08:00:00Z' })).text).at(-1)).toMatchObject({ replayed: 1 });
    expect(toLines((await replay({ event: 'e1', states: ['delivered'] })).text).at(-1)).toMatchObject({ replayed: 1 });
  });

  test.each([
    [{}, ''],
    [{ states: ['dead'] }, ''],
    [{ endpoint: 'acme', states: ['waiting'] }, 'states[0]'],
    [{ endpoint: 'acme', states: [] }, 'states'],
    [{ endpoint: 'acme', state: 'dead' }, 'state'],
    [{ from: 'today' }, 'from'],
  ])('rejects %j: a mistake must not repeat everything', async (body, field) => {
    for (const id of await append(1)) kill(id);
    expect((await replay(body)).json).toMatchObject({ status: 422, field });
  });

  test('says in its last line that the store failed, without done', async () => {
    for (const id of await append(5)) kill(id);
    const pending = replay({ endpoint: 'acme' });
    api.queue.failure = new SidegateError('system', 'queue_unavailable', 'the store is down');
    const last = toLines((await pending).text).at(-1);
    expect(last).toMatchObject({ done: false, error: 'the store is down' });
    expect(api.reported.errors).toEqual([]);
  });

  test('disconnects a client that does not read', async () => {
    const clock = new FakeClock();
    api.stop();
    api = await startApi({ clock });
    api.queue.replayStep = 1;
    const lines = 200_000;
    api.queue.replay = async function* () {
      for (let i = 1; i <= lines; i++) yield { replayed: i, total: lines };
    };
    const socket = connect(api.port, '127.0.0.1');
    socket.on('error', () => undefined);
    const body = '{"endpoint":"acme"}';
    socket.write(
      `POST /v1/replays HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
    socket.pause();
    await until(async () => {
      await clock.advance(31_000);
      return api.reported.requests.length > 0;
    });
    socket.destroy();
  });

  test('stops when the client disconnects, and at most 4 run at once', async () => {
    api.queue.replayStep = 1;
    for (const id of await append(2_000)) kill(id);
    const open = () =>
      new Promise<{ destroy(): void }>((resolve, reject) => {
        const outgoing = openRequest({
          port: api.port,
          method: 'POST',
          path: '/v1/replays',
          headers: { 'Content-Type': 'application/json' },
        });
        outgoing.on('response', (incoming) =>
          incoming.once('data', () => {
            incoming.pause();
            resolve(outgoing);
          }),
        );
        outgoing.on('error', reject);
        outgoing.end('{"endpoint":"acme"}');
      });
    const running = await Promise.all(Array.from({ length: 4 }, open));
    const { status, headers } = await replay({ endpoint: 'acme' });
    expect([status, headers['retry-after']]).toEqual([503, '1']);
    for (const each of running) each.destroy();
    await until(async () => (await replay({ event: 'e0' })).status === 200);
    const { json } = await api.request('GET', '/v1/deliveries?state=dead&limit=250');
    expect(json.data.length).toBeGreaterThan(0);
  });
});
