import { afterEach, expect, test } from 'vitest';
import type { DeliveryQueue } from '../../src/provider/queue/delivery-queue.ts';
import { startApiOver, type TestApi } from '../support/provider/api.ts';
import { readOpenapi } from '../support/provider/openapi.ts';
import { createSqliteQueue, makeQueueFolder } from '../support/queue/sqlite-store.ts';

const stops: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

function useFile(): string {
  const { path, remove } = makeQueueFolder();
  stops.push(remove);
  return path;
}

interface Running extends TestApi<DeliveryQueue> {
  /** Stops the API and closes the queue. */
  end(): Promise<void>;
}

async function start(path: string, maxEvents = 1_000): Promise<Running> {
  const queue = createSqliteQueue(path, { maxEvents });
  await queue.open();
  const api = await startApiOver(queue);
  let isEnded = false;
  const end = async (): Promise<void> => {
    if (isEnded) return;
    isEnded = true;
    api.stop();
    await queue.close();
  };
  stops.push(end);
  return { ...api, end };
}

test('keeps events, deliveries, endpoints with their secrets, and the state of config endpoints over a restart', async () => {
  const path = useFile();
  const first = await start(path);
  const { json: created } = await first.request('POST', '/v1/endpoints', { id: 'e', url: 'https://a.example', events: ['a.*'] });
  await first.request('POST', '/v1/endpoints/e/rotate-secret');
  await first.request('POST', '/v1/endpoints/acme/disable');
  const data = '{"n": 12345678901234567890.0}';
  const event = `{"type":"a.b","id":"x","data":${data}}`;
  await first.request('POST', '/v1/events', event);
  await first.request('POST', '/v1/events', { type: 'invoice.paid', id: 'y', data: {} });
  await first.end();
  const second = await start(path);
  const keys = second.registry.get('e')?.keys.map(({ secret }) => `whsec_${secret.expose().toString('base64')}`);
  expect(keys?.[1]).toBe(created.secret);
  expect(second.registry.get('acme')?.disabled?.reason).toBe('manual');
  expect((await second.request('GET', '/v1/events/x')).json.body).toContain(`"data":${data}}`);
  expect((await second.request('GET', '/v1/deliveries/y~acme')).json.state).toBe('skipped');
  expect((await second.request('POST', '/v1/events', event)).json.duplicate).toBe(true);
  await second.request('POST', '/v1/endpoints/acme/enable');
  const { text } = await second.request('POST', '/v1/repairs', { action: 'retry', endpoint: 'acme' });
  expect(JSON.parse(text.trimEnd().split('\n').at(-1) ?? '')).toEqual({ changed: 1, total: 1, excluded: 0, done: true });
  expect((await second.request('GET', '/v1/deliveries?state=waiting')).json.data).toHaveLength(2);
});

test('stores one event of 200 concurrent requests with the same ID, and all of 200 with different ones', async () => {
  const api = await start(useFile());
  const post = (id: string) => api.request('POST', '/v1/events', { type: 'invoice.paid', id, data: {} });
  const same = await Promise.all(Array.from({ length: 200 }, () => post('same')));
  expect(same.filter(({ json }) => json.duplicate === false)).toHaveLength(1);
  const different = await Promise.all(Array.from({ length: 200 }, (_, i) => post(`e${i}`)));
  expect(different.every(({ status, json }) => status === 202 && json.duplicate === false)).toBe(true);
  const ids: string[] = [];
  for (let iterator: string | null = ''; iterator !== null; ) {
    const query = iterator === '' ? '' : `&iterator=${encodeURIComponent(iterator)}`;
    const { json } = await api.request('GET', `/v1/deliveries?limit=64${query}`);
    ids.push(...json.data.map(({ event }: { event: string }) => event));
    iterator = json.iterator;
  }
  expect([ids.length, new Set(ids).size]).toEqual([201, 201]);
});

test('responds 503 at provider.queue.maxEvents, stores no part of a batch, and responds as the document says', async () => {
  const api = await start(useFile(), 3);
  const checker = await readOpenapi(api);
  const call = async (method: string, path: string, body?: unknown) => {
    const answer = await api.request(method, path, body);
    expect([path, checker.check(method, path, answer)]).toEqual([path, []]);
    return answer;
  };
  const events = (count: number) => ({
    events: Array.from({ length: count }, (_, i) => ({ type: 'invoice.paid', data: {}, id: `e${i}` })),
  });
  expect((await call('POST', '/v1/events:batch', events(4))).json.code).toBe('queue_full');
  expect((await call('GET', '/v1/deliveries')).json.data).toEqual([]);
  expect((await call('POST', '/v1/events:batch', events(3))).status).toBe(202);
  expect(
    (await call('POST', '/v1/events:batch', events(3))).json.events.every((each: { duplicate: boolean }) => each.duplicate),
  ).toBe(true);
  expect((await call('POST', '/v1/events', { type: 'invoice.paid', data: {} })).headers['retry-after']).toBe('30');
  expect((await call('GET', '/v1/deliveries?iterator=nonsense')).status).toBe(422);
  expect((await call('GET', '/v1/deliveries/e0~acme')).json.history).toEqual([]);
  expect((await call('POST', '/v1/deliveries/e0~acme/retry')).json).toEqual({ id: 'e0~acme' });
  expect((await call('GET', '/v1/endpoints/acme/stats')).json.waiting).toBe(3);
});
