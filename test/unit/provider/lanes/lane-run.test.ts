import { beforeEach, describe, expect, test } from 'vitest';
import { isBreakerOpen } from '../../../../src/provider/lanes/lane-state.ts';
import type { LaneResult, LaneState } from '../../../../src/provider/queue/delivery-queue.ts';
import { FakeClock, settle } from '../../../support/fake-clock.ts';
import { anEndpoint, failed, responded } from '../../../support/provider/endpoint.ts';
import { createLaneScene, FakeLane, type LaneScene } from '../../../support/provider/fake-lane.ts';

const PROVEN: LaneState = { failures: 0, isProven: true, since: 1_000 };
const FAILING: LaneState = { ...PROVEN, failures: 5, streak: 5, firstFailureAt: 1_799_000_000_000 };
const MIB = 1_024 * 1_024;

let clock: FakeClock;
let scene: LaneScene;
let lane: FakeLane;

beforeEach(() => {
  clock = new FakeClock();
  scene = createLaneScene(clock, [anEndpoint('acme')]);
  lane = new FakeLane('acme', PROVEN);
});

/** A run, and how it ended. */
interface Run {
  readonly done: Promise<LaneResult>;
  isOver: boolean;
}

async function start(each: FakeLane = lane): Promise<Run> {
  const run: Run = { done: scene.run(each), isOver: false };
  run.done.then(
    () => {
      run.isOver = true;
    },
    () => {
      run.isOver = true;
    },
  );
  await settle();
  return run;
}

async function endOne(status = 200, at = 0): Promise<void> {
  scene.sender.inFlight[at]?.end(responded(status));
  await settle();
}

describe('an endpoint that another replica changed', () => {
  test('gets what is taken with its new version at its new URL', async () => {
    lane.add(1, { version: 7 });
    scene.registry.stored = { version: 7, endpoint: anEndpoint('acme', { url: 'https://new.example/' }) };
    await start();
    expect(scene.sender.inFlight.map(({ endpoint }) => endpoint.url)).toEqual(['https://new.example/']);
  });

  test('gets nothing that is taken after it was deleted', async () => {
    lane.add(2);
    await start();
    scene.registry.stored = { version: 0 };
    lane.add(2, { version: 0 });
    await endOne();
    await endOne();
    await clock.advance(30_000);
    expect(scene.sender.started).toHaveLength(2);
    expect(lane.deliveries).toHaveLength(2);
  });

  test('gets nothing while the store cannot be read', async () => {
    lane.add(1, { version: 7 });
    scene.registry.stored = { version: 7, endpoint: anEndpoint('acme', { url: 'https://new.example/' }) };
    scene.registry.failure = new Error('no store');
    await expect(scene.run(lane)).rejects.toThrow('no store');
    expect(scene.sender.started).toEqual([]);
    scene.registry.failure = undefined;
    await start();
    expect(scene.sender.inFlight.map(({ endpoint }) => endpoint.url)).toEqual(['https://new.example/']);
  });
});

describe('an endpoint whose config has another tenant than a delivery', () => {
  const GRACE_MS = 15 * 60_000;
  const older = { tenant: 't1', source: 'config' } as const;
  const newer = { tenant: 't2', source: 'config' } as const;
  const kinds = (of: FakeLane): string[] => of.kinds.filter((kind) => kind !== 'postponed');

  /** A replica whose endpoint has this tenant, and accepts everything. */
  function startReplica(over: object): LaneScene {
    const replica = createLaneScene(clock, [anEndpoint('acme', over)]);
    replica.sender.respond = () => responded(200);
    return replica;
  }

  test('gets its own deliveries, and leaves the others to another replica, which sends them', async () => {
    const [old, recent] = [startReplica(older), startReplica(newer)];
    lane.add(3, { tenant: 't2' });
    lane.add(3, { tenant: 't1' });
    expect(await old.run(lane)).toEqual({ notBefore: clock.now() + 5_000, isLeft: true });
    expect(old.sender.started.map(({ tenant }) => tenant)).toEqual(Array(3).fill('t1'));
    await recent.run(lane);
    expect(recent.sender.started.map(({ tenant }) => tenant)).toEqual(Array(3).fill('t2'));
    expect(kinds(lane)).toEqual(Array(6).fill('delivered'));
  });

  test('has them skipped once no replica sent them for a quarter of an hour, but none that has just become due', async () => {
    const recent = startReplica(newer);
    lane.add(2, { tenant: 't1' });
    for (let waited = 0; waited < GRACE_MS; waited += 5_000) {
      await recent.run(lane);
      await clock.advance(5_000);
    }
    expect(kinds(lane)).toEqual([]);
    lane.add(1, { tenant: 't3', due: clock.now() });
    await recent.run(lane);
    expect(kinds(lane)).toEqual(['skipped', 'skipped']);
    expect(recent.hooks).toEqual(['skipped acme 1', 'skipped acme 1']);
    expect(lane.deliveries).toHaveLength(1);
  });

  test('keeps them as long as a replica with the other tenant serves the lane now and then', async () => {
    const [old, recent] = [startReplica(older), startReplica(newer)];
    lane.add(1, { tenant: 't2', due: clock.now() + 2 * GRACE_MS });
    for (let waited = 0; waited < 2 * GRACE_MS; waited += 5_000) {
      lane.add(1, { tenant: 't2', due: clock.now() });
      await old.run(lane);
      await clock.advance(5_000);
      if (waited % 60_000 === 0) await recent.run(lane);
    }
    await old.run(lane);
    expect(kinds(lane)).not.toContain('skipped');
    await recent.run(lane);
    expect(lane.deliveries).toEqual([]);
  });

  test('is judged anew after a time without a look, and after its config changed again', async () => {
    const recent = startReplica(newer);
    lane.add(1, { tenant: 't1' });
    await recent.run(lane);
    await clock.advance(GRACE_MS);
    await recent.run(lane);
    for (let waited = 0; waited < GRACE_MS - 5_000; waited += 5_000) {
      await clock.advance(5_000);
      await recent.run(lane);
    }
    recent.registry.set(anEndpoint('acme', { ...newer, tenant: 't3' }));
    await clock.advance(5_000);
    await recent.run(lane);
    expect(kinds(lane)).toEqual([]);
  });

  test('ends its run when many are left, and holds no memory for them', async () => {
    const recent = createLaneScene(clock, [anEndpoint('acme', newer)], { maxWaitingBytes: 300_000 });
    recent.sender.respond = () => responded(200);
    lane.add(500, { tenant: 't1', body: Buffer.alloc(10_000) });
    expect(await recent.run(lane)).toMatchObject({ isLeft: true });
    expect(lane.takes).toBeLessThan(100);
    expect(kinds(lane)).toEqual([]);
    lane.deliveries.length = 0;
    lane.add(1, { tenant: 't2', body: Buffer.alloc(200_000) });
    await recent.run(lane);
    expect(kinds(lane)).toEqual(['delivered']);
  });

  test('leaves the lane after its slice although attempts are in flight, and starts no other', async () => {
    scene = createLaneScene(clock, [anEndpoint('acme', newer)]);
    lane.add(1, { tenant: 't1' });
    lane.add(2, { tenant: 't2' });
    const run = await start();
    expect(scene.sender.inFlight).toHaveLength(2);
    await clock.advance(6_000);
    lane.add(1, { tenant: 't2' });
    await clock.advance(2_000);
    expect([scene.sender.inFlight.length, run.isOver]).toEqual([2, false]);
    await endOne();
    await endOne();
    expect(await run.done).toEqual({ notBefore: clock.now() + 5_000, isLeft: true });
    expect(lane.deliveries.map(({ tenant }) => tenant)).toEqual(['t1', 't2']);
  });
});

