/** The lanes on the SQLite engine, for days of a clock that the test moves. The endpoints are simulated. */
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import type { AttemptResult } from '../../src/provider/attempt/attempt.ts';
import { createLaneRunner, toLaneCount } from '../../src/provider/lanes/lane-runner.ts';
import type { Delivery, DeliveryQueue } from '../../src/provider/queue/delivery-queue.ts';
import { FakeClock, settle } from '../support/fake-clock.ts';
import { until } from '../support/gate.ts';
import { anEndpoint, DEFAULT_SCHEDULE, failed, responded } from '../support/provider/endpoint.ts';
import { FakeRegistry, LANE_SETTINGS, recordHooks } from '../support/provider/fake-lane.ts';
import { makeQueueFolder, openSqliteQueue } from '../support/queue/sqlite-store.ts';

const HOUR = 3_600_000;
const DAY = 24 * HOUR;

let clock: FakeClock;
let queue: DeliveryQueue;
let registry: FakeRegistry;
let hooks: string[];
let sent: { readonly delivery: Delivery; readonly at: number }[];
let respond: (delivery: Delivery) => AttemptResult;

beforeEach(async () => {
  clock = new FakeClock();
  registry = new FakeRegistry();
  registry.set(anEndpoint('acme'));
  registry.set(anEndpoint('ops', { isOperational: true }));
  registry.operational = [{ endpoint: 'ops' }];
  hooks = [];
  sent = [];
  const folder = makeQueueFolder();
  queue = await openSqliteQueue(folder.path, { clock });
  const runner = createLaneRunner({
    clock,
    queue,
    registry,
    sender: {
      send: (delivery) => {
        sent.push({ delivery, at: clock.now() });
        return Promise.resolve(delivery.endpoint === 'ops' ? responded(200) : respond(delivery));
      },
    },
    hooks: recordHooks(hooks),
    settings: LANE_SETTINGS,
  });
  const serving = queue.serve(toLaneCount(LANE_SETTINGS), runner.run);
  onTestFinished(async () => {
    await serving.stop();
    await queue.close();
    folder.remove();
  });
});

async function append(id: string): Promise<void> {
  const body = Buffer.from(`{"id":"${id}"}`);
  await queue.append([
    { id, type: 'invoice.paid', createdAt: clock.now(), body, metadata: '{}', targets: [{ endpoint: 'acme' }] },
  ]);
}

async function findOne(event: string) {
  const { found: deliveries } = await queue.find({ event, endpoint: 'acme' }, { limit: 1 });
  return deliveries[0];
}

const sentTo = (endpoint: string) => sent.filter(({ delivery }) => delivery.endpoint === endpoint);

/** Lets the engine's thread and the lanes do what is due. */
async function work(): Promise<void> {
  for (let round = 0; round < 4; round++) {
    await queue.stats(clock.now());
    await settle();
  }
}

/** Waits until deliveries to a disabled endpoint are skipped: its lane must find it disabled for a while, with looks in between. */
async function skipAll(): Promise<void> {
  for (let seconds = 0; seconds < 30; seconds += 5) {
    await clock.advance(5_000);
    await work();
  }
}

