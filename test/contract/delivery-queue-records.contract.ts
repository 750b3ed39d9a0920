import { describe, expect, test } from 'vitest';
import type { DeliveryFilter, DeliveryQueue, DeliveryRecord, Settlement } from '../../src/provider/queue/delivery-queue.ts';
import { until } from '../support/gate.ts';
import { appendMany, newEvent, PROVEN, settled } from '../support/queue/events.ts';
import { drain, holdLanes } from '../support/queue/lanes.ts';
import type { QueueFixture } from './delivery-queue.contract.ts';

/** All pages of a list. */
async function findAll(queue: DeliveryQueue, filter: DeliveryFilter, limit = 3): Promise<DeliveryRecord[]> {
  const found: DeliveryRecord[] = [];
  let after: string | undefined;
  do {
    const page = await queue.find(filter, { limit, after });
    expect(page.found.length).toBeLessThanOrEqual(limit);
    found.push(...page.found);
    after = page.next;
  } while (after !== undefined);
  return found;
}

/** Settles all that is due, each as `settle` says. */
export async function settleAll(
  queue: DeliveryQueue,
  now: () => number,
  settle: (event: string, endpoint: string) => Settlement,
): Promise<void> {
  const serving = queue.serve(10, async (lane) => {
    const taken = await lane.take(10, now());
    await lane.settle(
      taken.map((delivery) => settled(delivery, settle(delivery.event, lane.endpoint), now())),
      PROVEN,
    );
    return {};
  });
  await until(async () => (await queue.stats(now())).waiting === 0);
  await serving.stop();
}