describe('tenants', () => {
  test('an event of another tenant is skipped without an attempt', async () => {
    scene.registry.set(anEndpoint('acme', { tenant: 't2' }));
    for (const tenant of ['t1', undefined, 't2', 't1']) lane.add(1, { tenant });
    scene.sender.respond = () => responded(200);
    await scene.run(lane);
    expect(scene.sender.started.map(({ event }) => event)).toEqual(['msg_3']);
    expect(lane.kinds.toSorted()).toEqual(['delivered', 'skipped', 'skipped', 'skipped']);
    expect(scene.hooks.filter((line) => line === 'skipped acme 1')).toHaveLength(3);
  });

  test('an event of another tenant is skipped although others were taken before it', async () => {
    scene.registry.set(anEndpoint('acme', { tenant: 't2' }));
    lane.add(4, { tenant: 't2', tries: 1 });
    await start();
    expect([scene.sender.inFlight.length, lane.taken]).toEqual([3, 4]);
    lane.add(1, { tenant: 't1' });
    await clock.advance(200);
    expect(lane.settled.flat().map(({ event, settlement }) => [event, settlement.kind])).toEqual([['msg_5', 'skipped']]);
    for (let left = 4; left > 0; left--) await endOne();
    expect(lane.deliveries).toHaveLength(0);
  });

  test('an endpoint for all tenants gets everything, one without a tenant only events without', async () => {
    scene.registry.set(anEndpoint('acme', { allTenants: true }));
    for (const tenant of ['t1', undefined]) lane.add(1, { tenant });
    scene.sender.respond = () => responded(200);
    await scene.run(lane);
    expect(lane.kinds).toEqual(['delivered', 'delivered']);
    scene.registry.set(anEndpoint('acme'));
    lane = new FakeLane('acme', PROVEN);
    for (const tenant of ['t1', undefined]) lane.add(1, { tenant });
    await scene.run(lane);
    expect(lane.kinds.toSorted()).toEqual(['delivered', 'skipped']);
  });

  test('an endpoint that gets another tenant while its delivery waits for a slot does not get it, and gives the slot back', async () => {
    scene = createLaneScene(clock, [anEndpoint('acme', { tenant: 't1' }), anEndpoint('other')], { maxConcurrency: 1 });
    const other = new FakeLane('other', PROVEN);
    other.add(1);
    await start(other);
    lane.add(1, { tenant: 't1' });
    const second = await start();
    scene.registry.set(anEndpoint('acme', { tenant: 't2' }));
    await endOne();
    expect([second.isOver, lane.kinds]).toEqual([true, ['skipped']]);
    other.add(1);
    await start(other);
    await endOne();
    expect(other.kinds).toEqual(['delivered', 'delivered']);
  });
});

