/** Repairs through the API over SQLite: of what waits, concurrent ones, and those that race with deliveries. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { SidegateError } from '../../src/core/errors.ts';
import { toInboxMetadata } from '../../src/provider/events/event.ts';
import type { Delivery, DeliveryQueue, QueueBounds } from '../../src/provider/queue/delivery-queue.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { until } from '../support/gate.ts';
import { startApiOver, type TestApi } from '../support/provider/api.ts';
import { newEvent, PROVEN, settled } from '../support/queue/events.ts';
import { deliverAll, drain, holdLanes } from '../support/queue/lanes.ts';
import { makeQueueFolder, openSqliteQueue } from '../support/queue/sqlite-store.ts';

const HOUR = 3_600_000;
const FROM = '2020-01-01T00:00:00Z';
const clock = new FakeClock();
let queue: DeliveryQueue;
let api: TestApi<DeliveryQueue>;
let remove: () => void;
beforeEach(async () => {
  const folder = makeQueueFolder();
  ({ remove } = folder);
  queue = await openSqliteQueue(folder.path, { clock });
  api = await startApiOver(queue, { clock });
});
afterEach(async () => {
  api.stop();
  await queue.close();
  remove();
});

const now = (): number => clock.now();
const post = (id: string, over: object = {}) =>
  api.request('POST', '/v1/events', { id, type: 'invoice.paid', data: { customer: 'c', n: id }, ...over });
const postMany = async (count: number, prefix = 'e'): Promise<void> => {
  for (let at = 0; at < count; at += 100) {
    const events = Array.from({ length: Math.min(100, count - at) }, (_, i) => ({
      id: `${prefix}${at + i}`,
      type: 'invoice.paid',
      data: { customer: `c${i % 3}` },
    }));
    expect((await api.request('POST', '/v1/events:batch', { events })).status).toBe(202);
  }
};
const repair = async (body: object): Promise<Record<string, unknown>> => {
  const { status, text, json } = await api.request('POST', '/v1/repairs', body);
  return status === 200 ? (JSON.parse(text.trimEnd().split('\n').at(-1) ?? '') as Record<string, unknown>) : json;
};
const states = async (query = ''): Promise<string[]> => {
  const { json } = await api.request('GET', `/v1/deliveries?limit=250${query}`);
  return json.data.map(({ state }: { state: string }) => state);
};
/** Starts again with bounds. */
const replaceQueue = async (bounds: Partial<QueueBounds>): Promise<void> => {
  api.stop();
  await queue.close();
  remove();
  const folder = makeQueueFolder();
  ({ remove } = folder);
  queue = await openSqliteQueue(folder.path, { clock, ...bounds });
  api = await startApiOver(queue, { clock });
};
/** Lets every due delivery of `acme` end like this. */
const settleDue = async (toSettlement: (delivery: Delivery) => Parameters<typeof settled>[1]): Promise<number> => {
  const lanes = holdLanes(queue);
  const { lane, end } = await lanes.next('acme');
  let count = 0;
  for (;;) {
    const taken = await lane.take(100, now());
    if (taken.length === 0) break;
    await lane.settle(
      taken.map((delivery) => settled(delivery, toSettlement(delivery), now())),
      PROVEN,
    );
    count += taken.length;
  }
  end();
  await lanes.stop();
  return count;
};

