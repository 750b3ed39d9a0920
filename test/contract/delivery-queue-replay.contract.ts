import { describe, expect, test } from 'vitest';
import type { DeliveryFilter, DeliveryQueue, ReplayProgress } from '../../src/provider/queue/delivery-queue.ts';
import { until } from '../support/gate.ts';
import { appendMany, newEvent, PROVEN, settled } from '../support/queue/events.ts';
import { drain, holdLanes } from '../support/queue/lanes.ts';
import type { QueueFixture } from './delivery-queue.contract.ts';
import { settleAll } from './delivery-queue-records.contract.ts';

const START = 1_800_000_000_000;

/** What every queue keeps to when deliveries are replayed. */
export function describeReplays({ open, close, store }: QueueFixture): void {
  const now = (): number => store().clock.now();
  const replay = async (queue: DeliveryQueue, filter: DeliveryFilter): Promise<ReplayProgress[]> => {
    const steps: ReplayProgress[] = [];
    for await (const step of queue.replay(filter, now())) steps.push(step);
    return steps;
  };
  /** How many deliveries a replay made due. */
  const count = async (queue: DeliveryQueue, filter: DeliveryFilter): Promise<number> => {
    const last = (await replay(queue, filter)).at(-1);
    expect(last?.replayed).toBe(last?.total);
    return last?.replayed ?? -1;
  };

  describe('replaying', () => {
    test('makes a dead delivery due again, with its attempts counted on and its schedule from the start', async () => {
      const queue = await open();
      const [id = ''] = await appendMany(queue, 1, 'a');
      const lanes = holdLanes(queue);
      const first = await lanes.next('a');
      for (const kind of ['retry', 'dead'] as const) {
        const [delivery] = await first.lane.take(1, now());
        if (delivery === undefined) throw new Error('nothing was due');
        await first.lane.settle([settled(delivery, kind === 'dead' ? { kind } : { kind, due: now() }, now())], PROVEN);
      }
      first.end();
      expect(await count(queue, { event: id, endpoint: 'a' })).toBe(1);
      expect(await queue.stats(now())).toMatchObject({ waiting: 1, dead: 0 });
      const second = await lanes.next('a');
      expect(await second.lane.take(1, now())).toMatchObject([{ event: id, attempt: 2, tries: 0, isReplay: true }]);
      const { deliveries } = await queue.find({ event: id }, { limit: 1 });
      expect(deliveries).toMatchObject([{ state: 'waiting', attempts: 2 }]);
      expect(deliveries[0]?.settledAt).toBeUndefined();
      expect(await queue.findAttempts(id, 'a')).toHaveLength(2);
      await lanes.stop();
    });

    test('ignores settlements from before the replay', async () => {
      const queue = await open();
      const [id = ''] = await appendMany(queue, 1, 'a');
      const lanes = holdLanes(queue);
      const { lane } = await lanes.next('a');
      const [delivery] = await lane.take(1, now());
      if (delivery === undefined) throw new Error('nothing was due');
      await lane.settle([settled(delivery, { kind: 'dead' }, now())], PROVEN);
      await count(queue, { event: id });
      await lane.settle([settled(delivery, { kind: 'delivered' }, now())], PROVEN);
      expect(await queue.stats(now())).toMatchObject({ waiting: 1, dead: 0 });
      expect(await lane.take(1, now())).toMatchObject([{ attempt: 1, tries: 0 }]);
      await lanes.stop();
    });

    test('leaves waiting deliveries as they are', async () => {
      const queue = await open();
      const [id = ''] = await appendMany(queue, 1, 'a');
      expect(await count(queue, { event: id, endpoint: 'a' })).toBe(0);
      expect(await count(queue, { states: ['waiting'] })).toBe(0);
      expect(await drain(queue, now)).toMatchObject([{ isReplay: false, tries: 0 }]);
    });

    test('replays delivered, dead and skipped deliveries by each filter', async () => {
      const queue = await open();
      const events = Array.from({ length: 12 }, (_, i) =>
        newEvent(['a', 'b'], { type: i % 2 === 0 ? 'x.even' : 'x.odd', createdAt: START + i }),
      );
      await queue.append(events);
      const states = ['delivered', 'dead', 'skipped'] as const;
      const settleLikeBefore = (): Promise<void> =>
        settleAll(queue, now, (id) => ({ kind: states[events.findIndex((event) => event.id === id) % 3] ?? 'dead' }));
      await settleLikeBefore();
      const filters: readonly (readonly [DeliveryFilter, number])[] = [
        [{ event: events[4]?.id }, 2],
        [{ event: events[4]?.id, states: ['dead'] }, 2],
        [{ event: events[4]?.id, states: ['skipped'] }, 0],
        [{ endpoint: 'a' }, 12],
        [{ type: 'x.odd' }, 12],
        [{ states: ['dead'] }, 8],
        [{ states: ['dead', 'skipped'], endpoint: 'b' }, 8],
        [{ from: START + 10 }, 4],
        [{ to: START + 3 }, 6],
        [{ endpoint: 'b', type: 'x.even', states: ['dead'], from: START + 2, to: START + 10 }, 1],
        [{}, 24],
        [{ endpoint: 'nobody' }, 0],
        [{ states: [] }, 0],
      ];
      for (const [filter, expected] of filters) {
        expect(await count(queue, filter)).toBe(expected);
        expect((await queue.stats(now())).waiting).toBe(expected);
        await settleLikeBefore();
      }
    });

    test('creates a delivery that did not exist, for an event and an endpoint', async () => {
      const queue = await open();
      const event = newEvent(['a']);
      await queue.append([event, newEvent([])]);
      expect(await count(queue, { event: event.id, endpoint: 'new' })).toBe(1);
      expect(await count(queue, { event: event.id, endpoint: 'new' })).toBe(0);
      expect(await count(queue, { event: 'msg_unknown', endpoint: 'new' })).toBe(0);
      expect(await count(queue, { event: event.id, endpoint: 'other', states: ['dead'] })).toBe(0);
      expect(await count(queue, { event: event.id, endpoint: 'other', type: 'x.y' })).toBe(0);
      expect(await count(queue, { event: event.id, endpoint: 'other', from: event.createdAt + 1 })).toBe(0);
      const received = await drain(queue, now);
      expect(received.map(({ endpoint, isReplay }) => [endpoint, isReplay]).sort()).toEqual([
        ['a', false],
        ['new', true],
      ]);
    });

    test('keeps an event from being pruned while it is due again', async () => {
      const queue = await open();
      const [id = ''] = await appendMany(queue, 1, 'a');
      await drain(queue, now);
      await count(queue, { event: id });
      expect(await queue.prune(START + 1_000, START + 1_000, 10)).toBe(0);
      await drain(queue, now);
      expect(await queue.prune(START + 1_000, START + 1_000, 10)).toBe(1);
    });

    test('starts a lane, and is still due after the store was opened again', async () => {
      const queue = await open();
      const [id = ''] = await appendMany(queue, 1, 'a');
      await drain(queue, now);
      const lanes = holdLanes(queue);
      await count(queue, { event: id });
      await lanes.next('a');
      await lanes.stop();
      await close(queue);
      expect(await drain(await open(), now)).toMatchObject([{ event: id, isReplay: true, attempt: 1 }]);
    });

    test('replays many in small steps, counted against the total, while events are appended', async () => {
      const queue = await open();
      await appendMany(queue, 2_500, 'a');
      await drain(queue, now);
      const steps: ReplayProgress[] = [];
      for await (const step of queue.replay({ endpoint: 'a' }, now())) {
        steps.push(step);
        await queue.append([newEvent(['a'])]);
      }
      expect(steps.length).toBeGreaterThan(2);
      expect(steps.map(({ replayed }) => replayed)).toEqual(steps.map(({ replayed }) => replayed).toSorted((a, b) => a - b));
      expect(steps.at(-1)).toEqual({ replayed: 2_500, total: 2_500 });
      expect(await drain(queue, now)).toHaveLength(2_500 + steps.length);
    });

    test('ends although the replayed deliveries fail again meanwhile', async () => {
      const queue = await open();
      await appendMany(queue, 1_200, 'a');
      await settleAll(queue, now, () => ({ kind: 'dead' }));
      let steps = 0;
      for await (const { total } of queue.replay({ states: ['dead'] }, now())) {
        expect(total).toBe(1_200);
        steps++;
        await settleAll(queue, now, () => ({ kind: 'dead' }));
      }
      expect(steps).toBeLessThan(50);
      expect(await queue.stats(now())).toMatchObject({ waiting: 0, dead: 1_200 });
    });

    test('leaves out what is settled after it started, and replays all that it counted', async () => {
      const queue = await open();
      const events = Array.from({ length: 600 }, (_, i) => newEvent(['a', 'b'], { createdAt: START + i }));
      await queue.append(events.slice(0, 300));
      await queue.append(events.slice(300));
      const lanes = holdLanes(queue);
      const settleLane = async (endpoint: string): Promise<void> => {
        const { lane } = await lanes.next(endpoint);
        const taken = await lane.take(600, now());
        await lane.settle(
          taken.map((delivery) => settled(delivery, { kind: 'dead' }, now())),
          PROVEN,
        );
      };
      await settleLane('a');
      await store().pass(10);
      const steps: ReplayProgress[] = [];
      for await (const step of queue.replay({ states: ['dead'] }, now())) {
        if (steps.length === 0) {
          await store().pass(10);
          await settleLane('b');
        }
        steps.push(step);
      }
      expect(steps.length).toBeGreaterThan(1);
      expect(new Set(steps.map(({ total }) => total))).toEqual(new Set([600]));
      expect(steps.at(-1)).toEqual({ replayed: 600, total: 600 });
      expect(await queue.backlogs(['a', 'b'], now())).toMatchObject([{ waiting: 600 }, { waiting: 0 }]);
      await lanes.stop();
    });

    test('reports what it made due, not what others did at the same time', async () => {
      const queue = await open();
      await appendMany(queue, 1_000, 'a');
      await settleAll(queue, now, () => ({ kind: 'dead' }));
      const ends = (await Promise.all([replay(queue, {}), replay(queue, {})])).map((steps) => steps.at(-1));
      for (const end of ends) expect(end?.replayed).toBe(end?.total);
      expect(ends.reduce((sum, end) => sum + (end?.replayed ?? 0), 0)).toBe(1_000);
      expect((await queue.stats(now())).waiting).toBe(1_000);
    });

    test('can be given up in the middle', async () => {
      const queue = await open();
      await appendMany(queue, 2_500, 'a');
      await drain(queue, now);
      for await (const { replayed } of queue.replay({}, now())) if (replayed > 0) break;
      const { waiting } = await queue.stats(now());
      expect(waiting).toBeGreaterThan(0);
      expect(waiting).toBeLessThan(2_500);
      expect(await drain(queue, now)).toHaveLength(waiting);
    });

    test('keeps the order of a key: an earlier event that is replayed goes before those that wait', async () => {
      const queue = await open();
      const key = { endpoint: 'a', orderKey: 'k' };
      const [one = '', two = ''] = await appendMany(queue, 2, key);
      await settleAll(queue, now, () => ({ kind: 'dead' }));
      const [three = ''] = await appendMany(queue, 1, key);
      await count(queue, { endpoint: 'a', states: ['dead'] });
      expect((await drain(queue, now)).map(({ event }) => event)).toEqual([one, two, three]);
    });

    test('never sends two deliveries of a key at once, although the earlier one is replayed while the later one is in flight', async () => {
      const queue = await open();
      const key = { endpoint: 'a', orderKey: 'k' };
      const [one = ''] = await appendMany(queue, 1, key);
      await drain(queue, now);
      const [two] = await appendMany(queue, 1, key);
      const lanes = holdLanes(queue);
      const { lane } = await lanes.next('a');
      const inFlight = await lane.take(5, now());
      expect(inFlight).toMatchObject([{ event: two }]);
      await count(queue, { event: one, endpoint: 'a' });
      expect(await lane.take(5, now())).toEqual([]);
      await lane.settle(
        inFlight.map((delivery) => settled(delivery, { kind: 'delivered' }, now())),
        PROVEN,
      );
      expect(await until(async () => (await lane.take(5, now()))[0])).toMatchObject({ event: one, isReplay: true });
      await lanes.stop();
    });
  });
}