describe('a run', () => {
  test('delivers what is due, records each attempt, and ends', async () => {
    scene.sender.respond = () => responded(200, { startedAt: 7, duration: 12, detail: undefined });
    lane.add(10);
    expect(await scene.run(lane)).toEqual({ notBefore: undefined });
    expect(scene.sender.started).toHaveLength(10);
    expect(lane.deliveries).toHaveLength(0);
    expect(lane.settled.flat()[0]).toEqual({
      event: 'msg_1',
      attempt: 0,
      at: clock.now(),
      settlement: { kind: 'delivered' },
      record: { at: 7, duration: 12, status: 200, outcome: 'delivered', detail: undefined },
    });
    expect(scene.hooks[0]).toBe('attempt acme msg_1 delivered delivered');
  });

  test('takes several deliveries at once, and none that it does not need', async () => {
    lane.add(100);
    scene.sender.respond = () => responded(200);
    await scene.run(lane);
    expect(lane.takes).toBeLessThanOrEqual(26);
    lane.takes = 0;
    lane.add(1);
    await scene.run(lane);
    expect(lane.takes).toBe(1);
  });

  test('starts no attempt of a delivery that was canceled after it was taken, and the others in their order', async () => {
    scene = createLaneScene(clock, [anEndpoint('acme', { rateLimit: 1 })]);
    lane.add(4);
    await start();
    expect([scene.sender.started.length, lane.taken]).toEqual([1, 4]);
    lane.cancel('msg_2');
    for (let i = 0; i < 3; i++) {
      await clock.advance(1_100);
      await settle();
    }
    expect(scene.sender.started.map(({ event }) => event)).toEqual(['msg_1', 'msg_3', 'msg_4']);
  });

  test('starts no attempt of a delivery that was canceled while it waited for a slot, and gives the slot back', async () => {
    scene = createLaneScene(clock, [anEndpoint('acme'), anEndpoint('other')], { maxConcurrency: 1 });
    const other = new FakeLane('other', PROVEN);
    other.add(1);
    await start(other);
    lane.add(1);
    const run = await start();
    lane.cancel('msg_1');
    await endOne();
    expect([run.isOver, lane.taken]).toEqual([true, 0]);
    other.add(1);
    await start(other);
    await endOne();
    expect([other.kinds, scene.sender.started.map(({ endpoint }) => endpoint)]).toEqual([
      ['delivered', 'delivered'],
      ['other', 'other'],
    ]);
  });

  test('ends at once if nothing is due', async () => {
    lane.add(1, { due: clock.now() + 1 });
    expect(await scene.run(lane)).toEqual({ notBefore: undefined });
    expect(scene.sender.started).toHaveLength(0);
  });

  test('has at most as many attempts in flight as the endpoint allows', async () => {
    lane.add(10);
    await start();
    expect(scene.sender.inFlight).toHaveLength(4);
    await endOne();
    expect(scene.sender.inFlight).toHaveLength(4);
    expect(scene.sender.started).toHaveLength(5);
  });

  test('counts an attempt as in flight until it is settled, so that a crash repeats no more than that', async () => {
    lane.add(10);
    let finish = (): void => undefined;
    const original = lane.settle.bind(lane);
    lane.settle = async (...args) => {
      await new Promise<void>((resolve) => {
        finish = resolve;
      });
      await original(...args);
    };
    await start();
    await endOne();
    expect(scene.sender.started).toHaveLength(4);
    finish();
    await settle();
    expect(scene.sender.started).toHaveLength(5);
  });

  test('sends one delivery at a time to an endpoint without a success, then as many as it allows', async () => {
    lane.state = undefined;
    lane.add(10);
    await start();
    expect(scene.sender.inFlight).toHaveLength(1);
    await endOne();
    expect(scene.sender.inFlight).toHaveLength(4);
  });

  test('sends as many at a time while events fail, and one at a time once the endpoint is unreachable', async () => {
    lane.add(30);
    await start();
    for (let count = 0; count < 8; count++) await endOne(500);
    // One is left to types that do not fail.
    expect(scene.sender.inFlight).toHaveLength(3);
    for (let count = 0; count < 8; count++) await endOne(503);
    expect(scene.sender.inFlight).toHaveLength(0);
    await clock.advance(60_000);
    await start();
    expect(scene.sender.inFlight).toHaveLength(1);
  });

  test('settles each delivery when its attempt ends, although another one hangs', async () => {
    lane.add(3);
    const run = await start();
    await endOne(200, 1);
    await endOne(200, 1);
    expect(lane.settled.map((each) => each.map(({ event }) => event))).toEqual([['msg_2'], ['msg_3']]);
    expect(run.isOver).toBe(false);
  });

  test('settles together what ends in the same turn', async () => {
    lane.add(4);
    await start();
    for (const { end } of [...scene.sender.inFlight]) end(responded(200));
    await settle();
    expect(lane.settled).toHaveLength(1);
    expect(lane.settled.flat()).toHaveLength(4);
  });

  test('sends deliveries that become due while another attempt hangs', async () => {
    lane.add(1);
    await start();
    lane.add(1);
    await clock.advance(25);
    expect(scene.sender.started).toHaveLength(2);
  });

  test('looks for new deliveries less and less often while none come', async () => {
    lane.add(1);
    await start();
    lane.takes = 0;
    await clock.advance(4_000);
    expect(lane.takes).toBeGreaterThanOrEqual(15);
    expect(lane.takes).toBeLessThanOrEqual(30);
  });

  test('starts no attempt after 5 s, and ends when those in flight have ended', async () => {
    lane.add(100);
    const run = await start();
    await clock.advance(4_999);
    await endOne();
    expect(scene.sender.started).toHaveLength(5);
    await clock.advance(1);
    await endOne();
    await endOne();
    await endOne();
    expect(scene.sender.started).toHaveLength(5);
    expect(run.isOver).toBe(false);
    await endOne();
    expect(await run.done).toEqual({ notBefore: undefined });
    expect(lane.deliveries).toHaveLength(95);
  });

  test('uses the current settings of the endpoint for each attempt', async () => {
    lane.add(10);
    await start();
    scene.registry.set(anEndpoint('acme', { concurrency: 1, url: 'https://new.example/' }));
    await endOne();
    await endOne();
    await endOne();
    expect(scene.sender.started).toHaveLength(4);
    await endOne();
    expect(scene.sender.inFlight.map(({ endpoint }) => endpoint.url)).toEqual(['https://new.example/']);
  });

  test('retries by the schedule that the endpoint has when the attempt ends', async () => {
    lane.add(1);
    await start();
    scene.registry.set(anEndpoint('acme', { schedule: [1_000] }));
    await endOne(500);
    expect(lane.deliveries[0]?.due).toBeLessThanOrEqual(clock.now() + 1_200);
  });

  test('starts over with an endpoint that was enabled again', async () => {
    lane.state = { ...FAILING, streak: 9, pausedUntil: clock.now() + 60_000 };
    scene.registry.set(anEndpoint('acme', { enabledAt: clock.now() }));
    lane.add(1);
    await start();
    await endOne();
    expect(lane.state).toMatchObject({ failures: 0, isProven: true, since: clock.now() });
  });

  test('takes again after each settlement if the endpoint keeps an order', async () => {
    scene.registry.set(anEndpoint('acme', { orderBy: '$.data.customer' }));
    scene.sender.respond = () => responded(200);
    // As an engine does: one delivery of a key at a time.
    const original = lane.take.bind(lane);
    lane.take = (_, now) => original(1, now);
    lane.add(5);
    await scene.run(lane);
    expect(lane.deliveries).toHaveLength(0);
  });
});