/** What every queue keeps to when it is asked what it contains. */
export function describeRecords({ open, store }: QueueFixture): void {
  const now = (): number => store().clock.now();
  const START = 1_700_000_000_000;

  describe('finding deliveries', () => {
    test('lists the newest event first, in pages that contain each delivery once', async () => {
      const queue = await open();
      const ids = await appendMany(queue, 10, 'a');
      for (const limit of [1, 3, 10, 250]) {
        const found = await findAll(queue, {}, limit);
        expect(found.map(({ event }) => event)).toEqual(ids.toReversed());
      }
      expect(await queue.find({}, { limit: 10 })).not.toHaveProperty('next', expect.anything());
    });

    test('lists all endpoints of an event, also over several pages', async () => {
      const queue = await open();
      const endpoints = ['a', 'b', 'c', 'd', 'e', 'f', 'g'];
      const event = newEvent(endpoints);
      await queue.append([newEvent(endpoints), event, newEvent(endpoints)]);
      const found = await findAll(queue, { event: event.id }, 2);
      expect(found.map(({ endpoint }) => endpoint).sort()).toEqual(endpoints);
      expect(await findAll(queue, {}, 4)).toHaveLength(21);
    });

    test('filters by event, endpoint, type, tenant, state and time, and by all of them together', async () => {
      const queue = await open();
      const events = Array.from({ length: 12 }, (_, i) =>
        newEvent(['a', 'b'], {
          type: i % 2 === 0 ? 'x.even' : 'x.odd',
          tenant: i < 4 ? undefined : `t${i % 3}`,
          createdAt: START + i,
        }),
      );
      await queue.append(events);
      const states = ['delivered', 'dead', 'skipped'] as const;
      const at = (id: string): number => events.findIndex((event) => event.id === id);
      await settleAll(queue, now, (id, endpoint) => ({ kind: endpoint === 'a' ? (states[at(id) % 3] ?? 'dead') : 'delivered' }));
      await queue.append([newEvent(['a'], { createdAt: START + 12 })]);
      const matching = async (filter: DeliveryFilter): Promise<string[]> =>
        (await findAll(queue, filter)).map(({ event, endpoint }) => `${at(event)}${endpoint}`);
      expect((await matching({ event: events[3]?.id })).sort()).toEqual(['3a', '3b']);
      expect(await matching({ event: events[3]?.id, endpoint: 'b' })).toEqual(['3b']);
      expect(await matching({ event: 'msg_unknown' })).toEqual([]);
      expect(await matching({ endpoint: 'b' })).toEqual([11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0].map((i) => `${i}b`));
      expect(await matching({ endpoint: 'nobody' })).toEqual([]);
      expect(await matching({ type: 'x.odd', endpoint: 'a' })).toEqual(['11a', '9a', '7a', '5a', '3a', '1a']);
      expect(await matching({ tenant: 't1', endpoint: 'a' })).toEqual(['10a', '7a', '4a']);
      expect(await matching({ tenant: 't1', type: 'x.odd' })).toEqual(['7b', '7a']);
      expect(await matching({ tenant: 't3' })).toEqual([]);
      expect(await matching({ states: ['dead'] })).toEqual(['10a', '7a', '4a', '1a']);
      expect(await matching({ states: ['dead'], endpoint: 'b' })).toEqual([]);
      expect(await matching({ states: ['dead', 'skipped'], endpoint: 'a' })).toEqual([
        '11a',
        '10a',
        '8a',
        '7a',
        '5a',
        '4a',
        '2a',
        '1a',
      ]);
      expect(await matching({ states: ['waiting'] })).toEqual(['-1a']);
      expect(await matching({ states: [] })).toEqual([]);
      expect(await matching({ states: ['delivered'], endpoint: 'a' })).toEqual(['9a', '6a', '3a', '0a']);
      expect(await matching({ from: START + 10, endpoint: 'a' })).toEqual(['-1a', '11a', '10a']);
      expect(await matching({ to: START + 2, endpoint: 'a' })).toEqual(['1a', '0a']);
      expect(await matching({ from: START + 3, to: START + 5, endpoint: 'b' })).toEqual(['4b', '3b']);
      const all = { endpoint: 'a', type: 'x.even', states: ['dead', 'waiting'], from: START + 1, to: START + 10 } as const;
      expect(await matching(all)).toEqual(['4a']);
    });

    test('continues a list where it was, while events are appended and settled', async () => {
      const queue = await open();
      const ids = await appendMany(queue, 9, 'a');
      const first = await queue.find({ endpoint: 'a' }, { limit: 3 });
      await appendMany(queue, 4, 'a', START + 1_000);
      const second = await queue.find({ endpoint: 'a' }, { limit: 3, after: first.next });
      await drain(queue, now);
      const third = await queue.find({ endpoint: 'a' }, { limit: 3, after: second.next });
      const listed = [first, second, third].flatMap(({ found }) => found.map(({ event }) => event));
      expect(listed).toEqual(ids.toReversed());
      expect(
        third.next === undefined || (await queue.find({ endpoint: 'a' }, { limit: 3, after: third.next })).found.length === 0,
      ).toBe(true);
    });

    test('rejects a position that it did not give', async () => {
      const queue = await open();
      await appendMany(queue, 3);
      for (const after of ['', 'x', '-1', '~~', '1e9', '\u0000', 'a'.repeat(10_000)])
        await expect(queue.find({}, { limit: 1, after })).rejects.toMatchObject({
          name: 'SidegateError',
          code: 'invalid_position',
        });
    });

    test('lists deliveries with all their properties', async () => {
      const queue = await open();
      const event = newEvent(['a'], { type: 'x.y', tenant: 't1', createdAt: START + 5 });
      await queue.append([event]);
      const [waiting] = await findAll(queue, { event: event.id });
      const common = { event: event.id, endpoint: 'a', type: 'x.y', tenant: 't1', createdAt: START + 5 };
      expect(waiting).toEqual({ ...common, state: 'waiting', attempts: 0, due: expect.any(Number) });
      const lanes = holdLanes(queue);
      const { lane } = await lanes.next('a');
      const [delivery] = await lane.take(1, now());
      if (delivery === undefined) throw new Error('nothing was due');
      const record = { at: START + 7, duration: 12.5, status: 400, outcome: 'client_error', detail: 'no "such" thing\nü€😀' };
      await lane.settle([{ event: event.id, attempt: 0, at: START + 20, settlement: { kind: 'dead' }, record }], PROVEN);
      const [dead] = await findAll(queue, { event: event.id });
      expect(dead).toEqual({ ...common, state: 'dead', attempts: 1, settledAt: START + 20, lastAttempt: record });
      await lanes.stop();
    });
  });

  test('lists the events of the app with a body and without a delivery to an endpoint', async () => {
    const queue = await open();
    const [to, lacking, none, erased] = [newEvent(['a', 'b']), newEvent(['b']), newEvent([]), newEvent(['b'])] as const;
    const own = newEvent(['b'], { metadata: '{"own":true}' });
    const received = newEvent(['inbox:x'], { metadata: '{"inbox":{}}' });
    await queue.append([to, lacking, none, erased, own, received]);
    await queue.erase({ event: erased.id }, now());
    const list = async (lacks: string) =>
      (await queue.findEvents({ lacks }, { limit: 9, first: 'oldest' })).found.map(({ id }) => id);
    expect(await list('a')).toEqual([lacking.id, none.id]);
    expect(await list('unknown')).toEqual([to.id, lacking.id, none.id]);
  });

  describe('attempts', () => {
    test('lists the newest 20 attempts, newest first', async () => {
      const queue = await open();
      const [id = ''] = await appendMany(queue, 1, 'a');
      expect(await queue.findAttempts(id, 'a')).toEqual([]);
      const lanes = holdLanes(queue);
      const { lane } = await lanes.next('a');
      for (let i = 0; i < 25; i++) {
        const [delivery] = await lane.take(1, now());
        if (delivery === undefined) throw new Error('nothing was due');
        const record = { at: START + i, duration: i, outcome: 'timeout', detail: 'x'.repeat(300) };
        await lane.settle([{ event: id, attempt: i, at: START + i, settlement: { kind: 'retry', due: now() }, record }], PROVEN);
        if (i === 1) expect((await queue.findAttempts(id, 'a'))?.map(({ at }) => at - START)).toEqual([1, 0]);
      }
      const attempts = await queue.findAttempts(id, 'a');
      expect(attempts?.map(({ at }) => at - START)).toEqual(Array.from({ length: 20 }, (_, i) => 24 - i));
      expect(attempts?.[0]).toEqual({ at: START + 24, duration: 24, outcome: 'timeout', detail: 'x'.repeat(300) });
      await lanes.stop();
    });

    test('are undefined for deliveries that do not exist', async () => {
      const queue = await open();
      const [id = ''] = await appendMany(queue, 1, 'a');
      expect(await queue.findAttempts(id, 'b')).toBeUndefined();
      expect(await queue.findAttempts('msg_unknown', 'a')).toBeUndefined();
    });
  });

  describe('pruning', () => {
    test('removes delivered events and events for no endpoint after one time, dead and skipped ones after another, never waiting ones', async () => {
      const queue = await open();
      const [delivered, none, dead, mixed, skipped, partly] = [
        newEvent(['a']),
        newEvent([]),
        newEvent(['b']),
        newEvent(['a', 'b']),
        newEvent([{ endpoint: 'c', isSkipped: true }]),
        newEvent(['a', 'b']),
      ] as const;
      await queue.append([delivered, none, dead, mixed, skipped]);
      await settleAll(queue, now, (_, endpoint) => ({ kind: endpoint === 'b' ? 'dead' : 'delivered' }));
      await queue.append([partly]);
      const lanes = holdLanes(queue);
      const { lane } = await lanes.next('a');
      const taken = await lane.take(1, now());
      await lane.settle(
        taken.map((delivery) => settled(delivery, { kind: 'delivered' }, now())),
        PROVEN,
      );
      const all = [delivered, none, dead, mixed, skipped, partly];
      const left = async (): Promise<number[]> => {
        const stored = await Promise.all(all.map(({ id }) => queue.getEvent(id)));
        return stored.flatMap((event, i) => (event === undefined ? [] : [i]));
      };
      expect(await queue.prune(START, START, 100)).toBe(0);
      expect(await queue.prune(START + 1, START, 100)).toBe(2);
      expect(await left()).toEqual([2, 3, 4, 5]);
      expect(await queue.prune(START, START + 1, 100)).toBe(3);
      expect(await left()).toEqual([5]);
      expect(await queue.prune(START + 1, START + 1, 100)).toBe(0);
      expect(await queue.stats(now())).toMatchObject({ storedEvents: 1, events: 1, waiting: 1, dead: 0, skipped: 0 });
      expect((await findAll(queue, {})).map(({ event }) => event)).toEqual([partly.id, partly.id]);
      expect(await queue.findAttempts(mixed.id, 'a')).toBeUndefined();
      await lanes.stop();
    });

    test('removes at most as many as asked, and forgets their IDs', async () => {
      const queue = await open();
      const ids = await appendMany(queue, 30);
      await drain(queue, now);
      expect(await queue.prune(START + 1_000, START, 7)).toBe(7);
      expect((await queue.stats(now())).storedEvents).toBe(23);
      expect(await queue.prune(START + 1_000, START, 1_000)).toBe(23);
      expect(await queue.prune(START + 1_000, START, 1_000)).toBe(0);
      expect(await queue.stats(now())).toMatchObject({ storedEvents: 0, storedBytes: 0 });
      expect(await queue.append([newEvent(['acme'], { id: ids[0] ?? '' })])).toEqual(['stored']);
      expect(await drain(queue, now)).toHaveLength(1);
    });
  });

  describe('figures', () => {
    test('count deliveries by state, and find the oldest overdue one', async () => {
      const queue = await open();
      expect(await queue.stats(now())).toMatchObject({ waiting: 0, dead: 0, skipped: 0, events: 0, bytes: 0 });
      expect((await queue.stats(now())).oldestDue).toBeUndefined();
      await queue.append([newEvent(['a'])]);
      const first = now();
      await store().pass(50);
      await queue.append([newEvent(['a', 'b'])]);
      const { oldestDue, waiting, events } = await queue.stats(now());
      expect([waiting, events]).toEqual([3, 2]);
      expect(oldestDue).toBeLessThanOrEqual(first);
      await drain(queue, now);
      expect((await queue.stats(now())).oldestDue).toBeUndefined();
    });

    test('do not call deliveries overdue that are due later', async () => {
      const queue = await open();
      await appendMany(queue, 1, 'a');
      const lanes = holdLanes(queue);
      const { lane } = await lanes.next('a');
      const taken = await lane.take(1, now());
      const due = now() + 60_000;
      await lane.settle(
        taken.map((delivery) => settled(delivery, { kind: 'retry', due }, now())),
        PROVEN,
      );
      expect((await queue.stats(now())).oldestDue).toBeUndefined();
      expect((await queue.stats(due + 1)).oldestDue).toBe(due);
      expect(await queue.backlogs(['a'], now())).toEqual([{ waiting: 1 }]);
      expect(await queue.backlogs(['a'], due + 1)).toEqual([{ waiting: 1, oldestDue: due }]);
      await lanes.stop();
    });

    test('tell the backlog of each endpoint, in the order asked', async () => {
      const queue = await open();
      await appendMany(queue, 3, 'a');
      await appendMany(queue, 2, { endpoint: 'b', orderKey: 'k' });
      const [b, nobody, a] = await queue.backlogs(['b', 'nobody', 'a'], now());
      expect(b).toMatchObject({ waiting: 2, oldestDue: expect.any(Number) });
      expect(nobody).toEqual({ waiting: 0 });
      expect(a).toMatchObject({ waiting: 3, oldestDue: expect.any(Number) });
      expect(await queue.backlogs([], now())).toEqual([]);
      await drain(queue, now);
      expect(await queue.backlogs(['a', 'b'], now())).toEqual([{ waiting: 0 }, { waiting: 0 }]);
    });
  });
}
