import { beforeEach, describe, expect, test } from 'vitest';
import type { LaneState } from '../../../../src/provider/queue/delivery-queue.ts';
import { FakeClock, settle } from '../../../support/fake-clock.ts';
import { anEndpoint, failed, responded } from '../../../support/provider/endpoint.ts';
import { createLaneScene, FakeLane, type LaneScene } from '../../../support/provider/fake-lane.ts';

const UNKNOWN_GRACE_MS = 15 * 60_000;
const DAY = 24 * 3_600_000;
const NOW = 1_800_000_000_000;
const PROVEN: LaneState = { failures: 0, isProven: true, since: 1_000 };
const DYING: LaneState = { ...PROVEN, failures: 19, streak: 19, firstFailureAt: NOW - 5 * DAY };

let clock: FakeClock;
let scene: LaneScene;
let lane: FakeLane;

beforeEach(() => {
  clock = new FakeClock();
  scene = createLaneScene(clock, [anEndpoint('acme')]);
  lane = new FakeLane('acme', PROVEN);
  scene.registry.operational = [{ endpoint: 'ops' }];
});

const readBodies = (): unknown[] => scene.appended.map(({ body }) => JSON.parse(body.toString()));

describe('disabling', () => {
  test('disables an endpoint after five days of failures, and reports it to the operational endpoints', async () => {
    lane.state = DYING;
    lane.add(3);
    scene.sender.respond = () => failed('timeout', { startedAt: NOW, duration: 15_000, detail: 'no response within 15 s' });
    await scene.run(lane);
    expect(scene.registry.disabled).toEqual([['acme', 'failing']]);
    expect(scene.sender.started).toHaveLength(1);
    expect(scene.hooks).toContain('disabled acme failing');
    expect(scene.appended.map(({ type, targets }) => [type, targets])).toEqual([['endpoint.disabled', [{ endpoint: 'ops' }]]]);
    expect(readBodies()).toEqual([
      {
        type: 'endpoint.disabled',
        id: scene.appended[0]?.id,
        created: NOW / 1_000,
        data: {
          endpointId: 'acme',
          url: 'https://acme.example',
          reason: 'failing',
          failures: 20,
          failingSince: new Date(NOW - 5 * DAY).toISOString(),
          lastAttempt: {
            timestamp: new Date(NOW).toISOString(),
            durationMs: 15_000,
            outcome: 'timeout',
            detail: 'no response within 15 s',
          },
        },
      },
    ]);
  });

  test('disables no endpoint for five days that a clock was set ahead, unless it stays there', async () => {
    lane.state = { ...DYING, firstFailureAt: NOW - 20_000 };
    lane.add(3);
    scene.sender.respond = () => failed('connect');
    clock.step(5 * DAY);
    for (let count = 0; count < 30; count++) {
      await scene.run(lane);
      await clock.advance(60_000);
    }
    expect(scene.registry.disabled).toEqual([]);
    await clock.advance(3_600_000);
    await scene.run(lane);
    expect(scene.registry.disabled).toEqual([['acme', 'failing']]);
  });

  test('disables an endpoint at once after 410, once for all attempts in flight', async () => {
    lane.add(10);
    scene.sender.respond = () => responded(410);
    await scene.run(lane);
    expect(scene.registry.disabled).toEqual([['acme', 'gone']]);
    expect(lane.kinds.every((kind) => kind === 'dead')).toBe(true);
    expect(scene.sender.started.length).toBeLessThanOrEqual(4);
    expect(scene.appended.map(({ type }) => type)).toEqual(['endpoint.disabled']);
  });

  test.each([
    ['URL', { url: 'https://new.example' }],
    ['tenant', { tenant: 'other', allTenants: true }],
    ['time at which it was created or enabled', { enabledAt: NOW }],
  ])('ignores failures of attempts from before the endpoint had another %s', async (_, change) => {
    lane.add(4);
    const run = scene.run(lane);
    await settle();
    scene.registry.set(anEndpoint('acme', change));
    scene.sender.respond = () => responded(204);
    for (const status of [410, 500, 410, 503]) scene.sender.inFlight[0]?.end(responded(status));
    await run;
    expect(scene.registry.disabled).toEqual([]);
    expect(scene.hooks.filter((line) => /disabled|exhausted|retry/.test(line))).toEqual([]);
    expect(lane.kinds.filter((kind) => kind !== 'delivered')).toEqual(Array(4).fill('postponed'));
  });

  test('pauses for two seconds, and counts nothing, if this process had no memory for the connection', async () => {
    scene.registry.set(anEndpoint('acme', { schedule: [] }));
    lane.add(1);
    scene.sender.respond = () => failed('aborted');
    for (let count = 0; count < 30; count++) {
      const begun = clock.now();
      expect(await scene.run(lane)).toEqual({ notBefore: begun + 2_000 });
      expect(scene.sender.started).toHaveLength(count + 1);
      expect(await scene.run(lane), 'in the pause').toEqual({ notBefore: begun + 2_000 });
      expect(lane.state).toMatchObject({ ...PROVEN, pausedUntil: begun + 2_000, pausedAt: begun });
      await clock.advance(DAY);
    }
    expect(new Set(scene.hooks)).toEqual(new Set(['attempt acme msg_1 aborted undefined']));
    expect(lane.deliveries).toMatchObject([{ event: 'msg_1', attempt: 0, tries: 0 }]);
    scene.sender.respond = () => responded(204);
    await scene.run(lane);
    expect(lane.kinds.at(-1)).toBe('delivered');
  });

  test('keeps a longer pause that the endpoint asked for', async () => {
    lane.add(2);
    const run = scene.run(lane);
    await settle();
    const [throttled, other] = scene.sender.inFlight;
    throttled?.end({ ...responded(429), retryAfter: 60_000 });
    other?.end(failed('aborted'));
    const begun = clock.now();
    expect(await run).toEqual({ notBefore: begun + 60_000 });
  });

  test('disables an operational endpoint without a report about it', async () => {
    scene.registry.set(anEndpoint('ops', { isOperational: true }));
    lane = new FakeLane('ops', PROVEN);
    lane.add(2, { tries: 9 });
    scene.sender.respond = ({ event }) => responded(event === 'msg_1' ? 500 : 410);
    await scene.run(lane);
    expect(scene.registry.disabled).toEqual([['ops', 'gone']]);
    expect(scene.hooks).toContain('exhausted ops msg_1 exhausted');
    expect(scene.appended).toEqual([]);
  });

  test('goes on if the registry does not disable the endpoint', async () => {
    scene.registry.disable = () => Promise.resolve(false);
    lane.add(2);
    scene.sender.respond = () => responded(410);
    await scene.run(lane);
    await scene.run(lane);
    expect(lane.kinds).toEqual(['dead', 'dead']);
    expect(scene.appended).toEqual([]);
    expect(scene.hooks.filter((line) => line.startsWith('disabled'))).toEqual([]);
  });
});