describe('a paused endpoint', () => {
  test('gets no attempt before the pause ends', async () => {
    lane.state = { ...FAILING, pausedUntil: clock.now() + 30_000 };
    lane.add(5);
    expect(await scene.run(lane)).toEqual({ notBefore: clock.now() + 30_000 });
    expect(lane.takes).toBe(0);
    await clock.advance(30_000);
    await start();
    expect(scene.sender.inFlight).toHaveLength(1);
  });

  test('gets no further attempt after 429 with Retry-After', async () => {
    lane.add(10);
    const run = await start();
    scene.sender.inFlight[0]?.end(responded(429, { retryAfter: 20_000 }));
    await settle();
    for (let left = 3; left > 0; left--) await endOne();
    expect(await run.done).toEqual({ notBefore: clock.now() + 20_000 });
    expect(scene.sender.started).toHaveLength(4);
    expect(lane.deliveries).toHaveLength(7);
  });

  test('has one probe at a time while the breaker is open, and reports both', async () => {
    scene.sender.respond = () => failed('timeout');
    lane.add(20);
    let pauses = 0;
    const untils: number[] = [];
    for (let runs = 0; runs < 12; runs++) {
      const { notBefore } = await scene.run(lane);
      if (notBefore === undefined) continue;
      pauses++;
      untils.push(notBefore);
      await clock.advance(notBefore - clock.now());
    }
    // Four at once, then one at a time; after the fifth failure one for each pause.
    expect(scene.sender.started.length).toBeLessThanOrEqual(4 + 12);
    expect(pauses).toBeGreaterThanOrEqual(10);
    // After each failure, with the end of the pause, so that also a replica that did not see the breaker open knows of it.
    expect(scene.hooks.filter((line) => line.startsWith('failing'))).toEqual(untils.map((until) => `failing acme ${until}`));
    scene.sender.respond = () => responded(200);
    await scene.run(lane);
    expect(scene.hooks.filter((line) => line.startsWith('breaker'))).toEqual(['breaker acme open', 'breaker acme closed']);
  });
});

describe('failing events', () => {
  const retries = { tries: 1, due: 1_700_000_000_000 } as const;
  const types = (): string[] => scene.sender.started.map(({ type }) => type);

  test('have their retries made after all first attempts', async () => {
    scene.sender.respond = () => responded(200);
    lane.add(20, { ...retries, type: 'old' });
    lane.add(20, { type: 'new' });
    await scene.run(lane);
    expect(types()).toEqual([...Array(20).fill('new'), ...Array(20).fill('old')]);
  });

  test('leave one attempt to others, which start although retries hang', async () => {
    lane.add(20, { ...retries, type: 'old' });
    await start();
    expect(scene.sender.inFlight).toHaveLength(3);
    lane.add(1, { type: 'new' });
    await clock.advance(50);
    expect(types()).toEqual(['old', 'old', 'old', 'new']);
    await endOne(200, 3);
    lane.add(2, { type: 'new' });
    await clock.advance(200);
    expect(types().slice(4)).toEqual(['new']);
    await endOne(200, 3);
    expect(types().slice(4)).toEqual(['new', 'new']);
  });

  test('of a failing type leave it to other types, until one of them succeeds', async () => {
    lane.state = { ...PROVEN, failingTypes: ['bad'] };
    lane.add(20, { type: 'bad' });
    await start();
    expect(scene.sender.inFlight).toHaveLength(3);
    await endOne(200);
    expect(scene.sender.inFlight).toHaveLength(4);
    expect(lane.state?.failingTypes).toEqual([]);
  });

  test('are made way for in the middle of a run, once three of their type have failed', async () => {
    scene.sender.respond = ({ type }) => responded(type === 'bad' ? 500 : 200);
    lane.add(100, { type: 'bad' });
    lane.add(10, { type: 'good' });
    await scene.run(lane);
    const last = types().lastIndexOf('good');
    expect(last).toBeLessThanOrEqual(4 + 4 + 10);
    expect(types()).toHaveLength(110);
  });

  test('have their turn alone if the endpoint has one attempt at a time', async () => {
    scene.registry.set(anEndpoint('acme', { concurrency: 1 }));
    lane.add(2, retries);
    await start();
    expect(scene.sender.inFlight).toHaveLength(1);
    await endOne();
    expect(scene.sender.inFlight).toHaveLength(1);
  });

  test('do not keep the breaker of an endpoint open, which is probed with an event of another type', async () => {
    lane.state = { ...FAILING, failingTypes: ['bad'] };
    scene.sender.respond = ({ type }) => responded(type === 'bad' ? 503 : 200);
    lane.add(100, { type: 'bad' });
    lane.add(10, { type: 'good' });
    await scene.run(lane);
    expect(types().slice(0, 10)).toEqual(Array(10).fill('good'));
    expect(scene.hooks).toContain('breaker acme closed');
  });

  test('keep the memory of the lane balanced, whichever delivery gets a slot', async () => {
    scene = createLaneScene(clock, [anEndpoint('acme'), anEndpoint('other')], { maxConcurrency: 2, maxConnections: 3 });
    const other = new FakeLane('other', PROVEN);
    other.add(2);
    await start(other);
    lane.add(3, { body: Buffer.alloc(1_000) });
    const run = await start();
    expect(scene.runner.slots.waiting).toBe(1);
    await endOne();
    await endOne();
    for (let left = 3; left > 0; left--) await endOne(500);
    await run.done;
    expect(scene.runner.slots).toEqual({ fast: 0, slow: 0, waiting: 0 });
  });
});

