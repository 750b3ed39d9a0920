import { describe, expect, test } from 'vitest';
import type { DeliveryFilter, DeliveryQueue, Lane, RepairProgress, Settlement } from '../../src/provider/queue/delivery-queue.ts';
import { until } from '../support/gate.ts';
import { appendMany, newEvent, PROVEN, settled } from '../support/queue/events.ts';
import { drain, holdLanes } from '../support/queue/lanes.ts';
import type { QueueFixture } from './delivery-queue.contract.ts';
import { settleAll } from './delivery-queue-records.contract.ts';

const START = 1_700_000_000_000;

/** What every queue keeps to when deliveries are replayed. */
export function describeReplays({ open, close, store }: QueueFixture): void {
  const now = (): number => store().clock.now();
  const replay = async (queue: DeliveryQueue, filter: DeliveryFilter): Promise<RepairProgress[]> => {
    const steps: RepairProgress[] = [];
    for await (const step of queue.repair('retry', filter, now())) steps.push(step);
    return steps;
  };
  /** How many deliveries a replay made due. */
  const count = async (queue: DeliveryQueue, filter: DeliveryFilter): Promise<number> => {
    const last = (await replay(queue, filter)).at(-1);
    expect(last?.changed).toBe(last?.total);
    return last?.changed ?? -1;
  };

  const settleTaken = async (lane: Lane, settlement: Settlement): Promise<void> => {
    for (const delivery of await lane.take(9, now())) await lane.settle([settled(delivery, settlement, now())], PROVEN);
  };
  const last = async (steps: AsyncIterable<RepairProgress>): Promise<RepairProgress | undefined> => {
    let found: RepairProgress | undefined;
    for await (const step of steps) found = step;
    return found;
  };

  describe('repairs', () => {
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
      const { found: deliveries } = await queue.find({ event: id }, { limit: 1 });
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

    test('makes waiting deliveries due now, at their place in the schedule', async () => {
      const queue = await open();
      const [id = ''] = await appendMany(queue, 1, 'a');
      const lanes = holdLanes(queue);
      const first = await lanes.next('a');
      const [delivery] = await first.lane.take(1, now());
      if (delivery === undefined) throw new Error('nothing was due');
      await first.lane.settle([settled(delivery, { kind: 'retry', due: now() + 3_600_000 }, now())], PROVEN);
      expect(await first.lane.take(1, now())).toEqual([]);
      expect(await count(queue, { event: id, states: ['waiting'] })).toBe(1);
      first.end();
      const again = await lanes.next('a');
      expect(await again.lane.take(1, now())).toMatchObject([{ event: id, attempt: 1, tries: 1, isReplay: false }]);
      await lanes.stop();
    });

    test('makes a delivery in flight due now once its attempt fails, and only once', async () => {
      const queue = await open();
      const later = { kind: 'retry', due: now() + 3_600_000 } as const;
      const kinds: readonly Settlement[] = [later, { kind: 'dead' }, { kind: 'postponed', due: now() + 3_600_000 }];
      for (const settlement of kinds) {
        const [id = ''] = await appendMany(queue, 1, 'a', now());
        const lanes = holdLanes(queue);
        const { lane } = await lanes.next('a');
        const inFlight = await lane.take(5, now());
        expect(await count(queue, { event: id })).toBe(1);
        expect(await lane.take(5, now())).toEqual([]);
        for (const each of inFlight) await lane.settle([settled(each, settlement, now())], PROVEN);
        const again = await lane.take(5, now());
        expect(again).toMatchObject([{ event: id, attempt: settlement.kind === 'postponed' ? 0 : 1 }]);
        expect((await queue.find({ event: id }, { limit: 1 })).found[0]?.settledAt).toBeUndefined();
        for (const each of again) await lane.settle([settled(each, later, now())], PROVEN);
        expect(await lane.take(5, now())).toEqual([]);
        expect(await queue.stats(now())).toMatchObject({ waiting: 1, dead: 0 });
        await last(queue.repair('purge', { event: id }, now()));
        await lanes.stop();
      }
    });

    test('sends a delivery again that was canceled, or purged, and retried during an attempt that does not succeed', async () => {
      const queue = await open();
      const retry = async (event: string): Promise<void> => {
        await last(queue.repair('cancel', { event }, now()));
        expect(await count(queue, { event })).toBe(1);
      };
      const recover = async (event: string): Promise<void> => {
        await last(queue.repair('purge', { event, states: ['waiting'] }, now()));
        expect(await queue.addDelivery(event, 'a', now())).toBe(true);
      };
      const later = { kind: 'retry', due: now() + 3_600_000 } as const;
      const postponed = { kind: 'postponed', due: now() + 3_600_000 } as const;
      for (const repair of [retry, recover])
        for (const settlement of [later, { kind: 'dead' } as const, { kind: 'skipped' } as const, postponed]) {
          const [event = ''] = await appendMany(queue, 1, 'a', now());
          const lanes = holdLanes(queue);
          const { lane } = await lanes.next('a');
          // The second attempt fences with the same number as the first one of a delivery that was never tried.
          for (let n = 1; n <= 2; n++) {
            const inFlight = await lane.take(5, now());
            expect(inFlight).toMatchObject([{ event, tries: 0 }]);
            await store().pass(5);
            await repair(event);
            for (const each of inFlight) await lane.settle([settled(each, settlement, now())], PROVEN);
            expect((await queue.find({ event }, { limit: 1 })).found).toMatchObject([{ state: 'waiting' }]);
          }
          await settleTaken(lane, later);
          expect(await lane.take(5, now())).toEqual([]);
          expect(await queue.stats(now())).toMatchObject({ waiting: 1, dead: 0, skipped: 0 });
          await last(queue.repair('purge', { event }, now()));
          await lanes.stop();
        }
    });

    test.each(['retried', 'canceled and retried'])(
      'leaves a delivery delivered whose attempt succeeds, although it was %s meanwhile',
      async (how) => {
        const queue = await open();
        const [id = ''] = await appendMany(queue, 1, 'a');
        const lanes = holdLanes(queue);
        const { lane } = await lanes.next('a');
        const inFlight = await lane.take(5, now());
        if (how !== 'retried') await last(queue.repair('cancel', { event: id }, now()));
        expect(await count(queue, { event: id })).toBe(1);
        for (const each of inFlight) await lane.settle([settled(each, { kind: 'delivered' }, now())], PROVEN);
        expect(await lane.take(5, now())).toEqual([]);
        expect(await queue.stats(now())).toMatchObject({ waiting: 0, events: 0 });
        await lanes.stop();
      },
    );

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
      const unrouted = newEvent([]);
      await queue.append([event, unrouted]);
      expect(await queue.addDelivery(event.id, 'new', now())).toBe(true);
      expect(await queue.addDelivery(event.id, 'new', now())).toBe(false);
      expect(await queue.addDelivery('msg_unknown', 'new', now())).toBe(false);
      expect(await queue.addDelivery(unrouted.id, 'new', now())).toBe(true);
      expect(await queue.stats(now())).toMatchObject({ waiting: 3, events: 2 });
      const received = await drain(queue, now);
      expect(received.map(({ event: id, endpoint, isReplay }) => [id === event.id, endpoint, isReplay]).sort()).toEqual([
        [false, 'new', true],
        [true, 'a', false],
        [true, 'new', true],
      ]);
      expect(await queue.stats(now())).toMatchObject({ waiting: 0, events: 0, bytes: 0 });
    });

    test('cancels what waits, which frees its place, and can be retried', async () => {
      const queue = await open({ maxEvents: 3 });
      const ids = await appendMany(queue, 3, 'a');
      await expect(queue.append([newEvent(['b'])])).rejects.toMatchObject({ code: 'queue_full' });
      expect(await last(queue.repair('cancel', { endpoint: 'a' }, now()))).toEqual({ changed: 3, total: 3 });
      expect(await queue.stats(now())).toMatchObject({ waiting: 0, events: 0, skipped: 3, bytes: 0 });
      expect(await queue.append([newEvent(['b'])])).toEqual(['stored']);
      expect(await drain(queue, now)).toMatchObject([{ endpoint: 'b' }]);
      expect(await count(queue, { event: ids[1] })).toBe(1);
      expect(await drain(queue, now)).toMatchObject([{ event: ids[1], endpoint: 'a' }]);
    });

    test.each(['retry', 'addDelivery'] as const)(
      '%s starts a lane at once, whatever pause its last run asked for',
      async (way) => {
        const queue = await open();
        const [id = ''] = await appendMany(queue, 1, 'a');
        await queue.append([newEvent([], { id: `${id}_other` })]);
        const lanes = holdLanes(queue);
        const held = await lanes.next('a');
        await settleTaken(held.lane, { kind: 'dead' });
        held.end({ notBefore: now() + 3_600_000 });
        if (way === 'retry') expect(await count(queue, { type: 'invoice.paid' })).toBe(1);
        else expect(await queue.addDelivery(`${id}_other`, 'a', now())).toBe(true);
        expect(await (await lanes.next('a')).lane.take(9, now())).toHaveLength(1);
        await lanes.stop();
      },
    );

    test.each(['cancel', 'purge', 'erase'] as const)(
      '%s of the first delivery of a key starts a lane for the next one',
      async (way) => {
        const queue = await open();
        const [first = '', second] = await appendMany(queue, 2, { endpoint: 'a', orderKey: 'k' });
        const lanes = holdLanes(queue);
        const held = await lanes.next('a');
        for (const delivery of await held.lane.take(9, now()))
          await held.lane.settle([settled(delivery, { kind: 'retry', due: now() + 3_600_000 }, now())], PROVEN);
        held.end();
        await until(() => lanes.running.length === 0);
        if (way === 'erase') await queue.erase({ event: first }, now());
        else await last(queue.repair(way, { event: first }, now()));
        expect((await (await lanes.next('a')).lane.take(9, now())).map(({ event }) => event)).toEqual([second]);
        await lanes.stop();
      },
    );

    test('purges deliveries in any state, and keeps their IDs', async () => {
      const queue = await open();
      const events = [newEvent(['a', 'b']), newEvent(['a'])];
      await queue.append(events);
      await settleAll(queue, now, (_, endpoint) => ({ kind: endpoint === 'a' ? 'dead' : 'delivered' }));
      await appendMany(queue, 2, 'a');
      expect(await queue.count('purge', { endpoint: 'a' }, now())).toBe(4);
      expect(await last(queue.repair('purge', { endpoint: 'a' }, now()))).toEqual({ changed: 4, total: 4 });
      expect(await queue.stats(now())).toMatchObject({ waiting: 0, dead: 0, skipped: 0, events: 0, bytes: 0, storedEvents: 4 });
      expect((await queue.find({}, { limit: 9 })).found).toMatchObject([{ endpoint: 'b', state: 'delivered' }]);
      expect(await queue.append(events)).toEqual(['duplicate', 'duplicate']);
      expect(await queue.prune(START + 1_000, START, 10)).toBe(4);
    });

    test('erases the body of an event, or all of a tenant, and keeps the IDs', async () => {
      const queue = await open();
      const events = [
        newEvent(['a']),
        newEvent(['a'], { tenant: 't' }),
        newEvent(['a'], { tenant: 't' }),
        newEvent(['a'], { tenant: 'u' }),
      ];
      await queue.append(events);
      expect(await queue.erase({ event: events[0]?.id ?? '' }, now())).toBe(1);
      expect(await queue.erase({ event: events[0]?.id ?? '' }, now())).toBe(0);
      expect(await queue.erase({ tenant: 't' }, now())).toBe(2);
      expect(await queue.erase({ tenant: '' }, now())).toBe(0);
      expect(await queue.getEvent(events[1]?.id ?? '')).toMatchObject({ isErased: true, body: Buffer.alloc(0), metadata: '{}' });
      expect(await queue.getEvent(events[3]?.id ?? '')).toMatchObject({ isErased: false, body: events[3]?.body });
      expect(await count(queue, {})).toBe(1);
      expect(await drain(queue, now)).toMatchObject([{ event: events[3]?.id }]);
      expect(await queue.append([events[1] ?? newEvent()])).toEqual(['duplicate']);
    });

    test('tell the run of a lane that what it took is outdated, on any replica; what it gives back and still waits can be taken again', async () => {
      const queue = await open();
      const other = store().isShared ? await open() : queue;
      const event = newEvent(['a'], { tenant: 't' });
      const stay = newEvent(['a']);
      await queue.append([event, stay]);
      const lanes = holdLanes(queue);
      const { lane } = await lanes.next('a');
      const repairs: readonly (() => Promise<unknown>)[] = [
        () => last(other.repair('cancel', { event: event.id }, now())),
        () => last(other.repair('retry', { event: event.id }, now())),
        () => last(other.repair('purge', { event: event.id, states: ['waiting'] }, now())),
        () => other.addDelivery(event.id, 'a', now()),
        () => other.erase({ tenant: 't' }, now()),
      ];
      const left = [[stay], [stay, event], [stay], [stay, event], [stay]];
      let taken = await lane.take(5, now());
      expect([taken.length, (await lane.take(5, now())).length, lane.isOutdated]).toEqual([2, 0, false]);
      for (const [i, repair] of repairs.entries()) {
        await repair();
        await until(() => lane.isOutdated || undefined);
        lane.giveBack(taken);
        expect(lane.isOutdated).toBe(false);
        taken = await lane.take(5, now());
        expect(taken.map((each) => each.event)).toEqual(left[i]?.map(({ id }) => id));
      }
      await lanes.stop();
    });

    test('creates no delivery of an event that was erased', async () => {
      const queue = await open();
      const event = newEvent([]);
      await queue.append([event]);
      await queue.erase({ event: event.id }, now());
      expect(await queue.addDelivery(event.id, 'new', now())).toBe(false);
      expect(await queue.stats(now())).toMatchObject({ waiting: 0, events: 0 });
    });

    test('creates a delivery at its place in the order of its key', async () => {
      const queue = await open();
      const [first, second, third] = [newEvent([]), newEvent([]), newEvent([])];
      await queue.append([first, second, third]);
      for (const { id } of [second, first, third]) expect(await queue.addDelivery(id, 'a', now(), 'k')).toBe(true);
      expect(await queue.addDelivery(first.id, 'b', now(), 'k')).toBe(true);
      const lanes = holdLanes(queue);
      const held = await lanes.next('a');
      for (const { id } of [first, second, third]) {
        const taken = await held.lane.take(9, now());
        expect(taken.map(({ event }) => event)).toEqual([id]);
        for (const delivery of taken) await held.lane.settle([settled(delivery, { kind: 'delivered' }, now())], PROVEN);
      }
      await lanes.stop();
      expect(await queue.stats(now())).toMatchObject({ waiting: 1, events: 1 });
    });

    test('selects deliveries to endpoints that may get their event', async () => {
      const queue = await open();
      await queue.append([newEvent(['a', 'b', 'c'], { tenant: 't' }), newEvent(['a', 'b', 'c'])]);
      const all = { states: ['waiting'] } as const;
      const receivers = [
        { endpoint: 'a', allTenants: false, tenant: 't' },
        { endpoint: 'b', allTenants: true },
        { endpoint: 'c', allTenants: false },
        { endpoint: 'unknown', allTenants: true },
      ];
      expect(await queue.count('retry', { ...all, receivers }, now())).toBe(4);
      expect(await queue.count('retry', { ...all, receivers, endpoint: 'a' }, now())).toBe(1);
      expect(await queue.count('retry', { ...all, receivers, tenant: 't', to: START + 1e9 }, now())).toBe(2);
      expect(await queue.count('retry', { ...all, receivers: [] }, now())).toBe(0);
      expect(await last(queue.repair('cancel', { ...all, receivers }, now()))).toEqual({ changed: 4, total: 4 });
      const { found: deliveries } = await queue.find({ ...all }, { limit: 9 });
      expect(deliveries.map(({ endpoint, tenant }) => [endpoint, tenant])).toEqual([
        ['a', undefined],
        ['c', 't'],
      ]);
    });

    test('compares a repeated event without what was filled in when it was posted', async () => {
      const queue = await open();
      const post = async (body: string, comparedFrom: number) => {
        const [result] = await queue.append([{ ...newEvent(), id: 'same', body: Buffer.from(body), comparedFrom }]);
        return result;
      };
      expect(await post('1:data', 2)).toBe('stored');
      expect(await post('2:data', 2)).toBe('duplicate');
      expect(await post('2:date', 2)).toBe('conflict');
      expect(await post('1:data', 0)).toBe('conflict');
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
      await appendMany(queue, 1_300, 'a');
      await drain(queue, now);
      const steps: RepairProgress[] = [];
      for await (const step of queue.repair('retry', { endpoint: 'a' }, now())) {
        steps.push(step);
        await queue.append([newEvent(['a'])]);
      }
      expect(steps.length).toBeGreaterThan(2);
      expect(steps.map(({ changed }) => changed)).toEqual(steps.map(({ changed }) => changed).toSorted((a, b) => a - b));
      expect(steps.at(-1)).toEqual({ changed: 1_300, total: 1_300 });
      expect(await drain(queue, now)).toHaveLength(1_300 + steps.length);
    });

    test('ends although the replayed deliveries fail again meanwhile', async () => {
      const queue = await open();
      await appendMany(queue, 1_200, 'a');
      await settleAll(queue, now, () => ({ kind: 'dead' }));
      let steps = 0;
      for await (const { total } of queue.repair('retry', { states: ['dead'] }, now())) {
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
      const steps: RepairProgress[] = [];
      for await (const step of queue.repair('retry', { states: ['dead'] }, now())) {
        if (steps.length === 0) {
          await store().pass(10);
          await settleLane('b');
        }
        steps.push(step);
      }
      expect(steps.length).toBeGreaterThan(1);
      expect(new Set(steps.map(({ total }) => total))).toEqual(new Set([600]));
      expect(steps.at(-1)).toEqual({ changed: 600, total: 600 });
      expect(await queue.backlogs(['a', 'b'], now())).toMatchObject([{ waiting: 600 }, { waiting: 0 }]);
      await lanes.stop();
    });

    test('reports what it made due, not what others did at the same time', async () => {
      const queue = await open();
      await appendMany(queue, 1_000, 'a');
      await settleAll(queue, now, () => ({ kind: 'dead' }));
      const ends = (await Promise.all([replay(queue, { states: ['dead'] }), replay(queue, { states: ['dead'] })])).map((steps) =>
        steps.at(-1),
      );
      for (const end of ends) expect(end?.changed).toBe(end?.total);
      expect(ends.reduce((sum, end) => sum + (end?.changed ?? 0), 0)).toBe(1_000);
      expect((await queue.stats(now())).waiting).toBe(1_000);
    });

    test('can be given up in the middle', async () => {
      const queue = await open();
      await appendMany(queue, 2_500, 'a');
      await drain(queue, now);
      for await (const { changed } of queue.repair('retry', {}, now())) if (changed > 0) break;
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

    test('keeps a delivery that fails or is given back behind an earlier one of its key that was replayed during its attempt', async () => {
      const queue = await open();
      for (const kind of ['retry', 'postponed'] as const) {
        const key = { endpoint: 'a', orderKey: kind };
        const [one = ''] = await appendMany(queue, 1, key);
        await settleAll(queue, now, () => ({ kind: 'dead' }));
        const [two = ''] = await appendMany(queue, 1, key);
        const lanes = holdLanes(queue);
        const { lane } = await lanes.next('a');
        const [later] = await lane.take(5, now());
        await count(queue, { event: one });
        await lane.settle(later === undefined ? [] : [settled(later, { kind, due: now() }, now())], PROVEN);
        const [first, ...others] = await lane.take(5, now());
        expect([later?.event, first?.event, others]).toEqual([two, one, []]);
        const waits = { kind: 'retry', due: now() + 60_000 } as const;
        await lane.settle(first === undefined ? [] : [settled(first, waits, now())], PROVEN);
        expect(await lane.take(5, now())).toEqual([]);
        await last(queue.repair('cancel', { event: one }, now()));
        expect(await until(async () => (await lane.take(5, now()))[0])).toMatchObject({ event: two });
        await lanes.stop();
        await drain(queue, now);
      }
    });
  });
}