describe('the default schedule', () => {
  test('makes ten attempts over 75 hours, each at its time, and reports the message', async () => {
    respond = () => responded(500);
    await append('msg_1');
    const delays: number[] = [];
    for (const [made] of DEFAULT_SCHEDULE.entries()) {
      const record = await until(async () => {
        const found = await findOne('msg_1');
        return found?.attempts === made + 1 ? found : undefined;
      });
      const delay = (record.due ?? 0) - clock.now();
      delays.push(delay);
      await clock.advance(delay - 1);
      await work();
      expect(sentTo('acme'), 'before its time').toHaveLength(made + 1);
      await clock.advance(1);
    }
    await until(() => sentTo('ops').length === 1);
    for (const [index, planned] of DEFAULT_SCHEDULE.entries())
      expect(Math.abs((delays[index] ?? 0) - planned), `delay ${index + 1}`).toBeLessThanOrEqual(0.2 * planned + 1);
    const attempts = sentTo('acme');
    expect(attempts).toHaveLength(10);
    expect(attempts.map(({ delivery }) => delivery.tries)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    expect(new Set(attempts.map(({ delivery }) => delivery.body.toString()))).toEqual(new Set(['{"id":"msg_1"}']));
    expect((await findOne('msg_1'))?.state).toBe('dead');
    expect(hooks).toContain('exhausted acme msg_1 exhausted');
    expect(sentTo('ops')[0]?.delivery.type).toBe('message.exhausted');
    await clock.advance(10 * DAY);
    await work();
    expect(sentTo('acme')).toHaveLength(10);
  }, 60_000);

  test('ends with the first success', async () => {
    respond = ({ tries }) => (tries < 3 ? failed('timeout') : responded(204));
    await append('msg_1');
    await until(async () => {
      await clock.advance(HOUR);
      return (await findOne('msg_1'))?.state === 'delivered';
    });
    expect(await findOne('msg_1')).toMatchObject({ attempts: 4 });
    expect(hooks.filter((line) => line.startsWith('exhausted'))).toEqual([]);
  });

  test('starts again for a replayed message, which does not count towards disabling', async () => {
    respond = () => responded(400);
    await append('msg_1');
    await until(async () => (await findOne('msg_1'))?.state === 'dead');
    for (let days = 0; days < 8; days++) {
      for (let count = 0; count < 5; count++) {
        for await (const _ of queue.repair('retry', { endpoint: 'acme', states: ['dead', 'skipped'] }, clock.now())) await work();
        await until(async () => (await findOne('msg_1'))?.state === 'dead');
      }
      await clock.advance(DAY);
    }
    expect(sentTo('acme')).toHaveLength(41);
    expect(registry.disabled).toEqual([]);
  }, 60_000);
});

describe('an endpoint that never succeeds', () => {
  test('is disabled after five days, reported once, and its events are skipped', async () => {
    respond = () => failed('connect');
    let disabledAfter = 0;
    for (let minutes = 0; minutes < 6 * 24 * 60; minutes += 10) {
      if (minutes % 240 === 0) await append(`msg_${minutes}`);
      await clock.advance(600_000);
      await work();
      if (registry.disabled.length > 0 && disabledAfter === 0) disabledAfter = minutes / 60 / 24;
    }
    expect(registry.disabled).toEqual([['acme', 'failing']]);
    // At the first failure after that; there is one every four hours, or more.
    expect(disabledAfter).toBeGreaterThanOrEqual(5 - 0.01);
    expect(disabledAfter).toBeLessThanOrEqual(5.2);
    expect(sentTo('ops').filter(({ delivery }) => delivery.type === 'endpoint.disabled')).toHaveLength(1);
    const last = sentTo('acme').at(-1)?.at ?? 0;
    expect(last).toBeLessThanOrEqual(1_800_000_000_000 + (disabledAfter + 0.01) * DAY);
    // The later events were stored as waiting here; the registry's route would mark them as skipped.
    await skipAll();
    const { found: deliveries } = await queue.find({ endpoint: 'acme', states: ['skipped'] }, { limit: 250 });
    expect(deliveries.length).toBeGreaterThanOrEqual(6);
    // With the jitter, the last attempts of some deliveries are due later than the six days of this test.
    const { found: waiting } = await queue.find({ endpoint: 'acme', states: ['waiting'] }, { limit: 250 });
    expect(waiting.filter(({ due = 0 }) => due <= clock.now())).toEqual([]);
  }, 120_000);

  test('gets its skipped events when it is enabled and they are replayed', async () => {
    respond = () => responded(410);
    for (let count = 0; count < 50; count++) await append(`msg_${count}`);
    await until(() => registry.disabled.length === 1);
    await skipAll();
    expect((await queue.stats(clock.now())).waiting).toBe(0);
    const made = sentTo('acme').length;
    expect(made).toBeLessThanOrEqual(4);
    respond = () => responded(200);
    registry.set(anEndpoint('acme', { enabledAt: clock.now() }));
    for await (const _ of queue.repair('retry', { endpoint: 'acme', states: ['skipped', 'dead'] }, clock.now())) await work();
    await until(async () => {
      await clock.advance(100);
      return (await queue.stats(clock.now())).waiting === 0;
    });
    expect(sentTo('acme').length - made).toBe(50);
    expect((await queue.find({ endpoint: 'acme', states: ['delivered'] }, { limit: 250 })).found).toHaveLength(50);
  });
});