describe('events that hang', () => {
  const old = { due: 1_700_000_000_000 } as const;
  const hanging = (): LaneState => ({ ...PROVEN, timedOutAt: clock.now(), succeededAt: clock.now() });
  const events = (): string[] => scene.sender.started.map(({ event }) => event);
  const addNew = (): void => lane.add(1, { due: clock.now() });

  test('do not end the lane for the time that they take: it starts others after its slice', async () => {
    lane.add(1);
    const run = await start();
    await clock.advance(6_000);
    addNew();
    await clock.advance(1_000);
    expect(events()).toEqual(['msg_1', 'msg_2']);
    await endOne();
    await endOne();
    await clock.advance(5_000);
    expect(run.isOver).toBe(true);
  });

  test('give way to an event that just came, the oldest first, and are retried', async () => {
    lane.state = hanging();
    lane.add(40, old);
    await start();
    expect(events()).toHaveLength(4);
    await clock.advance(900);
    addNew();
    await clock.advance(600);
    expect(events().slice(4)).toEqual(['msg_41']);
    expect(scene.hooks).toEqual(['attempt acme msg_1 timeout retry']);
    expect(lane.settled.flat()[0]?.record).toMatchObject({ outcome: 'timeout' });
    await endOne(200, 3);
    // One that came before is tried next, as nothing new waits.
    expect(events().slice(5)).toEqual(['msg_5']);
  });

  test('give way to the newest event first', async () => {
    lane.state = hanging();
    lane.add(40, old);
    await start();
    for (let count = 0; count < 5; count++) {
      addNew();
      await clock.advance(10);
    }
    await clock.advance(1_400);
    expect(events()[4]).toBe('msg_45');
  });

  test.each([
    ['no attempt timed out', PROVEN, {}],
    ['the last time-out was long ago', { ...PROVEN, timedOutAt: 1_799_999_000_000 }, {}],
    ['successes take as long', { slowMs: 15_000 }, {}],
    ['no retry follows', {}, { schedule: [] }],
  ] as const)('do not give way if %s', async (_, state, endpoint) => {
    lane.state = { ...hanging(), ...state };
    if ('isProven' in state) lane.state = state;
    scene.registry.set(anEndpoint('acme', endpoint));
    lane.add(40, old);
    await start();
    addNew();
    await clock.advance(20_000);
    expect([events().length, scene.hooks]).toEqual([4, []]);
  });

  test('have their whole timeout in a retry, and a quarter of the attempts for all retries', async () => {
    lane.state = hanging();
    lane.add(40, { ...old, tries: 1 });
    await start();
    expect(events()).toHaveLength(1);
    for (let count = 0; count < 8; count++) {
      addNew();
      await clock.advance(1_500);
    }
    expect(events()).toHaveLength(9);
    expect(scene.hooks.filter((line) => line.includes('msg_1 '))).toEqual([]);
    expect(scene.hooks).toHaveLength(5);
  });

  test('leave one attempt to a new event of their type while the breaker is open', async () => {
    lane.state = { ...FAILING, timedOutAt: clock.now(), failingTypes: ['invoice.paid'] };
    lane.add(40, { ...old, tries: 1, type: 'invoice.paid' });
    await start();
    expect(events()).toHaveLength(1);
    await clock.advance(8_000);
    lane.add(2, { due: clock.now(), type: 'invoice.paid' });
    await clock.advance(500);
    expect(events()).toHaveLength(2);
    await endOne(200, 1);
    expect(events().length).toBeGreaterThan(2);
  });

  test('keep the memory of the lane balanced', async () => {
    scene = createLaneScene(clock, [anEndpoint('acme'), anEndpoint('other')], { maxWaitingBytes: 400_000 });
    lane.state = hanging();
    lane.add(40, { ...old, body: Buffer.alloc(1_000) });
    const run = await start();
    for (let count = 0; count < 20; count++) {
      lane.add(3, { due: clock.now(), body: Buffer.alloc(1_000) });
      await clock.advance(300);
    }
    lane.abort();
    await clock.advance(2_000);
    expect([run.isOver, lane.taken]).toEqual([true, 0]);
    const other = new FakeLane('other', PROVEN);
    other.add(1, { body: Buffer.alloc(256 * 1_024) });
    await start(other);
    expect(scene.sender.inFlight).toHaveLength(1);
  });
});

describe('an endpoint whose sender knows whether it is there', () => {
  beforeEach(() => {
    lane.state = FAILING;
    lane.add(3);
    scene.sender.respond = () => responded(200);
  });

  test('gets no attempt while the breaker is open and it is away, and is asked again after a second', async () => {
    scene.sender.isReachable = () => Promise.resolve(false);
    expect(await scene.run(lane)).toEqual({ notBefore: clock.now() + 1_000 });
    expect(scene.sender.started).toHaveLength(0);
    scene.sender.isReachable = () => Promise.resolve(true);
    await scene.run(lane);
    expect(scene.sender.started).toHaveLength(3);
  });

  test('is asked once for each run, and not while the breaker is closed', async () => {
    let asked = 0;
    scene.sender.isReachable = () => {
      asked++;
      return Promise.resolve(true);
    };
    await scene.run(lane);
    lane.add(3);
    await scene.run(lane);
    expect(asked).toBe(1);
  });

  test('gets attempts if the sender does not know', async () => {
    scene.sender.isReachable = () => undefined;
    await scene.run(lane);
    expect(scene.sender.started).toHaveLength(3);
  });
});

