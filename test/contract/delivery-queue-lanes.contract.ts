import { describe, expect, test } from 'vitest';
import type { Delivery, Lane, LaneResult } from '../../src/provider/queue/delivery-queue.ts';
import { until } from '../support/gate.ts';
import { appendMany, newEvent, PROVEN, settled } from '../support/queue/events.ts';
import { deliverAll, drain, holdLanes } from '../support/queue/lanes.ts';
import { NO_HOOKS } from '../support/queue/sqlite-store.ts';
import { createRandom } from '../support/seeded.ts';
import type { QueueFixture } from './delivery-queue.contract.ts';

const MIB = 1024 * 1024;

/** What every queue keeps to when it hands out lanes. */
export function describeLanes({ open, close, store }: QueueFixture): void {
  const now = (): number => store().clock.now();

  describe('lanes', () => {
    test('runs one lane for each endpoint with due deliveries, and none for others', async () => {
      const queue = await open();
      await queue.append([newEvent(['a', 'b']), newEvent(['b']), newEvent([{ endpoint: 'off', isSkipped: true }])]);
      const lanes = holdLanes(queue);
      await Promise.all([lanes.next('a'), lanes.next('b')]);
      await store().pass(50);
      expect(lanes.running.map(({ lane }) => lane.endpoint).sort()).toEqual(['a', 'b']);
      await lanes.stop();
    });

    test('takes no more bytes than asked for, in order, and says what the next delivery needs', async () => {
      const queue = await open();
      const sizes = [1_000, 200_000, 1_000];
      for (const size of sizes) await queue.append([{ ...newEvent(['a']), body: Buffer.alloc(size, 0x20) }]);
      const lanes = holdLanes(queue);
      const { lane } = await lanes.next('a');
      const take = async (maxBytes: number, only?: 'first' | 'fresh') => {
        const taken = await lane.take(9, now(), only, maxBytes);
        return taken.map(({ body }) => body.length);
      };
      expect(await take(100)).toEqual([]);
      expect(lane.needs).toBeGreaterThan(1_000);
      expect(await take(65_536, 'first')).toEqual([1_000]);
      expect(lane.needs).toBeGreaterThanOrEqual(200_000);
      expect(lane.needs).toBeLessThan(202_000);
      expect(await take(65_536)).toEqual([]);
      expect(await take(lane.needs ?? 0)).toEqual([200_000]);
      expect(await take(65_536)).toEqual([1_000]);
      expect(lane.needs).toBeUndefined();
      await lanes.stop();
    });

    test('waits 5 s for memory to read a delivery, reports it once a minute, and takes what fits meanwhile, in the order of each key', async () => {
      let free = Number.POSITIVE_INFINITY;
      let asked = 0;
      const hasRoom = (bytes: number): boolean => {
        asked++;
        return bytes <= free;
      };
      const reports: [endpoint: string, bytes: number][] = [];
      const queue = await open({
        memory: { hasRoom },
        hooks: { ...NO_HOOKS, onNoMemory: (...report) => reports.push(report) },
      });
      const append = async (size: number, orderKey?: string): Promise<string> => {
        const event = newEvent([{ endpoint: 'a', orderKey }], { body: Buffer.alloc(size, 0x20) });
        await queue.append([event]);
        return event.id;
      };
      const large = [await append(6 * MIB, 'k'), await append(6 * MIB)];
      await append(1_000, 'k');
      const others = [await append(1_000, 'l'), await append(1_250_000), await append(1_000)];
      free = 13 * MIB;
      const lanes = holdLanes(queue);
      const first = await lanes.next('a');
      const take = async ({ lane }: typeof first, count = 9): Promise<string[]> => {
        const taken = await lane.take(count, now(), undefined, Math.max(65_536, lane.needs ?? 0));
        return taken.map(({ event }) => event);
      };
      const takeLater = async (held: typeof first): Promise<string[]> => {
        let taken: string[] | undefined;
        const taking = take(held).then((found) => {
          taken = found;
        });
        // Time stands still while the database reads, however long that takes.
        for (let seen = 0; taken === undefined; ) {
          if (seen === asked) await new Promise((resolve) => setImmediate(resolve));
          else {
            seen = asked;
            await store().pass(1_000);
          }
        }
        await taking;
        return taken;
      };
      expect(await take(first)).toEqual([]);
      expect(await takeLater(first)).toEqual([]);
      expect(first.lane.isLeft).toBe(true);
      expect(reports).toEqual([['a', first.lane.needs]]);
      first.end({ notBefore: now() });
      const second = await lanes.next('a');
      expect([await take(second), second.lane.isLeft]).toEqual([[], false]);
      const more: string[] = [];
      for (let takes = 0; takes < 2; takes++) more.push(...(await take(second, 2)));
      expect([more, second.lane.isLeft]).toEqual([others, false]);
      expect(second.lane.needs).toBeGreaterThan(6 * MIB);
      expect([await takeLater(second), second.lane.isLeft, reports.length]).toEqual([[], true, 1]);
      free = Number.POSITIVE_INFINITY;
      expect(await take(second)).toEqual(large.slice(0, 1));
      expect(await take(second)).toEqual(large.slice(1));
      await lanes.stop();
      expect(await drain(queue, now)).toHaveLength(6);
    });

    test('takes deliveries without their bodies, to skip them, also while there is no memory', async () => {
      let hasRoom = true;
      const queue = await open({ memory: { hasRoom: () => hasRoom } });
      for (const size of [3 * MIB, 100]) await queue.append([newEvent(['a'], { body: Buffer.alloc(size, 0x20) })]);
      hasRoom = false;
      const lanes = holdLanes(queue);
      const { lane } = await lanes.next('a');
      const taken = await lane.take(9, now(), 'heads');
      expect(taken.map(({ body, attempt }) => [body.length, attempt])).toEqual([
        [0, 0],
        [0, 0],
      ]);
      await lane.settle(
        taken.map((delivery) => settled(delivery, { kind: 'skipped' }, now())),
        PROVEN,
      );
      await lanes.stop();
      expect((await queue.find({}, { limit: 9 })).found.map(({ state }) => state)).toEqual(['skipped', 'skipped']);
    });

    test('never runs two lanes of an endpoint at once, nor more lanes than allowed', async () => {
      const queue = await open();
      const random = createRandom(1);
      const busy = new Set<string>();
      let most = 0;
      let overlaps = 0;
      const serving = queue.serve(3, async (lane) => {
        if (busy.has(lane.endpoint)) overlaps++;
        busy.add(lane.endpoint);
        most = Math.max(most, busy.size);
        const deliveries = await lane.take(1 + random(3), now());
        await new Promise((resolve) => setTimeout(resolve, random(3)));
        await lane.settle(
          deliveries.map((delivery) => settled(delivery, { kind: 'delivered' }, now())),
          PROVEN,
        );
        busy.delete(lane.endpoint);
        return {};
      });
      await Promise.all(Array.from({ length: 60 }, (_, i) => queue.append([newEvent([`e${i % 6}`, `e${(i + 1) % 6}`])])));
      await until(async () => (await queue.stats(now())).waiting === 0);
      await serving.stop();
      expect([most, overlaps]).toEqual([3, 0]);
    });

    test('serves a tenant with one endpoint before the second endpoint of a tenant with many that were due before', async () => {
      const queue = await open();
      await queue.append([newEvent(Array.from({ length: 20 }, (_, i) => `big-${i}`))]);
      await queue.append([newEvent(['small-0'])]);
      const order: string[] = [];
      const run = async (lane: Lane): Promise<LaneResult> => {
        order.push(lane.endpoint);
        const deliveries = await lane.take(1, now());
        await lane.settle(
          deliveries.map((delivery) => settled(delivery, { kind: 'delivered' }, now())),
          PROVEN,
        );
        return {};
      };
      const serving = queue.serve(1, run, (endpoint) => endpoint.split('-')[0]);
      await until(async () => (await queue.stats(now())).waiting === 0);
      await serving.stop();
      expect(order.indexOf('small-0')).toBeLessThanOrEqual(2);
    });

    test('runs a lane for an event that is appended while nothing is served, and one while another lane runs', async () => {
      const queue = await open();
      const lanes = holdLanes(queue);
      await store().pass(20);
      expect(lanes.started()).toBe(0);
      await queue.append([newEvent(['a'])]);
      await lanes.next('a');
      await queue.append([newEvent(['b'])]);
      await lanes.next('b');
      await lanes.stop();
    });

    test('serves an endpoint again if an event was appended during its run', async () => {
      const queue = await open();
      await queue.append([newEvent(['a'])]);
      const lanes = holdLanes(queue);
      const first = await lanes.next('a');
      const taken = await first.lane.take(10, now());
      expect(taken).toHaveLength(1);
      const late = newEvent(['a']);
      await queue.append([late]);
      await first.lane.settle(
        taken.map((delivery) => settled(delivery, { kind: 'delivered' }, now())),
        PROVEN,
      );
      first.end();
      const second = await lanes.next('a');
      expect(await second.lane.take(10, now())).toMatchObject([{ event: late.id }]);
      await lanes.stop();
    });

    test('takes bodies that keep no other memory: an attempt can be slow, and only its body counts', async () => {
      const queue = await open();
      const body = Buffer.alloc(1_024, 'x');
      await queue.append(Array.from({ length: 60 }, () => newEvent(['a'], { body })));
      const lanes = holdLanes(queue);
      const { lane } = await lanes.next('a');
      const taken = await lane.take(60, now());
      expect(taken.map((delivery) => delivery.body.buffer.byteLength)).toEqual(Array(60).fill(1_024));
      expect(taken.every((delivery) => delivery.body.equals(body))).toBe(true);
      await lanes.stop();
    });

    test('takes an event that was appended during the run', async () => {
      const queue = await open();
      await queue.append([newEvent(['a'])]);
      const lanes = holdLanes(queue);
      const { lane } = await lanes.next('a');
      await lane.take(10, now());
      expect(await lane.take(10, now())).toEqual([]);
      const late = newEvent(['a']);
      await queue.append([late]);
      expect(await lane.take(10, now())).toMatchObject([{ event: late.id }]);
      await lanes.stop();
    });

    test('loses no wake-up when events are appended while lanes take, settle and end', async () => {
      const queue = await open();
      const received = new Set<string>();
      const serving = deliverAll(queue, now, ({ event, endpoint }) => received.add(`${event} ${endpoint}`), 4);
      const random = createRandom(2);
      let appended = 0;
      const appendSome = async (): Promise<void> => {
        for (let i = 0; i < 40; i++) {
          await queue.append([newEvent([`e${random(3)}`])]);
          appended++;
          for (let turns = random(4); turns > 0; turns--) await new Promise((resolve) => setImmediate(resolve));
        }
      };
      await Promise.all([appendSome(), appendSome(), appendSome(), appendSome()]);
      await until(() => received.size === appended);
      await serving.stop();
      expect((await queue.stats(now())).waiting).toBe(0);
    });

    test('serves an endpoint not before the time that its run returned, although deliveries are due', async () => {
      const queue = await open();
      await appendMany(queue, 3, 'a');
      const lanes = holdLanes(queue);
      const first = await lanes.next('a');
      first.end({ notBefore: now() + 600 });
      await queue.append([newEvent(['a']), newEvent(['b'])]);
      await lanes.next('b');
      await store().pass(200);
      expect(lanes.started()).toBe(2);
      await store().pass(600);
      const second = await lanes.next('a');
      expect(await second.lane.take(10, now())).toHaveLength(4);
      await lanes.stop();
    });

    test('serves an event that is appended during a pause at its end, although the retry before it is later', async () => {
      const queue = await open();
      await appendMany(queue, 1, 'a');
      const lanes = holdLanes(queue);
      const first = await lanes.next('a');
      const [delivery] = await first.lane.take(1, now());
      await first.lane.settle([settled(delivery as Delivery, { kind: 'retry', due: now() + 3_600_000 }, now())], PROVEN);
      first.end({ notBefore: now() + 300 });
      await store().pass(50);
      await queue.append([newEvent(['a'])]);
      await store().pass(400);
      const second = await lanes.next('a');
      expect(await second.lane.take(10, now())).toHaveLength(1);
      await lanes.stop();
    });

    test('serves an endpoint at once when it is woken, whatever its run returned', async () => {
      const queue = await open();
      await appendMany(queue, 1, 'a');
      const lanes = holdLanes(queue);
      (await lanes.next('a')).end({ notBefore: now() + 3_600_000 });
      await store().pass(50);
      expect(lanes.running).toEqual([]);
      await queue.wake('a');
      expect(await (await lanes.next('a')).lane.take(10, now())).toHaveLength(1);
      await lanes.stop();
    });

    test('heeds a wake-up during the run, whatever the run then returns', async () => {
      const queue = await open();
      await appendMany(queue, 1, 'a');
      const lanes = holdLanes(queue);
      const first = await lanes.next('a');
      await queue.wake('a');
      first.end({ notBefore: now() + 3_600_000 });
      await lanes.next('a');
      await lanes.stop();
    });

    test('wakes endpoints that are unknown, or have nothing due, without harm', async () => {
      const queue = await open();
      await queue.wake('nobody');
      const lanes = holdLanes(queue);
      await queue.wake('nobody');
      await queue.append([newEvent(['a'])]);
      await lanes.next('a');
      await lanes.stop();
    });

    test('serves a delivery when it becomes due, and not before', async () => {
      const queue = await open();
      await queue.append([newEvent(['a'])]);
      const lanes = holdLanes(queue);
      const first = await lanes.next('a');
      const [delivery] = await first.lane.take(1, now());
      if (delivery === undefined) throw new Error('nothing was due');
      const due = now() + 500;
      await first.lane.settle([settled(delivery, { kind: 'retry', due }, now())], PROVEN);
      expect(await first.lane.take(1, now())).toEqual([]);
      first.end();
      await store().pass(200);
      expect(lanes.started()).toBe(1);
      await store().pass(500);
      const second = await lanes.next('a');
      expect(await second.lane.take(1, now())).toMatchObject([{ event: delivery.event, attempt: 1, tries: 1, due }]);
      await lanes.stop();
    });

    test('lets an endpoint go to the back of the queue after each run, so that none waits behind the backlog of another', async () => {
      const queue = await open();
      await appendMany(queue, 200, 'big');
      const small = await appendMany(queue, 3, 'small');
      const order: string[] = [];
      const serving = queue.serve(1, async (lane) => {
        const [delivery] = await lane.take(1, now());
        if (delivery === undefined) return {};
        order.push(delivery.event);
        await lane.settle([settled(delivery, { kind: 'delivered' }, now())], PROVEN);
        return {};
      });
      await until(() => small.every((id) => order.includes(id)));
      await serving.stop();
      expect(order.length).toBeLessThan(50);
    });

    test('serves an endpoint again whose run rejected', async () => {
      const queue = await open();
      const [id] = await appendMany(queue, 1, 'a');
      const lanes = holdLanes(queue);
      const first = await lanes.next('a');
      await first.lane.take(1, now());
      first.fail(new Error('a bug in the runner'));
      const again = await until(async () => {
        await store().pass(1_000);
        return lanes.running[0];
      });
      expect(await again.lane.take(1, now())).toMatchObject([{ event: id, attempt: 0 }]);
      await lanes.stop();
    });

    test('hands out again what a run took and did not settle', async () => {
      const queue = await open();
      const [id] = await appendMany(queue, 1, 'a');
      const lanes = holdLanes(queue);
      const first = await lanes.next('a');
      await first.lane.take(1, now());
      first.end();
      expect(await (await lanes.next('a')).lane.take(1, now())).toMatchObject([{ event: id, attempt: 0 }]);
      await lanes.stop();
    });

    test('gives a lane the state that its last run settled, also after the store was opened again', async () => {
      const queue = await open();
      const state = { failures: 3, firstFailureAt: 5, pausedUntil: 7, isProven: false, tokens: 0.5, tokensAt: 9, since: 11 };
      await appendMany(queue, 2, 'a');
      const lanes = holdLanes(queue);
      const first = await lanes.next('a');
      expect(first.lane.state).toBeUndefined();
      const [delivery] = await first.lane.take(1, now());
      if (delivery === undefined) throw new Error('nothing was due');
      await first.lane.settle([settled(delivery, { kind: 'delivered' }, now())], state);
      first.end();
      const second = await lanes.next('a');
      expect(second.lane.state).toEqual(state);
      await second.lane.settle([], { ...state, failures: 4 });
      await lanes.stop();
      await close(queue);
      const again = holdLanes(await open());
      expect((await again.next('a')).lane.state).toEqual({ ...state, failures: 4 });
      await again.stop();
    });

    test('reports the state of each lane to others, in the order asked, also after the store was opened again', async () => {
      const queue = await open();
      const lastFailure = { at: 3, duration: 5, status: 503, outcome: 'server_error', detail: 'responded 503' };
      const failing = { failures: 3, firstFailureAt: 1, lastFailure, isProven: false, since: 0 };
      await queue.append([newEvent(['a', 'b', 'never'])]);
      const lanes = holdLanes(queue);
      const [a, b] = [await lanes.next('a'), await lanes.next('b')];
      expect(await queue.laneStates(['a', 'b'])).toEqual([undefined, undefined]);
      await a.lane.settle([], failing);
      await b.lane.settle([], PROVEN);
      expect(await queue.laneStates(['b', 'nobody', 'never', 'a'])).toEqual([PROVEN, undefined, undefined, failing]);
      expect(await queue.laneStates([])).toEqual([]);
      await lanes.stop();
      await close(queue);
      expect(await (await open()).laneStates(['a', 'b'])).toEqual([failing, PROVEN]);
    });

    test('lists the inboxes with deliveries that no app has handled, and no other endpoints', async () => {
      const queue = await open();
      expect(await queue.inboxes()).toEqual([]);
      await queue.append([newEvent(['inbox:waits', 'other']), newEvent(['inbox:waits']), newEvent(['inbox:dead', 'inbox:done'])]);
      const lanes = holdLanes(queue);
      for (const [endpoint, kind] of [
        ['inbox:dead', 'dead'],
        ['inbox:done', 'delivered'],
      ] as const) {
        const { lane, end } = await lanes.next(endpoint);
        const deliveries = await lane.take(1, now());
        await lane.settle(
          deliveries.map((delivery) => settled(delivery, { kind }, now())),
          PROVEN,
        );
        end();
      }
      expect(await queue.inboxes()).toEqual([
        { endpoint: 'inbox:dead', waiting: 0 },
        { endpoint: 'inbox:waits', waiting: 2 },
      ]);
      await lanes.stop();
    });

    test('keeps the state of the last of several settlements at once, although it equals the first', async () => {
      const queue = await open();
      await appendMany(queue, 2, 'a');
      const lanes = holdLanes(queue);
      const { lane, end } = await lanes.next('a');
      const [one, two] = await lane.take(2, now());
      if (one === undefined || two === undefined) throw new Error('nothing was due');
      const failing = { ...PROVEN, failures: 1 };
      await lane.settle([], PROVEN);
      await Promise.all([
        lane.settle([settled(one, { kind: 'retry', due: now() }, now())], failing),
        lane.settle([settled(two, { kind: 'delivered' }, now())], PROVEN),
      ]);
      end();
      expect((await lanes.next('a')).lane.state).toEqual(PROVEN);
      await lanes.stop();
      await close(queue);
      const again = holdLanes(await open());
      expect((await again.next('a')).lane.state).toEqual(PROVEN);
      await again.stop();
    });

    test('aborts the signals of running lanes when it stops, waits for them, and starts no other', async () => {
      const queue = await open();
      await queue.append([newEvent(['a', 'b', 'c'])]);
      let started = 0;
      let ended = 0;
      const serving = queue.serve(2, async ({ signal }) => {
        started++;
        await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
        await new Promise((resolve) => setTimeout(resolve, 20));
        ended++;
        return {};
      });
      await until(() => started === 2);
      await serving.stop();
      expect([started, ended]).toEqual([2, 2]);
      await store().pass(50);
      expect(started).toBe(2);
    });

    test('settles while it stops, and serves again afterwards', async () => {
      const queue = await open();
      await appendMany(queue, 2, 'a');
      let isTaken = false;
      const serving = queue.serve(2, async (lane) => {
        const [delivery] = await lane.take(1, now());
        isTaken = true;
        await new Promise<void>((resolve) => lane.signal.addEventListener('abort', () => resolve()));
        if (delivery !== undefined) await lane.settle([settled(delivery, { kind: 'delivered' }, now())], PROVEN);
        return {};
      });
      await until(() => isTaken);
      await serving.stop();
      await serving.stop();
      expect((await queue.stats(now())).waiting).toBe(1);
      expect(await drain(queue, now)).toHaveLength(1);
    });

    test('shares endpoints between two queues, one lane for each at a time', async ({ skip }) => {
      skip(!store().isShared, 'one process only');
      const [one, two] = [await open(), await open()];
      const busy = new Set<string>();
      let overlaps = 0;
      const received: string[] = [];
      const serve = (queue: typeof one) =>
        queue.serve(4, async (lane) => {
          if (busy.has(lane.endpoint)) overlaps++;
          busy.add(lane.endpoint);
          const deliveries = await lane.take(5, now());
          received.push(...deliveries.map(({ event }) => event));
          await lane.settle(
            deliveries.map((delivery) => settled(delivery, { kind: 'delivered' }, now())),
            PROVEN,
          );
          busy.delete(lane.endpoint);
          return {};
        });
      const servings = [serve(one), serve(two)];
      await Promise.all(Array.from({ length: 100 }, (_, i) => (i % 2 === 0 ? one : two).append([newEvent([`e${i % 10}`])])));
      await until(async () => (await one.stats(now())).waiting === 0);
      await Promise.all(servings.map((serving) => serving.stop()));
      expect(new Set(received).size).toBe(100);
      expect(received).toHaveLength(100);
      expect(overlaps).toBe(0);
    });
  });
}