describe('a message that will not be delivered', () => {
  test('is reported with its last attempt', async () => {
    scene.registry.set(anEndpoint('acme', { allTenants: true }));
    lane.add(1, { tries: 9, attempt: 12, tenant: 'tenant-1' });
    scene.sender.respond = () => responded(503, { startedAt: NOW, detail: 'HTTP 503' });
    await scene.run(lane);
    expect(lane.kinds).toEqual(['dead']);
    expect(scene.hooks).toContain('exhausted acme msg_1 exhausted');
    expect(readBodies()).toEqual([
      {
        type: 'message.exhausted',
        id: scene.appended[0]?.id,
        created: NOW / 1_000,
        data: {
          endpointId: 'acme',
          url: 'https://acme.example',
          msgId: 'msg_1',
          eventType: 'invoice.paid',
          tenant: 'tenant-1',
          reason: 'exhausted',
          attempts: 10,
          lastAttempt: {
            timestamp: new Date(NOW).toISOString(),
            durationMs: 20,
            outcome: 'server_error',
            responseStatusCode: 503,
            detail: 'HTTP 503',
          },
        },
      },
    ]);
  });

  test('is reported again after it was purged and recovered', async () => {
    scene.sender.respond = () => responded(503);
    for (const due of [NOW - 2, NOW - 1]) {
      lane.add(1, { event: 'msg_1', tries: 9, attempt: 9, due });
      await scene.run(lane);
    }
    expect(new Set(scene.appended.map(({ id }) => id)).size).toBe(2);
  });

  test('is reported to the tenant of the endpoint', async () => {
    scene.registry.set(anEndpoint('acme', { tenant: 't1' }));
    lane.add(1, { tries: 9, attempt: 9, tenant: 't1' });
    scene.sender.respond = () => responded(503);
    await scene.run(lane);
    expect(scene.appended.map(({ type, tenant }) => [type, tenant])).toEqual([['message.exhausted', 't1']]);
  });

  test('is reported without what only the operator may know about names and addresses, if no request was sent', async () => {
    const failures = [
      { outcome: 'blocked', detail: 'db.corp.example: its address 10.2.3.4 is not on the public internet' },
      { outcome: 'dns', detail: 'db.corp.example cannot be resolved (ENOTFOUND)' },
      { outcome: 'connect', detail: 'egress proxy: the connection failed (ECONNREFUSED)' },
    ] as const;
    for (const failure of failures) {
      lane = new FakeLane('acme', PROVEN);
      lane.add(1, { tries: 9, attempt: 9 });
      scene.sender.respond = () => ({ ...failure, startedAt: NOW, duration: 20, isSent: false });
      await scene.run(lane);
    }
    const attempts = (readBodies() as { readonly data: { readonly lastAttempt: object } }[]).map(({ data }) => data.lastAttempt);
    const common = { timestamp: new Date(NOW).toISOString(), durationMs: 20, detail: 'no request was sent' };
    expect(attempts).toEqual(['blocked', 'blocked', 'connect'].map((outcome) => ({ ...common, outcome })));
  });

  test('is reported when the endpoint rejects it', async () => {
    lane.add(1);
    scene.sender.respond = () => responded(422);
    await scene.run(lane);
    expect(readBodies()).toMatchObject([{ data: { reason: 'rejected', attempts: 1 } }]);
  });

  test('is reported before it is settled, under an ID that a repeated attempt would give it again', async () => {
    const ids: (string | undefined)[] = [];
    for (let run = 0; run < 2; run++) {
      lane = new FakeLane('acme', PROVEN);
      lane.add(1, { tries: 9, attempt: 9 });
      lane.failure = new Error('killed before it was settled');
      scene.sender.respond = () => responded(500);
      await expect(scene.run(lane)).rejects.toThrow('killed');
      ids.push(scene.appended[run]?.id);
    }
    expect(ids[0]).toMatch(/^msg_[A-Za-z0-9_-]{22}$/);
    expect(ids[1]).toBe(ids[0]);
  });

  test('is settled although the queue is too full for the report', async () => {
    lane.add(1, { tries: 9 });
    scene.sender.respond = () => responded(500);
    scene.failAppend = new Error('queue_full');
    await scene.run(lane);
    expect(lane.kinds).toEqual(['dead']);
    expect(scene.hooks).toContain('lost message.exhausted');
  });

  test('is not stored if no operational endpoint wants it', async () => {
    scene.registry.operational = [];
    lane.add(1, { tries: 9 });
    scene.sender.respond = () => responded(500);
    await scene.run(lane);
    expect(scene.appended).toEqual([]);
  });
});