describe('the app of an inbox', () => {
  beforeEach(() => {
    scene = createLaneScene(clock, [anEndpoint('inbox:billing')]);
    lane = new FakeLane('inbox:billing', PROVEN);
    lane.add(3);
  });

  test('gets events again that could not be sent, without a use of their schedule, as soon as it is back', async () => {
    scene.sender.respond = () => failed('connect');
    let pauses = 0;
    for (let at = 0; at < 100; at++) {
      const { notBefore = clock.now() } = await scene.run(lane);
      if (notBefore > clock.now()) pauses++;
      expect(notBefore - clock.now()).toBeLessThanOrEqual(1_000);
      await clock.advance(notBefore - clock.now());
    }
    expect(pauses).toBeGreaterThanOrEqual(95);
    expect(lane.deliveries.map(({ tries, attempt }) => [tries, attempt])).toEqual(Array(3).fill([0, 0]));
    scene.sender.respond = () => responded(200);
    await scene.run(lane);
    expect(lane.deliveries).toEqual([]);
  });

  describe('that each replica has', () => {
    let asked: number;
    let isThere: boolean;
    beforeEach(() => {
      asked = 0;
      isThere = false;
      scene.registry.isElsewhere = () => true;
      scene.sender.isReachable = () => {
        asked++;
        return Promise.resolve(isThere);
      };
      scene.sender.respond = () => failed('connect');
      // One more opens the breaker.
      lane.state = { ...PROVEN, streak: 4 };
    });
    const LEFT = { notBefore: expect.any(Number), isLeft: true };
    const breakers = (): string[] => scene.hooks.filter((line) => line.startsWith('breaker'));

    test('leaves the lane while its port is closed, without a pause or an open breaker for the others', async () => {
      for (let at = 0; at < 20; at++) {
        expect(await scene.run(lane)).toEqual({ ...LEFT, notBefore: clock.now() + 1_000 });
        await clock.advance(1_000);
      }
      const failures = scene.sender.started.length;
      // At once, then once for each run.
      expect([failures <= 3, asked <= 3 + 20, breakers()]).toEqual([true, true, ['breaker inbox:billing open']]);
      expect(lane.deliveries.map(({ tries, attempt }) => [tries, attempt])).toEqual(Array(3).fill([0, 0]));
      expect([isBreakerOpen(lane.state ?? PROVEN), lane.state?.pausedUntil]).toEqual([false, undefined]);
      expect(lane.state).toMatchObject({ isProven: true, failures, lastFailure: { outcome: 'connect' } });
    });

    test('keeps the lane after fewer failures than open a breaker: one of the addresses of an app may refuse', async () => {
      lane.state = { ...PROVEN, streak: 0 };
      expect((await scene.run(lane)).isLeft).toBeUndefined();
      expect([scene.sender.started.length, asked, breakers()]).toEqual([3, 0, []]);
    });

    test('gets its deliveries again once its port is open', async () => {
      await scene.run(lane);
      await clock.advance(1_000);
      isThere = true;
      scene.sender.respond = () => responded(200);
      expect((await scene.run(lane)).isLeft).toBeUndefined();
      expect([lane.deliveries, lane.state?.failures]).toEqual([[], 0]);
      expect(breakers()).toEqual(['breaker inbox:billing open', 'breaker inbox:billing closed']);
    });

    test('leaves the lane although another replica paused it, and although the breaker is open', async () => {
      await scene.run(lane);
      const started = scene.sender.started.length;
      for (const state of [{ ...PROVEN, pausedUntil: clock.now() + 60_000, pausedAt: clock.now() }, FAILING]) {
        lane.state = state;
        expect(await scene.run(lane)).toEqual(LEFT);
      }
      expect(scene.sender.started).toHaveLength(started);
    });

    test.each([
      ['accepts connections but ends each', () => failed('reset', { isSent: false })],
      ['is overloaded', () => responded(503)],
    ])('keeps the lane and opens its breaker if it %s', async (_what, respond) => {
      isThere = true;
      scene.sender.respond = respond;
      lane.add(10);
      const { notBefore = 0, isLeft } = await scene.run(lane);
      expect([notBefore > clock.now(), isLeft, isBreakerOpen(lane.state ?? PROVEN)]).toEqual([true, undefined, true]);
      expect(scene.sender.started.length).toBeLessThanOrEqual(10);
    });

    test('is asked about once a second while an attempt from before is in flight, and the lane is left after that', async () => {
      scene.sender.respond = ({ event }) => (event === 'msg_1' ? undefined : failed('connect'));
      const run = await start();
      await clock.advance(20_000);
      expect([run.isOver, scene.sender.started.length, asked <= 3 + 2 * 20]).toEqual([false, 3, true]);
      scene.sender.inFlight[0]?.end(responded(200));
      await clock.advance(1);
      expect(await run.done).toEqual(LEFT);
    });
  });

  test('uses the schedule for an event that was sent: the event may be what ends the app', async () => {
    scene.sender.respond = () => failed('reset', { isSent: true });
    await scene.run(lane);
    expect(lane.kinds).toEqual(['retry', 'retry', 'retry']);
  });
});

test('starts the backlog of an endpoint that was away for 40 s within 10 s after it is back', async () => {
  const wentAt = clock.now();
  scene.sender.respond = () => (clock.now() - wentAt < 40_000 ? failed('connect') : responded(200));
  lane.add(100);
  while (lane.deliveries.length === 100) {
    const { notBefore = clock.now() + 1_000 } = await scene.run(lane);
    if (lane.deliveries.length === 100) await clock.advance(Math.max(0, notBefore - clock.now()));
  }
  expect(clock.now() - wentAt).toBeLessThanOrEqual(50_000);
  expect(scene.sender.started.length).toBeLessThanOrEqual(30 + 100);
});