describe('what waits', () => {
  test('is sent now after a retry of one delivery or of all', async () => {
    for (const id of ['a', 'b']) await post(id);
    await settleDue(() => ({ kind: 'retry', due: now() + 10 * HOUR }));
    expect((await api.request('POST', '/v1/deliveries/a~acme/retry')).status).toBe(202);
    const sent: Delivery[] = [];
    const settleOne = (delivery: Delivery) => {
      sent.push(delivery);
      return { kind: 'delivered' } as const;
    };
    expect(await settleDue(settleOne)).toBe(1);
    expect(sent).toMatchObject([{ event: 'a', tries: 1, isReplay: false }]);
    expect(await repair({ action: 'retry', endpoint: 'acme' })).toMatchObject({ changed: 0 });
    expect(await repair({ action: 'retry', endpoint: 'acme', states: ['waiting'] })).toMatchObject({ changed: 1, done: true });
    expect(await drain(queue, now)).toMatchObject([{ event: 'b' }]);
  });

  test('follows a new schedule', async () => {
    await api.request('POST', '/v1/endpoints', { id: 'one', url: 'https://a.example', schedule: ['10h', '24h'] });
    await post('x', { type: 'other' });
    const lanes = holdLanes(queue);
    const { lane, end } = await lanes.next('one');
    const [taken] = await lane.take(1, now());
    await lane.settle([settled(taken as Delivery, { kind: 'retry', due: now() + 10 * HOUR }, now())], PROVEN);
    end();
    await lanes.stop();
    await api.request('PATCH', '/v1/endpoints/one', { schedule: ['1m'] });
    const { json } = await api.request('GET', '/v1/deliveries/x~one');
    expect(Date.parse(json.due)).toBe(now() + 60_000);
  });

  test('frees its place when the endpoint is disabled, and is sent when it is enabled and retried', async () => {
    await postMany(5);
    expect((await api.request('POST', '/v1/endpoints/acme/disable')).status).toBe(200);
    expect(await queue.stats(now())).toMatchObject({ waiting: 0, events: 0, bytes: 0, skipped: 5 });
    expect(await repair({ action: 'retry', type: 'invoice.paid' })).toMatchObject({ changed: 0, excluded: 5, done: true });
    await api.request('POST', '/v1/endpoints/acme/enable');
    expect(await repair({ action: 'retry', endpoint: 'acme' })).toMatchObject({ changed: 5, excluded: 0, done: true });
    expect(await drain(queue, now)).toHaveLength(5);
  });

  test('is named in the response if it uses up the share of its endpoint', async () => {
    await replaceQueue({ maxEvents: 10, endpointShare: 0.2 });
    for (const id of ['a', 'b']) expect((await post(id)).status).toBe(202);
    const { status, json } = await post('c');
    expect([status, json.code]).toEqual([503, 'queue_full']);
    expect(json.detail).toMatch(
      /^the endpoint acme has 2 undelivered events.*repeat the request later, an event with the same ID$/,
    );
  });
});

test('retries and recovers no more than the share of the endpoint, and says how many it left out', async () => {
  await replaceQueue({ maxEvents: 1_000, endpointShare: 0.3 });
  for (const prefix of ['d', 'e']) {
    await postMany(299, prefix);
    await repair({ action: 'cancel', endpoint: 'acme' });
  }
  const retried = await repair({ action: 'retry', endpoint: 'acme' });
  expect(retried).toEqual({
    changed: 300,
    total: 598,
    excluded: 0,
    done: false,
    error: expect.stringMatching(/^298 deliveries were not made due: the endpoint acme has 300 undelivered events, its share/),
  });
  const { status, json } = await api.request('POST', '/v1/deliveries/e298~acme/retry');
  expect([status, json.code, json.detail]).toEqual([
    503,
    'queue_full',
    expect.stringMatching(/^1 delivery was not made due.* repeat the request later/),
  ]);
  await api.request('POST', '/v1/endpoints', { id: 'late', url: 'https://a.example', events: ['invoice.*'] });
  expect((await api.request('POST', '/v1/deliveries/e298~late/retry')).status).toBe(202);
  const recovered = await repair({ action: 'recover', endpoint: 'late', from: FROM });
  expect(recovered).toEqual({
    changed: 299,
    total: 597,
    done: false,
    error: expect.stringMatching(/^298 deliveries were not created: the endpoint late has 300 undelivered events, its share/),
  });
  expect((await queue.backlogs(['acme', 'late'], now())).map(({ waiting }) => waiting)).toEqual([300, 300]);
});

test('recovers events in the order of their keys, page by page, and counts the same in a dry run', async () => {
  await postMany(600);
  await api.request('DELETE', '/v1/events/e7/payload');
  const late = { id: 'late', url: 'https://a.example', events: ['invoice.*'], orderBy: '$.data.customer' };
  await api.request('POST', '/v1/endpoints', late);
  await postMany(3, 'new');
  const body = { action: 'recover', endpoint: 'late', from: FROM };
  expect(await repair({ ...body, dryRun: true })).toEqual({ changed: 0, total: 599, done: true });
  const results = await Promise.all([repair(body), repair(body)]);
  expect(results.reduce((sum, { changed }) => sum + Number(changed), 0)).toBe(599);
  expect(await repair(body)).toEqual({ changed: 0, total: 0, done: true });
  const numbers = (await drain(queue, now))
    .filter(({ endpoint, event }) => endpoint === 'late' && event.startsWith('e'))
    .map(({ event }) => Number(event.slice(1)));
  expect(numbers).toHaveLength(599);
  for (const key of [0, 1, 2]) {
    const ofKey = numbers.filter((n) => (n % 100) % 3 === key);
    expect(ofKey).toEqual(ofKey.toSorted((a, b) => a - b));
  }
});