describe('an endpoint that is disabled or unknown', () => {
  const disable = (): void => scene.registry.set(anEndpoint('acme', { disabled: { at: NOW, reason: 'manual' } }));

  test('has its due deliveries skipped at once, in batches and without attempts', async () => {
    disable();
    lane.add(100);
    lane.add(1, { due: NOW + DAY });
    expect(await scene.run(lane)).toEqual({});
    expect(lane.kinds).toEqual(Array(100).fill('skipped'));
    expect(lane.settled).toHaveLength(4);
    expect(lane.deliveries).toHaveLength(1);
    expect(scene.sender.started).toHaveLength(0);
    expect(scene.hooks).toContain('skipped acme 32');
    expect(lane.state).toMatchObject(PROVEN);
  });

  test('keeps its deliveries while a replica that knows it waits for the end of a pause', async () => {
    scene.registry.endpoints.clear();
    lane.state = { ...PROVEN, pausedUntil: NOW + 3_600_000, pausedAt: NOW };
    lane.add(1);
    for (let waited = 0; waited < 3_500_000; waited += 5_000) {
      await scene.run(lane);
      await clock.advance(5_000);
    }
    expect(lane.kinds).toEqual([]);
  });

  test('gets its deliveries if another replica enabled it before they were taken', async () => {
    disable();
    lane.add(3, { version: 7 });
    scene.registry.stored = { version: 7, endpoint: anEndpoint('acme') };
    expect(await scene.run(lane)).toEqual({ notBefore: clock.now() + 5_000, isLeft: true });
    expect(lane.kinds).toEqual([]);
    scene.sender.respond = () => responded(200);
    await scene.run(lane);
    expect(lane.kinds).toEqual(Array(3).fill('delivered'));
  });

  test('keeps its deliveries for a new look if nobody looked for a while', async () => {
    lane = new FakeLane('new');
    lane.add(1);
    for (const wait of [5_000, UNKNOWN_GRACE_MS, 5_000]) {
      await scene.run(lane);
      await clock.advance(wait);
    }
    expect(lane.kinds).toEqual([]);
  });

  test('keeps a delivery that has just become due, although older ones are skipped, as a replica that knows it may have started', async () => {
    lane = new FakeLane('new', { ...PROVEN, absence: { kind: 'unknown', since: NOW - UNKNOWN_GRACE_MS, seenAt: NOW - 5_000 } });
    lane.add(1, { due: NOW - 20_000 });
    lane.add(1, { due: NOW - 1_000 });
    expect(await scene.run(lane)).toEqual({ notBefore: NOW + 5_000, isLeft: true });
    expect(lane.deliveries.map(({ event }) => event)).toEqual(['msg_2']);
  });

  test('keeps deliveries to an unknown endpoint for a quarter of an hour, as a newer replica may know it', async () => {
    lane = new FakeLane('new');
    lane.add(1);
    for (let minutes = 0; minutes < 15; minutes++) {
      for (let looks = 0; looks < 12; looks++) {
        await scene.run(lane);
        await clock.advance(5_000);
      }
    }
    expect(lane.kinds).toEqual([]);
    await scene.run(lane);
    expect(lane.kinds).toEqual(['skipped']);
    expect(lane.state).toMatchObject({ failures: 0, isProven: false, since: 0 });
  });

  test('keeps its deliveries as long as another replica knows it, which shares the state of the lane', async () => {
    lane = new FakeLane('new');
    lane.add(1, { due: clock.now() + DAY });
    const newer = createLaneScene(clock, [anEndpoint('new')]);
    for (let looks = 0; looks < 400; looks++) {
      // The replica with the older config has the lane most of the time.
      await (looks % 5 === 4 ? newer : scene).run(lane);
      await clock.advance(5_000);
    }
    lane.add(1);
    await scene.run(lane);
    expect(lane.kinds).toEqual([]);
    newer.sender.respond = () => responded(200);
    await newer.run(lane);
    expect(lane.kinds).toEqual(['delivered']);
  });

  test('is judged by all replicas together: one takes over what another has seen', async () => {
    lane = new FakeLane('new');
    lane.add(1);
    const scenes = [scene, createLaneScene(clock, []), createLaneScene(clock, [])];
    for (let looks = 0; looks < 180; looks++) {
      await scenes[looks % 3]?.run(lane);
      await clock.advance(5_000);
    }
    expect(lane.kinds).toEqual([]);
    // One that has just started.
    await createLaneScene(clock, []).run(lane);
    expect(lane.kinds).toEqual(['skipped']);
  });

  test('is judged anew if the clock of a replica is far ahead, and again when it is back', async () => {
    lane = new FakeLane('new');
    lane.add(1);
    const ahead = createLaneScene(new FakeClock(clock.now() + DAY), []);
    await scene.run(lane);
    await ahead.run(lane);
    await clock.advance(5_000);
    await scene.run(lane);
    await clock.advance(UNKNOWN_GRACE_MS - 10_000);
    await scene.run(lane);
    expect(lane.kinds).toEqual([]);
  });

  test('gets no further attempt when it is disabled or deleted in the middle of a run', async () => {
    lane.add(10);
    const run = scene.run(lane);
    await settle();
    scene.registry.endpoints.delete('acme');
    for (const { end } of [...scene.sender.inFlight]) end(responded(200));
    expect(await run).toEqual({ notBefore: undefined });
    expect(scene.sender.started).toHaveLength(4);
    expect(lane.deliveries).toHaveLength(6);
  });
});