describe('the rate limit', () => {
  beforeEach(() => {
    scene.sender.respond = () => responded(200);
  });

  test('returns the lane if the next attempt may start only later', async () => {
    scene.registry.set(anEndpoint('acme', { rateLimit: 1 }));
    lane.add(3);
    expect(await scene.run(lane)).toEqual({ notBefore: clock.now() + 1_000 });
    expect(scene.sender.started).toHaveLength(1);
    expect(lane.state).toMatchObject({ tokens: 0, tokensAt: clock.now() });
    expect(await scene.run(lane)).toEqual({ notBefore: clock.now() + 1_000 });
    await clock.advance(1_000);
    await scene.run(lane);
    expect(scene.sender.started).toHaveLength(2);
  });

  test('keeps the lane for short waits, and sends as many as allowed', async () => {
    scene.registry.set(anEndpoint('acme', { rateLimit: 100 }));
    lane.add(2_000);
    const run = await start();
    await clock.advance(5_000);
    await run.done;
    expect(scene.sender.started.length).toBeGreaterThanOrEqual(490);
    expect(scene.sender.started.length).toBeLessThanOrEqual(510);
  });

  test('holds over replicas', async () => {
    const limited = anEndpoint('acme', { rateLimit: 1 });
    scene.registry.set(limited);
    const other = createLaneScene(clock, [limited]);
    other.sender.respond = () => responded(200);
    lane.add(10);
    const count = (): number => scene.sender.started.length + other.sender.started.length;
    await scene.run(lane);
    expect(count()).toBe(1);
    expect(await other.run(lane)).toEqual({ notBefore: clock.now() + 1_000 });
    expect(count()).toBe(1);
    for (const [turn, each] of [other, scene, other].entries()) {
      await clock.advance(1_000);
      await each.run(lane);
      expect(count()).toBe(2 + turn);
    }
  });

  test('goes on after the clock of the store was set back by an hour', async () => {
    scene.registry.set(anEndpoint('acme', { rateLimit: 1 }));
    scene.sender.respond = () => responded(200);
    lane.add(2);
    clock.step(3_600_000);
    await scene.run(lane);
    clock.step(-3_600_000);
    expect(await scene.run(lane)).toEqual({ notBefore: clock.now() + 1_000 });
    await clock.advance(1_000);
    await scene.run(lane);
    expect(scene.sender.started).toHaveLength(2);
  });
});

describe('the memory of lanes', () => {
  test('lets another replica have the lane once the process has had no memory for a delivery, after the attempts in flight', async () => {
    lane.add(8);
    const run = await start();
    lane.isLeft = true;
    await clock.advance(5_000);
    await endOne();
    expect(run.isOver).toBe(false);
    for (let left = 3; left > 0; left--) await endOne();
    expect(await run.done).toEqual({ notBefore: clock.now() + 5_000, isLeft: true });
    expect(scene.sender.started).toHaveLength(4);
  });

  test('bounds how many large deliveries are taken at once', async () => {
    const lanes = Array.from({ length: 20 }, (_, i) => new FakeLane(`e${i}`, PROVEN));
    for (const each of lanes) {
      scene.registry.set(anEndpoint(each.endpoint));
      each.add(4, { body: Buffer.alloc(8 * MIB) });
    }
    const runs = await Promise.all(lanes.map(start));
    const taken = lanes.reduce((sum, each) => sum + each.taken, 0);
    expect(taken).toBeGreaterThan(0);
    expect(taken).toBeLessThanOrEqual(4);
    for (const each of lanes) each.abort();
    await settle();
    for (const { end } of [...scene.sender.inFlight]) end(responded(200));
    await Promise.all(runs.map(({ done }) => done));
  });

  test('counts what deliveries have, and not what they could have: a large one holds up neither small ones nor those of others', async () => {
    scene = createLaneScene(clock, [anEndpoint('acme', { tenant: 'a' }), anEndpoint('other', { tenant: 'b' })], {
      maxWaitingBytes: MIB,
    });
    lane.state = PROVEN;
    lane.add(1, { tenant: 'a' });
    lane.add(1, { tenant: 'a', body: Buffer.alloc(25 * MIB) });
    lane.add(2, { tenant: 'a' });
    const other = new FakeLane('other', PROVEN);
    other.add(4, { tenant: 'b' });
    const runs = [await start(), await start(other)];
    expect(scene.sender.started).toHaveLength(8);
    for (let left = 8; left > 0; left--) await endOne();
    await Promise.all(runs.map(({ done }) => done));
  });
});

describe('a stop', () => {
  test('starts nothing more and waits for attempts in flight', async () => {
    lane.add(10);
    const run = await start();
    lane.abort();
    await settle();
    for (let left = 4; left > 0; left--) await endOne();
    await run.done;
    expect(scene.sender.started).toHaveLength(4);
    expect(lane.kinds).toEqual(['delivered', 'delivered', 'delivered', 'delivered']);
    expect(clock.timers).toBe(0);
  });

  test('aborts attempts after the drain time, and leaves them due', async () => {
    lane.add(10);
    const run = await start();
    lane.abort();
    await clock.advance(999);
    expect(run.isOver).toBe(false);
    await clock.advance(1);
    await run.done;
    expect(lane.kinds).toEqual(['postponed', 'postponed', 'postponed', 'postponed']);
    expect(lane.settled.flat().every(({ record }) => record === undefined)).toBe(true);
    expect(lane.deliveries.map(({ attempt, tries }) => attempt + tries)).toEqual(Array(10).fill(0));
    expect(lane.state).toMatchObject(PROVEN);
    expect(scene.hooks[0]).toBe('attempt acme msg_1 aborted undefined');
  });

  test('ends the wait for a slot', async () => {
    scene = createLaneScene(clock, [anEndpoint('acme'), anEndpoint('other')], { maxConcurrency: 1, maxConnections: 1 });
    lane.add(1);
    await start();
    const other = new FakeLane('other', PROVEN);
    other.add(1);
    const run = await start(other);
    expect(scene.runner.slots).toEqual({ fast: 1, slow: 0, waiting: 1 });
    other.abort();
    await run.done;
    expect(scene.runner.slots).toEqual({ fast: 1, slow: 0, waiting: 0 });
    expect(other.kinds).toEqual([]);
  });

  test('starts nothing if it came before the run', async () => {
    lane.add(1);
    lane.abort();
    await scene.run(lane);
    expect(lane.takes).toBe(0);
  });
});

