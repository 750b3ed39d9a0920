import { describe, expect, test } from 'vitest';
import type { Delivery, DeliveryQueue, Lane, Settlement } from '../../src/provider/queue/delivery-queue.ts';
import { until } from '../support/gate.ts';
import { appendMany, newEvent, PROVEN, settled } from '../support/queue/events.ts';
import { drain, holdLanes } from '../support/queue/lanes.ts';
import type { QueueFixture } from './delivery-queue.contract.ts';

/** The only delivery of a list. */
function only<T>(list: readonly T[]): T {
  const [first] = list;
  if (first === undefined || list.length !== 1) throw new Error(`expected one delivery, got ${list.length}`);
  return first;
}

/** What every queue keeps to when deliveries are taken and settled. */
export function describeSettling({ open, close, store }: QueueFixture): void {
  const now = (): number => store().clock.now();
  const settle = (lane: Lane, deliveries: readonly Delivery[], settlement: Settlement): Promise<void> =>
    lane.settle(
      deliveries.map((delivery) => settled(delivery, settlement, now())),
      PROVEN,
    );
  const record = async (queue: DeliveryQueue, event: string) => only((await queue.find({ event }, { limit: 2 })).found);

  describe('taking and settling', () => {
    test('takes the oldest due first, at most the limit, and nothing that is taken', async () => {
      const queue = await open();
      const ids: string[] = [];
      for (let i = 0; i < 5; i++) {
        ids.push(...(await appendMany(queue, 1, 'a')));
        await store().pass(3);
      }
      const lanes = holdLanes(queue);
      const { lane } = await lanes.next('a');
      const first = await lane.take(2, now());
      expect(first.map(({ event }) => event)).toEqual(ids.slice(0, 2));
      const rest = await lane.take(10, now());
      expect(rest.map(({ event }) => event)).toEqual(ids.slice(2));
      expect(await lane.take(10, now())).toEqual([]);
      await settle(lane, first, { kind: 'delivered' });
      expect(await lane.take(10, now())).toEqual([]);
      await lanes.stop();
    });

    test('gives concurrent calls of take different deliveries', async () => {
      const queue = await open();
      const ids = await appendMany(queue, 20, 'a');
      const lanes = holdLanes(queue);
      const { lane } = await lanes.next('a');
      const taken = (await Promise.all(Array.from({ length: 8 }, () => lane.take(4, now())))).flat();
      expect(taken.map(({ event }) => event).sort()).toEqual([...ids].sort());
      await lanes.stop();
    });

    test('orders by due time, not by the order of events', async () => {
      const queue = await open();
      await appendMany(queue, 4, 'a');
      const lanes = holdLanes(queue);
      const { lane } = await lanes.next('a');
      const taken = await lane.take(4, now());
      const ids = taken.map(({ event }) => event);
      const start = now();
      await Promise.all(taken.map((delivery, i) => settle(lane, [delivery], { kind: 'retry', due: start + 40 - 10 * i })));
      await store().pass(100);
      expect((await lane.take(3, now())).map(({ event }) => event)).toEqual([...ids].reverse().slice(0, 3));
      expect((await lane.take(3, now())).map(({ event }) => event)).toEqual([ids[0]]);
      await lanes.stop();
    });

    test('counts attempts and tries of retries, and keeps what was recorded last', async () => {
      const queue = await open();
      const [id = ''] = await appendMany(queue, 1, 'a');
      const lanes = holdLanes(queue);
      const { lane } = await lanes.next('a');
      for (let attempt = 0; attempt < 3; attempt++) {
        const delivery = only(await lane.take(1, now()));
        expect(delivery).toMatchObject({ attempt, tries: attempt, isReplay: false });
        await settle(lane, [delivery], { kind: 'retry', due: now() });
      }
      expect(await record(queue, id)).toMatchObject({
        state: 'waiting',
        attempts: 3,
        lastAttempt: { status: 503, outcome: 'server_error' },
      });
      await settle(lane, await lane.take(1, now()), { kind: 'delivered' });
      const delivered = await record(queue, id);
      expect(delivered).toMatchObject({
        state: 'delivered',
        attempts: 4,
        settledAt: expect.any(Number),
        lastAttempt: { status: 204 },
      });
      expect(delivered.due).toBeUndefined();
      await lanes.stop();
    });

    test('removes delivered, dead and skipped deliveries from what is due', async () => {
      const queue = await open();
      await appendMany(queue, 3, 'a');
      const lanes = holdLanes(queue);
      const first = await lanes.next('a');
      const kinds = ['delivered', 'dead', 'skipped'] as const;
      const taken = await first.lane.take(4, now());
      await first.lane.settle(
        taken.map((delivery, i) => settled(delivery, { kind: kinds[i] ?? 'dead' }, now())),
        PROVEN,
      );
      first.end();
      await store().pass(50);
      expect(lanes.started()).toBe(1);
      expect(await queue.stats(now())).toMatchObject({ waiting: 0, dead: 1, skipped: 1 });
      for (const [i, kind] of kinds.entries()) expect(await record(queue, taken[i]?.event ?? '')).toMatchObject({ state: kind });
      await lanes.stop();
    });

    test('postpones without counting an attempt', async () => {
      const queue = await open();
      const [id = ''] = await appendMany(queue, 1, 'a');
      const lanes = holdLanes(queue);
      const first = await lanes.next('a');
      const due = now() + 300;
      await settle(first.lane, await first.lane.take(1, now()), { kind: 'postponed', due });
      expect(await first.lane.take(1, now())).toEqual([]);
      expect(await record(queue, id)).toMatchObject({ state: 'waiting', attempts: 0, due });
      expect((await record(queue, id)).lastAttempt).toBeUndefined();
      first.end();
      await store().pass(400);
      const second = await lanes.next('a');
      expect(only(await second.lane.take(1, now()))).toMatchObject({ event: id, attempt: 0, tries: 0, due });
      await lanes.stop();
    });

    test('takes a postponed delivery again in the same run, if it is due at once', async () => {
      const queue = await open();
      const [id] = await appendMany(queue, 1, 'a');
      const lanes = holdLanes(queue);
      const { lane } = await lanes.next('a');
      await settle(lane, await lane.take(1, now()), { kind: 'postponed', due: now() });
      expect(only(await lane.take(1, now()))).toMatchObject({ event: id, attempt: 0 });
      await lanes.stop();
    });

    test('ignores a settlement with an outdated attempt', async () => {
      const queue = await open();
      const [id = ''] = await appendMany(queue, 1, 'a');
      const lanes = holdLanes(queue);
      const { lane } = await lanes.next('a');
      const first = only(await lane.take(1, now()));
      await settle(lane, [first], { kind: 'retry', due: now() });
      for (const kind of ['delivered', 'dead', 'skipped'] as const) await settle(lane, [first], { kind });
      await settle(lane, [first], { kind: 'postponed', due: now() + 3_600_000 });
      expect(await record(queue, id)).toMatchObject({ state: 'waiting', attempts: 1 });
      expect(only(await lane.take(1, now()))).toMatchObject({ attempt: 1 });
      await lanes.stop();
    });

    test('ignores a second settlement of a delivery that is settled', async () => {
      const queue = await open();
      const [id = ''] = await appendMany(queue, 1, 'a');
      const lanes = holdLanes(queue);
      const { lane } = await lanes.next('a');
      const delivery = only(await lane.take(1, now()));
      await settle(lane, [delivery], { kind: 'delivered' });
      await settle(lane, [delivery, { ...delivery, attempt: 1 }], { kind: 'retry', due: now() });
      await settle(lane, [delivery, { ...delivery, attempt: 1 }], { kind: 'dead' });
      expect(await record(queue, id)).toMatchObject({ state: 'delivered', attempts: 1 });
      expect(await queue.stats(now())).toMatchObject({ waiting: 0, dead: 0 });
      await lanes.stop();
    });

    test('ignores settlements of deliveries that do not exist, and settles the others of the call', async () => {
      const queue = await open();
      const [id = ''] = await appendMany(queue, 1, 'a');
      const lanes = holdLanes(queue);
      const { lane } = await lanes.next('a');
      const delivery = only(await lane.take(1, now()));
      await settle(lane, [{ ...delivery, event: 'msg_unknown' }, delivery], { kind: 'delivered' });
      expect(await record(queue, id)).toMatchObject({ state: 'delivered' });
      await lanes.stop();
    });

    test('settles what was taken although its run has ended, and only once', async () => {
      const queue = await open();
      const [id = ''] = await appendMany(queue, 1, 'a');
      const lanes = holdLanes(queue);
      const first = await lanes.next('a');
      const late = only(await first.lane.take(1, now()));
      first.end();
      const second = await lanes.next('a');
      await settle(second.lane, [only(await second.lane.take(1, now()))], { kind: 'delivered' });
      await settle(first.lane, [late], { kind: 'dead' });
      expect(await record(queue, id)).toMatchObject({ state: 'delivered', attempts: 1 });
      await lanes.stop();
    });

    test('records as delivered what the endpoint acknowledged after it was canceled, and ignores any other settlement of it', async () => {
      const queue = await open();
      const events = [0, 1, 2, 3].map((i) => newEvent(['a'], { tenant: `t${i % 2}` }));
      await queue.append(events);
      const lanes = holdLanes(queue);
      const { lane } = await lanes.next('a');
      const taken = await lane.take(4, now());
      for await (const _ of queue.repair('cancel', { endpoint: 'a' }, now()));
      expect(await queue.stats(now())).toMatchObject({ waiting: 0, skipped: 4, events: 0, bytes: 0 });
      const kinds: readonly Settlement[] = [{ kind: 'delivered' }, { kind: 'dead' }, { kind: 'retry', due: now() }];
      for (const [i, kind] of kinds.entries()) await settle(lane, taken.slice(i, i + 1), kind);
      await settle(lane, taken.slice(3), { kind: 'postponed', due: now() });
      expect(await record(queue, events[0]?.id ?? '')).toMatchObject({
        state: 'delivered',
        attempts: 1,
        lastAttempt: { status: 204 },
      });
      for (const { id } of events.slice(1)) expect(await record(queue, id)).toMatchObject({ state: 'skipped', attempts: 0 });
      expect(await queue.stats(now())).toMatchObject({ waiting: 0, dead: 0, skipped: 3, events: 0, bytes: 0 });
      expect((await queue.findEvents({}, { limit: 9 })).found.map(({ failed }) => failed)).toEqual([1, 1, 1, 0]);
      await lanes.stop();
    });

    test('records nothing of what the endpoint acknowledged after it was purged', async () => {
      const queue = await open();
      const [id = ''] = await appendMany(queue, 1, 'a');
      const lanes = holdLanes(queue);
      const { lane } = await lanes.next('a');
      const taken = await lane.take(1, now());
      for await (const _ of queue.repair('purge', { endpoint: 'a' }, now()));
      await settle(lane, taken, { kind: 'delivered' });
      expect((await queue.find({ event: id }, { limit: 9 })).found).toEqual([]);
      expect(await queue.stats(now())).toMatchObject({ waiting: 0, dead: 0, skipped: 0, events: 0, bytes: 0, storedEvents: 1 });
      await lanes.stop();
    });

    test('makes settlements durable: none is due again after the store was opened again', async () => {
      const queue = await open();
      await appendMany(queue, 3, 'a');
      const lanes = holdLanes(queue);
      const { lane } = await lanes.next('a');
      const taken = await lane.take(3, now());
      await settle(lane, taken.slice(0, 1), { kind: 'delivered' });
      await settle(lane, taken.slice(1, 2), { kind: 'retry', due: now() + 3_600_000 });
      await lanes.stop();
      await close(queue);
      const again = await open();
      const next = holdLanes(again);
      expect((await (await next.next('a')).lane.take(3, now())).map(({ event }) => event)).toEqual([taken[2]?.event]);
      await next.stop();
      expect(await record(again, taken[1]?.event ?? '')).toMatchObject({ state: 'waiting', attempts: 1 });
    });
  });

  describe('strict order', () => {
    const KEY = { endpoint: 'a', orderKey: 'customer 1' };

    test('takes only the first delivery of a key, in the order of appending, and others meanwhile', async () => {
      const queue = await open();
      const ordered = await appendMany(queue, 3, KEY);
      const [other = ''] = await appendMany(queue, 1, { endpoint: 'a', orderKey: 'customer 2' });
      const [free = ''] = await appendMany(queue, 1, 'a');
      const lanes = holdLanes(queue);
      const { lane } = await lanes.next('a');
      const first = await lane.take(10, now());
      expect(first.map(({ event }) => event).sort()).toEqual([ordered[0], other, free].sort());
      expect(await lane.take(10, now())).toEqual([]);
      await settle(lane, first, { kind: 'delivered' });
      for (const id of ordered.slice(1)) {
        const next = only(await lane.take(10, now()));
        expect(next.event).toBe(id);
        await settle(lane, [next], { kind: id === ordered[1] ? 'dead' : 'skipped' });
      }
      await lanes.stop();
    });

    test('keeps later deliveries of the key back while the first waits for its retry', async () => {
      const queue = await open();
      const [one, two] = await appendMany(queue, 2, KEY);
      const lanes = holdLanes(queue);
      const first = await lanes.next('a');
      await settle(first.lane, await first.lane.take(5, now()), { kind: 'retry', due: now() + 300 });
      expect(await first.lane.take(5, now())).toEqual([]);
      first.end();
      await store().pass(400);
      const { lane } = await lanes.next('a');
      const again = only(await lane.take(5, now()));
      expect(again).toMatchObject({ event: one, attempt: 1 });
      await settle(lane, [again], { kind: 'delivered' });
      expect(only(await lane.take(5, now()))).toMatchObject({ event: two, attempt: 0 });
      await lanes.stop();
    });

    test('starts a lane for the next delivery of a key when the one before is settled at the end of a run', async () => {
      const queue = await open();
      const ids = await appendMany(queue, 10, KEY);
      const order: string[] = [];
      const serving = queue.serve(2, async (lane) => {
        const taken = await lane.take(5, now());
        order.push(...taken.map(({ event }) => event));
        await settle(lane, taken, { kind: order.length % 2 === 0 ? 'delivered' : 'dead' });
        return {};
      });
      await until(() => order.length === ids.length);
      await serving.stop();
      expect(order).toEqual(ids);
    });

    test('does not wait for skipped deliveries, other endpoints or other keys', async () => {
      const queue = await open();
      await queue.append([newEvent([{ ...KEY, isSkipped: true }])]);
      await queue.append([newEvent([{ endpoint: 'b', orderKey: KEY.orderKey }])]);
      await appendMany(queue, 1, KEY);
      const lanes = holdLanes(queue);
      expect(await (await lanes.next('a')).lane.take(5, now())).toHaveLength(1);
      expect(await (await lanes.next('b')).lane.take(5, now())).toHaveLength(1);
      await lanes.stop();
    });

    test('keeps the order of events of one call, and after the store was opened again', async () => {
      const queue = await open();
      const events = Array.from({ length: 5 }, () => newEvent([KEY]));
      await queue.append(events.slice(0, 3));
      await close(queue);
      const again = await open();
      await again.append(events.slice(3));
      const received = await drain(again, now);
      expect(received.map(({ event }) => event)).toEqual(events.map(({ id }) => id));
    });

    test('keeps the order of a thousand deliveries with ten keys, some of which fail', async () => {
      const queue = await open();
      const keys = new Map<string, number>();
      for (let batch = 0; batch < 10; batch++) {
        const events = Array.from({ length: 100 }, (_, i) => newEvent([{ endpoint: `e${i % 2}`, orderKey: `k${i % 10}` }]));
        for (const [i, { id }] of events.entries()) keys.set(id, i % 10);
        await queue.append(events);
      }
      const order: string[] = [];
      const serving = queue.serve(2, async (lane) => {
        const taken = await lane.take(20, now());
        const failing = taken.filter(({ attempt }, i) => attempt === 0 && i % 7 === 0);
        const passing = taken.filter((delivery) => !failing.includes(delivery));
        await settle(lane, failing, { kind: 'retry', due: now() });
        order.push(...passing.map(({ event }) => event));
        await settle(lane, passing, { kind: 'delivered' });
        return {};
      });
      await until(() => order.length === 1_000);
      await serving.stop();
      for (let key = 0; key < 10; key++)
        expect(order.filter((id) => keys.get(id) === key)).toEqual([...keys].flatMap(([id, k]) => (k === key ? [id] : [])));
    });
  });
}