test('recovers with one operation in the line of the store at a time, and goes on with the page at which the store was busy', async () => {
  await postMany(600);
  await api.request('POST', '/v1/endpoints', { id: 'late', url: 'https://a.example' });
  await postMany(3, 'new');
  const calls: string[] = [];
  let [busy, running, most] = [3, 0, 0];
  const counted = new Proxy(queue, {
    get(target, name) {
      const value = Reflect.get(target, name, target);
      if (typeof value !== 'function') return value;
      if (!['find', 'findEvent', 'findEvents', 'getEvent'].includes(String(name))) return value.bind(target);
      return async (...args: readonly unknown[]) => {
        calls.push(String(name));
        if (calls.length > 2 && busy-- > 0) throw new SidegateError('system', 'queue_busy', 'busy');
        most = Math.max(most, ++running);
        return value.apply(target, args).finally(() => running--);
      };
    },
  });
  api.stop();
  api = await startApiOver(counted, { clock });
  expect(await repair({ action: 'recover', endpoint: 'late', from: FROM })).toEqual({ changed: 600, total: 600, done: true });
  expect([most, busy < 0, new Set(calls)]).toEqual([1, true, new Set(['findEvents'])]);
});

test('recovers events of the type `inbox` that the app posted, and no requests of an inbox', async () => {
  await post('posted', { type: 'inbox' });
  const metadata = toInboxMetadata({ method: 'POST', path: '/', headers: [] });
  await queue.append([newEvent(['inbox:billing'], { id: 'received', type: 'inbox', metadata })]);
  await api.request('POST', '/v1/endpoints', { id: 'late', url: 'https://a.example' });
  expect(await repair({ action: 'recover', endpoint: 'late', from: FROM })).toEqual({ changed: 1, total: 1, done: true });
  expect((await queue.find({ endpoint: 'late' }, { limit: 10 })).found).toMatchObject([{ event: 'posted' }]);
});

test('creates deliveries by single retries in the order of their keys, also of events that the endpoint does not select', async () => {
  const late = { id: 'late', url: 'https://a.example', events: ['other'], orderBy: '$.data.customer' };
  await api.request('POST', '/v1/endpoints', late);
  for (const id of ['a', 'b']) {
    await post(id);
    expect((await api.request('POST', `/v1/deliveries/${id}~late/retry`)).status).toBe(202);
  }
  const lanes = holdLanes(queue);
  const { lane, end } = await lanes.next('late');
  expect(await lane.take(10, now())).toMatchObject([{ event: 'a' }]);
  end();
  await lanes.stop();
});

test('recovers the oldest events first, while those that it created are sent', async () => {
  await postMany(600);
  await drain(queue, now);
  await api.request('POST', '/v1/endpoints', { id: 'late', url: 'https://a.example', orderBy: '$.data.customer' });
  const numbers: number[] = [];
  const serving = deliverAll(queue, now, ({ event }) => numbers.push(Number(event.slice(1))));
  expect(await repair({ action: 'recover', endpoint: 'late', from: FROM })).toMatchObject({ changed: 600 });
  await until(async () => (await queue.stats(now())).waiting === 0);
  await serving.stop();
  for (const key of [0, 1, 2]) {
    const ofKey = numbers.filter((n) => (n % 100) % 3 === key);
    expect(ofKey).toEqual(ofKey.toSorted((a, b) => a - b));
  }
});

