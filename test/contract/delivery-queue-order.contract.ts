import { describe, expect, test } from 'vitest';
import type { Delivery, DeliveryQueue, LaneState, NewEvent } from '../../src/provider/queue/delivery-queue.ts';
import { newEvent, PROVEN, settled } from '../support/queue/events.ts';
import { holdLanes } from '../support/queue/lanes.ts';
import type { QueueFixture } from './delivery-queue.contract.ts';

/** The order in which a lane takes deliveries, and when retries are due. */
export function describeOrder({ open, close, store }: QueueFixture): void {
  const now = (): number => store().clock.now();
  const ofType = (type: string): NewEvent => newEvent(['a'], { type });
  const withTypes = (...failingTypes: readonly string[]): LaneState => ({ ...PROVEN, failingTypes });

  /** A run for `a`, and what it takes one after the other. */
  async function hold(queue: DeliveryQueue) {
    const lanes = holdLanes(queue);
    const { lane } = await lanes.next('a');
    const retry = (deliveries: readonly Delivery[], delay: number, state = PROVEN): Promise<void> =>
      lane.settle(
        deliveries.map((delivery) => settled(delivery, { kind: 'retry', due: now() + delay }, now())),
        state,
      );
    return { lane, retry, stop: () => lanes.stop(), take: (limit: number) => lane.take(limit, now()) };
  }
  const ids = (deliveries: readonly { readonly event: string }[]): string[] => deliveries.map(({ event }) => event);

  describe('the order of a lane', () => {
    test('has first attempts before retries and replays that were due earlier', async () => {
      const queue = await open();
      const [bad, replayed] = [ofType('bad'), ofType('good')];
      await queue.append([bad, replayed]);
      const held = await hold(queue);
      const [first, second] = await held.take(2);
      await held.lane.settle(
        [
          settled(first as Delivery, { kind: 'retry', due: now() }, now()),
          settled(second as Delivery, { kind: 'delivered' }, now()),
        ],
        PROVEN,
      );
      for await (const _ of queue.repair('retry', { event: replayed.id }, now()));
      const fresh = [ofType('good'), ofType('good')];
      await queue.append(fresh);
      expect(ids(await held.take(2))).toEqual(fresh.map(({ id }) => id));
      expect(ids(await held.take(9)).toSorted()).toEqual([bad.id, replayed.id].toSorted());
      await held.stop();
    });

    test('has first attempts of types that fail behind those of others, also of events that wait already, and before retries', async () => {
      const queue = await open();
      const [failed, bad] = [ofType('bad'), ofType('bad')];
      await queue.append([failed, bad]);
      const held = await hold(queue);
      await held.retry(await held.take(1), 0, withTypes('bad', 'worse'));
      const [good, worse, last] = [ofType('good'), ofType('worse'), ofType('good')];
      await queue.append([worse, good, last]);
      expect(ids(await held.take(2))).toEqual([good.id, last.id]);
      expect(ids(await held.take(9))).toEqual([bad.id, worse.id, failed.id]);
      await held.stop();
    });

    test('is normal again for a type that no longer fails, and the same after the store was opened again', async () => {
      const queue = await open();
      const [failed, bad] = [ofType('bad'), ofType('bad')];
      await queue.append([failed, bad]);
      const held = await hold(queue);
      await held.retry(await held.take(1), 0, withTypes('bad'));
      const good = ofType('good');
      await queue.append([good]);
      await held.lane.settle([], PROVEN);
      await held.stop();
      await close(queue);
      const again = await hold(await open());
      expect(ids(await again.take(3))).toEqual([bad.id, good.id, failed.id]);
      await again.stop();
    });

    test('puts 1,500 events of a type that fails behind one of another, over several settlements', async () => {
      const queue = await open();
      const bad = Array.from({ length: 1_500 }, () => ofType('bad'));
      for (let i = 0; i < bad.length; i += 500) await queue.append(bad.slice(i, i + 500));
      const good = ofType('good');
      await queue.append([good]);
      const held = await hold(queue);
      let round = 0;
      for (let taken = await held.take(1); taken[0]?.event !== good.id; taken = await held.take(1)) {
        await store().pass(50);
        await held.retry(taken, 60_000, withTypes('bad', `round ${round++}`));
      }
      expect(round).toBeLessThan(1_000);
      await held.stop();
    });

    test('keeps the failing types after the store was opened again', async () => {
      const queue = await open();
      await queue.append([ofType('bad')]);
      const held = await hold(queue);
      await held.lane.settle([], withTypes('bad'));
      await held.stop();
      await close(queue);
      const reopened = await open();
      const good = ofType('good');
      await reopened.append([good]);
      const again = await hold(reopened);
      expect(ids(await again.take(1))).toEqual([good.id]);
      await again.stop();
    });

    test('is that of first attempts of types that do not fail alone, if only these are asked for', async () => {
      const queue = await open();
      await queue.append([ofType('good')]);
      const held = await hold(queue);
      const failed = await held.take(1);
      await held.retry(failed, 0, withTypes('bad'));
      const [bad, good] = [ofType('bad'), ofType('good')];
      await queue.append([bad, good]);
      expect(ids(await held.lane.take(9, now(), 'first'))).toEqual([good.id]);
      expect(await held.lane.take(9, now(), 'first')).toEqual([]);
      expect(ids(await held.take(9))).toEqual([bad.id, ...ids(failed)]);
      await held.stop();
    });

    test('is without retries, if only what was not tried is asked for', async () => {
      const queue = await open();
      await queue.append([ofType('good')]);
      const held = await hold(queue);
      await held.retry(await held.take(1), 0, withTypes('bad'));
      const [bad, good] = [ofType('bad'), ofType('good')];
      await queue.append([bad, good]);
      expect(ids(await held.lane.take(9, now(), 'untried'))).toEqual([good.id, bad.id]);
      await held.stop();
    });

    test('is the newest first, if only what is new is asked for', async () => {
      const queue = await open();
      await queue.append([ofType('good')]);
      const held = await hold(queue);
      await held.retry(await held.take(1), 0, withTypes('bad'));
      const events = [ofType('bad'), ofType('good'), ofType('bad'), ofType('good'), ofType('good')];
      for (const event of events) await queue.append([event]);
      const [bad, good, newBad, newGood, newest] = events.map(({ id }) => id);
      expect(ids(await held.lane.take(1, now(), 'fresh'))).toEqual([newest]);
      expect(ids(await held.lane.take(9, now(), 'fresh'))).toEqual([newGood, good, newBad, bad]);
      expect(await held.lane.take(9, now(), 'fresh')).toEqual([]);
      held.lane.giveBack([{ event: good ?? '' }]);
      expect(await held.lane.take(9, now() + 10_001, 'fresh')).toEqual([]);
      expect(ids(await held.lane.take(1, now()))).toEqual([good]);
      await held.stop();
    });

    test('has other keys before a failed delivery, and nothing else of its own key', async () => {
      const queue = await open();
      const inOrder = (orderKey: string) => newEvent([{ endpoint: 'a', orderKey }]);
      const head = inOrder('x');
      await queue.append([head, inOrder('x'), inOrder('x')]);
      const held = await hold(queue);
      const failed = await held.take(9);
      expect(ids(failed)).toEqual([head.id]);
      await held.retry(failed, 0);
      const others = [inOrder('y'), inOrder('z')];
      await queue.append([...others, inOrder('x')]);
      expect(ids(await held.take(9))).toEqual([...others.map(({ id }) => id), head.id]);
      await held.stop();
    });
  });

  describe('deliveries that wait longer than their delay, because a clock was ahead', () => {
    test('are due when that delay is over once the store was opened again: of all lanes, in any number of steps, and no others', async () => {
      const queue = await open();
      const orderKey = 'k';
      const targets = ['a', 'b', 'c'].map((endpoint) => ({ endpoint, ...(endpoint === 'b' && { orderKey }) }));
      const events = Array.from({ length: 700 }, () => ({ ...newEvent([], { body: Buffer.alloc(1) }), targets }));
      await queue.append(events);
      await close(queue);
      const DAY = 86_400_000;
      const later = now() + 3_600_000;
      store().damage(`UPDATE delivery SET due = ${later + 30 * DAY}, delay = CASE WHEN lane % 2 = 0 THEN 0 ELSE -${DAY} END`);
      store().damage(`UPDATE delivery SET due = ${later}, delay = ${DAY} WHERE lane = (SELECT num FROM lane WHERE name = 'c')`);
      const again = await open();
      const at = now();
      const lateness = async (endpoint: string): Promise<readonly number[]> => {
        const dues = new Set<number>();
        for (let after: string | undefined, isLast = false; !isLast; ) {
          const page = await again.find({ endpoint }, { limit: 250, after });
          // To the next minute: opening takes a while.
          for (const { due = Number.NaN } of page.found) dues.add(Math.ceil((due - at) / 60_000));
          after = page.next;
          isLast = after === undefined;
        }
        return [...dues];
      };
      const found = [await lateness('a'), await lateness('b')].toSorted(([a = 0], [b = 0]) => a - b);
      expect(found.map(([minutes = 0]) => Math.abs(minutes))).toEqual([0, DAY / 60_000]);
      expect(found.map(({ length }) => length)).toEqual([1, 1]);
      expect(await lateness('c')).toEqual([60]);
    });
  });

  describe('a new schedule', () => {
    const DAY = 86_400_000;
    const due = async (queue: DeliveryQueue, event: string): Promise<number> =>
      (await queue.find({ event }, { limit: 1 })).found[0]?.due ?? Number.NaN;

    test('changes when retries are due, counted from their last attempt, and starts those that are due now', async () => {
      const queue = await open();
      const events = [ofType('x'), ofType('x')];
      await queue.append(events);
      const held = await hold(queue);
      const [first, second] = await held.take(2);
      const at = now();
      await held.lane.settle(
        [first, second].map((delivery) => settled(delivery as Delivery, { kind: 'retry', due: at + DAY }, at)),
        PROVEN,
      );
      await queue.reschedule('a', [3_600_000], now());
      expect(await due(queue, events[0]?.id ?? '')).toBe(at + 3_600_000);
      await queue.reschedule('another', [1], now());
      expect(await due(queue, events[0]?.id ?? '')).toBe(at + 3_600_000);
      await queue.reschedule('a', [0], now());
      expect(ids(await held.take(2)).toSorted()).toEqual(ids(events.map(({ id }) => ({ event: id }))).toSorted());
      await held.stop();
    });

    test('changes more deliveries than one step reads, and none of another lane', async () => {
      const queue = await open();
      const events = Array.from({ length: 4_500 }, () => newEvent(['a', 'b'], { body: Buffer.alloc(1) }));
      for (let i = 0; i < events.length; i += 500) await queue.append(events.slice(i, i + 500));
      const at = now();
      const lanes = holdLanes(queue);
      for (const endpoint of ['a', 'b']) {
        const { lane, end } = await lanes.next(endpoint);
        const taken = await lane.take(4_500, now());
        await lane.settle(
          taken.map((delivery) => settled(delivery, { kind: 'retry', due: at + DAY }, at)),
          PROVEN,
        );
        end();
      }
      await queue.reschedule('a', [3_600_000], now());
      for (const [endpoint, expected] of [
        ['a', at + 3_600_000],
        ['b', at + DAY],
      ] as const) {
        let after: string | undefined;
        const dues = new Map<number, number>();
        do {
          const page = await queue.find({ endpoint }, { limit: 250, after });
          for (const { due: each = 0 } of page.found) dues.set(each, (dues.get(each) ?? 0) + 1);
          after = page.next;
        } while (after !== undefined);
        expect([...dues]).toEqual([[expected, 4_500]]);
      }
      await lanes.stop();
    });

    test('keeps the time of retries whose delay is within the jitter of the schedule, and of all if the schedule is known', async () => {
      const queue = await open();
      const events = [ofType('x'), ofType('x')];
      await queue.append(events);
      const held = await hold(queue);
      const at = now();
      const delays = [1_100_000, 1_300_000];
      const taken = await held.take(2);
      await held.lane.settle(
        taken.map((delivery, i) => settled(delivery, { kind: 'retry', due: at + (delays[i] ?? 0) }, at)),
        PROVEN,
      );
      const dues = () => Promise.all(events.map(async ({ id }) => (await due(queue, id)) - at));
      await queue.reschedule('a', [1_000_000], now());
      expect(await dues()).toEqual([1_100_000, 1_000_000]);
      const later = ofType('x');
      await queue.append([later]);
      // As after a `Retry-After`, which a restart with the same schedule must not shorten.
      await held.lane.settle(
        (await held.take(1)).map((delivery) => settled(delivery, { kind: 'retry', due: at + DAY }, at)),
        PROVEN,
      );
      await queue.reschedule('a', [1_000_000], now());
      expect(await due(queue, later.id)).toBe(at + DAY);
      await held.stop();
    });

    test('keeps the time for which the endpoint asked, also in a lane that was never compared with a schedule', async () => {
      const queue = await open();
      const event = ofType('x');
      await queue.append([event]);
      const held = await hold(queue);
      const at = now();
      await held.lane.settle(
        (await held.take(1)).map((delivery) => settled(delivery, { kind: 'retry', due: at + DAY, isAsked: true }, at)),
        PROVEN,
      );
      for (const delay of [1_000, 3 * DAY]) {
        await queue.reschedule('a', [delay], now());
        expect(await due(queue, event.id)).toBe(at + DAY);
      }
      await held.stop();
    });

    test('leaves deliveries alone that have made more attempts than it has', async () => {
      const queue = await open();
      const event = ofType('x');
      await queue.append([event]);
      const held = await hold(queue);
      await held.retry(await held.take(1), 0);
      const at = now();
      await held.lane.settle(
        (await held.take(1)).map((delivery) => settled(delivery, { kind: 'retry', due: at + DAY }, at)),
        PROVEN,
      );
      await queue.reschedule('a', [1_000], now());
      expect(await due(queue, event.id)).toBe(at + DAY);
      await queue.reschedule('a', [1_000, 2 * DAY], now());
      expect(await due(queue, event.id)).toBe(at + 2 * DAY);
      await held.stop();
    });
  });
}