describe('faults', () => {
  test('rejects if the queue fails to settle, after the attempts in flight have ended', async () => {
    lane.add(10);
    const run = await start();
    lane.failure = new Error('the store is gone');
    await endOne();
    expect(run.isOver).toBe(false);
    for (let left = 3; left > 0; left--) await endOne();
    await expect(run.done).rejects.toThrow('the store is gone');
    expect(scene.sender.started).toHaveLength(4);
    expect(scene.runner.slots.fast).toBe(0);
  });

  test('rejects if the queue fails to hand out deliveries', async () => {
    lane.take = () => Promise.reject(new Error('the store is gone'));
    await expect(scene.run(lane)).rejects.toThrow('the store is gone');
  });

  test('rejects if the sender throws, and gives its slot back', async () => {
    lane.add(1);
    scene.sender.respond = () => {
      throw new Error('a bug');
    };
    await expect(scene.run(lane)).rejects.toThrow('a bug');
    expect(scene.runner.slots.fast).toBe(0);
  });
});

describe('many endpoints', () => {
  const names = Array.from({ length: 200 }, (_, index) => `ep${index}`);

  test('share the fast slots in turns', async () => {
    scene = createLaneScene(
      clock,
      names.map((name) => anEndpoint(name)),
      { maxConcurrency: 10, maxConnections: 100 },
    );
    const lanes = names.map((name) => new FakeLane(name, PROVEN));
    for (const each of lanes) each.add(10);
    for (const each of lanes) await start(each);
    expect(scene.sender.inFlight).toHaveLength(10);
    for (let count = 0; count < 400; count++) await endOne();
    const counts = names.map((name) => scene.sender.started.filter(({ endpoint }) => endpoint === name).length);
    expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(4);
  }, 60_000);

  test('are served while others never respond', async () => {
    scene = createLaneScene(
      clock,
      names.map((name) => anEndpoint(name)),
    );
    const dead = names.slice(0, 100).map((name) => new FakeLane(name));
    for (const each of dead) each.add(10);
    for (const each of dead) await start(each);
    expect(scene.runner.slots).toMatchObject({ fast: 48, slow: 0, waiting: 52 });
    const healthy = names.slice(100, 170).map((name) => new FakeLane(name));
    for (const each of healthy) each.add(1);
    for (const each of healthy) await start(each);
    scene.sender.respond = () => responded(200);
    await clock.advance(250);
    expect(healthy.every(({ kinds }) => kinds[0] === 'delivered')).toBe(true);
  });

  test('get their slots while a thousand new ones never respond, and leave lanes to them', async () => {
    const strangers = Array.from({ length: 1_000 }, (_, index) => `new${index}`);
    scene = createLaneScene(
      clock,
      [...strangers, ...names].map((name) => anEndpoint(name)),
    );
    const runs: Run[] = [];
    for (const name of strangers) {
      const each = new FakeLane(name);
      each.add(1);
      runs.push({ done: scene.run(each), isOver: false });
      const run = runs.at(-1);
      run?.done.then(() => Object.assign(run, { isOver: true }));
    }
    await settle();
    await clock.advance(5_000);
    expect(runs.filter(({ isOver }) => !isOver).length).toBeLessThanOrEqual(512);
    scene.sender.respond = () => responded(200);
    for (const name of names) {
      const each = new FakeLane(name, PROVEN);
      each.add(5);
      await scene.run(each);
      expect(each.deliveries).toHaveLength(0);
    }
  });

  test('hold a bounded number of bytes', async () => {
    scene = createLaneScene(
      clock,
      names.map((name) => anEndpoint(name)),
    );
    const lanes = names.map((name) => new FakeLane(name, PROVEN));
    for (const each of lanes) each.add(100, { body: Buffer.alloc(MIB) });
    let held = 0;
    for (const each of lanes) {
      const original = each.take.bind(each);
      each.take = async (...limits) => {
        const taken = await original(...limits);
        held += taken.length;
        return taken;
      };
    }
    for (const each of lanes) await start(each);
    await clock.advance(30_000);
    // 32 MiB that wait or are young, 64 MiB slow.
    expect(held).toBeLessThanOrEqual(32 + 64);
    expect(held).toBeGreaterThanOrEqual(64 + 24);
  });

  test('return the lane if they fail and there is no slot for them', async () => {
    scene = createLaneScene(clock, [anEndpoint('acme'), anEndpoint('other')], { maxConcurrency: 1, maxConnections: 2 });
    lane.state = FAILING;
    lane.add(1);
    await start();
    const other = new FakeLane('other', FAILING);
    other.add(1);
    const run = await start(other);
    expect(run.isOver).toBe(false);
    await clock.advance(1_000);
    expect(await run.done).toEqual({ notBefore: clock.now() + 2_000 });
    expect(other.deliveries).toHaveLength(1);
  });
});