test('concurrent repairs of all kinds while deliveries fail leave figures that add up', async () => {
  await postMany(1_000);
  const lanes = holdLanes(queue);
  const { lane, end } = await lanes.next('acme');
  let isOver = false;
  const failing = (async () => {
    for (let n = 0; !isOver; n++) {
      const taken = await lane.take(20, now());
      // If nothing is due, neither call waits.
      await new Promise((resolve) => setImmediate(resolve));
      const kinds = [{ kind: 'dead' }, { kind: 'delivered' }, { kind: 'retry', due: now() }] as const;
      await lane.settle(
        taken.map((delivery, i) => settled(delivery, kinds[(i + n) % 3] ?? kinds[0], now())),
        PROVEN,
      );
    }
  })();
  const actions = [
    { action: 'retry', endpoint: 'acme', states: ['waiting', 'dead', 'skipped'] },
    { action: 'cancel', from: FROM },
    { action: 'purge', type: 'invoice.paid' },
    { action: 'recover', endpoint: 'acme', from: FROM },
  ];
  for (let round = 0; round < 3; round++) {
    const ends = await Promise.all([...actions.map(repair), repair(actions[0] ?? {})]);
    // Four at once, if all of them overlap.
    expect(ends.filter(({ code }) => code === 'busy').length).toBeLessThanOrEqual(1);
    for (const each of ends) if (each['code'] !== 'busy') expect(each).toMatchObject({ done: true, changed: each['total'] });
  }
  isOver = true;
  await failing;
  end();
  await lanes.stop();
  await repair({ action: 'cancel', from: FROM });
  await repair({ action: 'purge', from: FROM, states: ['delivered', 'dead', 'skipped'] });
  expect(await states()).toEqual([]);
  expect(await queue.stats(now())).toMatchObject({ waiting: 0, dead: 0, skipped: 0, events: 0, bytes: 0, storedEvents: 1_000 });
  expect(await repair({ action: 'recover', endpoint: 'acme', from: FROM })).toMatchObject({ changed: 1_000 });
  expect(await drain(queue, now)).toHaveLength(1_000);
});

describe('the lists', () => {
  test('are stable while new events arrive, and find what no endpoint selected', async () => {
    await postMany(30);
    for (let i = 0; i < 5; i++) await post(`x${i}`, { type: 'other', tenant: 't' });
    const seen: string[] = [];
    let iterator: string | null = '';
    for (let page = 0; iterator !== null; page++) {
      const after = iterator === '' ? '' : `&iterator=${encodeURIComponent(iterator)}`;
      const { json } = await api.request('GET', `/v1/events?limit=10${after}`);
      seen.push(...json.data.map(({ id }: { id: string }) => id));
      iterator = json.iterator;
      await post(`later${page}`);
    }
    expect(new Set(seen).size).toBe(35);
    expect([seen.length, seen[0], seen.at(-1)]).toEqual([35, 'x4', 'e0']);
    const unrouted = await api.request('GET', '/v1/events?unrouted=true&tenant=t');
    expect(unrouted.json.data).toHaveLength(5);
    expect(unrouted.json.data[0]).toMatchObject({ id: 'x4', deliveries: 0, waiting: 0, failed: 0 });
    expect((await api.request('GET', '/v1/events?unrouted=true&type=invoice.paid')).json.data).toEqual([]);
  });

  test.each(['x', '1', '1.2.3', '-1.0', '1e9.0', '9'.repeat(16), '1.1;DROP TABLE event', '%00', '١.١', '1.1\n'])(
    'reject the iterator %j',
    async (iterator) => {
      await post('x');
      for (const list of ['events', 'deliveries'])
        expect((await api.request('GET', `/v1/${list}?iterator=${encodeURIComponent(iterator)}`)).json).toMatchObject({
          status: 422,
          field: 'iterator',
        });
    },
  );

  test('end with a position behind everything, and take names only as text', async () => {
    await post('x', { tenant: "t'--" }).then(({ status }) => expect(status).toBe(422));
    await post('y');
    expect((await api.request('GET', '/v1/events?iterator=0.0')).json).toMatchObject({ data: [], done: true });
    const far = `${'9'.repeat(15)}.${'9'.repeat(15)}`;
    expect((await api.request('GET', `/v1/deliveries?iterator=${far}`)).json.data).toHaveLength(1);
    expect((await api.request('GET', `/v1/deliveries?type=${encodeURIComponent("a' OR 1=1")}`)).status).toBe(422);
  });
});

test('knows an event that is posted again a second later, and one with other data', async () => {
  expect((await post('x')).json).toEqual({ id: 'x', duplicate: false, endpoints: 1 });
  await clock.advance(5_000);
  expect((await post('x')).json).toEqual({ id: 'x', duplicate: true, endpoints: 0 });
  expect((await post('x', { data: { customer: 'd' } })).status).toBe(409);
  expect((await post('x', { tenant: 't' })).status).toBe(409);
  await api.request('DELETE', '/v1/events/x/payload');
  expect((await post('x')).json).toEqual({ id: 'x', duplicate: true, endpoints: 0 });
});
