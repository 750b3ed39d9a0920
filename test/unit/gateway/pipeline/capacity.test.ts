import { describe, expect, test } from 'vitest';
import { type AppSlot, Capacity, type CapacityLimits, type CapacityResult } from '../../../../src/gateway/pipeline/capacity.ts';
import { FakeClock, settle } from '../../../support/fake-clock.ts';
import { fc } from '../../../support/property.ts';

const LIMITS: CapacityLimits = { maxInFlight: 2, maxQueued: 2, queueTimeout: 1_000 };
const COMPLETE = { body: { isArriving: false } };
const PLACE: AppSlot = { client: '203.0.113.9', isVerified: true };

function start(limits: CapacityLimits = LIMITS) {
  const clock = new FakeClock();
  const gauges = { inFlight: 0, queued: 0 };
  const capacity = new Capacity(limits, clock, {
    onInFlight: (delta) => {
      gauges.inFlight += delta;
    },
    onQueued: (delta) => {
      gauges.queued += delta;
    },
  });
  const results: (CapacityResult | undefined)[] = [];
  const enter = async (): Promise<void> => {
    const at = results.push(undefined) - 1;
    results[at] = await capacity.enter(PLACE);
  };
  return { clock, gauges, capacity, results, enter };
}

describe('places', () => {
  test('are granted at once while any are free, then queued for, then rejected', async () => {
    const { enter, results, gauges } = start();
    for (let i = 0; i < 5; i++) void enter();
    await settle();
    expect(results).toEqual(['entered', 'entered', undefined, undefined, 'queue_full']);
    expect(gauges).toEqual({ inFlight: 2, queued: 2 });
  });

  test('go to the request that has waited longest', async () => {
    const { capacity, enter, results, gauges } = start();
    for (let i = 0; i < 4; i++) void enter();
    await settle();
    capacity.leave(PLACE);
    await settle();
    expect(results).toEqual(['entered', 'entered', 'entered', undefined]);
    expect(gauges).toEqual({ inFlight: 2, queued: 1 });
  });

  test('are waited for at most as long as the queue allows, without leftover timers', async () => {
    const { capacity, clock, enter, results, gauges } = start();
    for (let i = 0; i < 4; i++) void enter();
    await clock.advance(999);
    capacity.leave(PLACE);
    await clock.advance(1);
    expect(results).toEqual(['entered', 'entered', 'entered', 'queue_timeout']);
    expect(gauges).toEqual({ inFlight: 2, queued: 0 });
    expect(clock.timers).toBe(0);
  });

  test('are not granted once the capacity is closed', async () => {
    const { capacity, clock, enter, results, gauges } = start();
    for (let i = 0; i < 3; i++) void enter();
    await settle();
    capacity.close();
    void enter();
    await settle();
    expect(results).toEqual(['entered', 'entered', 'closed', 'closed']);
    capacity.leave(PLACE);
    capacity.leave(PLACE);
    expect(gauges).toEqual({ inFlight: 0, queued: 0 });
    expect(clock.timers).toBe(0);
  });
});

test('for any order of requests the limits hold, and each request has one outcome', async () => {
  const step = fc.oneof(
    { weight: 4, arbitrary: fc.constant('enter') },
    { weight: 3, arbitrary: fc.constant('leave') },
    { weight: 1, arbitrary: fc.constant('wait') },
  );
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
      const { capacity, clock, enter, results, gauges } = start();
      const count = (result: CapacityResult | undefined): number => results.filter((one) => one === result).length;
      let left = 0;
      for (const one of steps) {
        if (one === 'enter') void enter();
        else if (one === 'wait') await clock.advance(600);
        else if (count('entered') > left) {
          left++;
          capacity.leave(PLACE);
        }
        await settle();
        expect(gauges.inFlight).toBe(count('entered') - left);
        expect(gauges.queued).toBe(count(undefined));
        expect(gauges.inFlight).toBeLessThanOrEqual(LIMITS.maxInFlight);
        expect(gauges.queued).toBeLessThanOrEqual(LIMITS.maxQueued);
        expect(gauges.queued === 0 || gauges.inFlight === LIMITS.maxInFlight).toBe(true);
      }
    }),
    { numRuns: 60 },
  );
});

describe('shares', () => {
  const BUSY: CapacityLimits = { maxInFlight: 8, maxQueued: 8, queueTimeout: 1_000 };
  const toSlot = (client: string, isVerified: boolean): AppSlot => ({ client, isVerified });
  const enterMany = (capacity: Capacity, count: number, place: (index: number) => AppSlot) => {
    const results: (CapacityResult | undefined)[] = [];
    for (let i = 0; i < count; i++) {
      const entering = capacity.enter(place(i));
      if (entering instanceof Promise) {
        results.push(undefined);
        void entering.then((result) => {
          results[i] = result;
        });
      } else results.push(entering);
    }
    const count_ = (wanted: CapacityResult | undefined): number => results.filter((each) => each === wanted).length;
    return { results, count: count_ };
  };

  test('leave half of the places and of the queue to verified requests, with any number of other clients', async () => {
    const { capacity } = start(BUSY);
    const flood = enterMany(capacity, 100, (i) => toSlot(`198.51.100.${i}`, false));
    expect([flood.count('entered'), flood.count(undefined), flood.count('unverified_share')]).toEqual([4, 4, 92]);
    const valid = enterMany(capacity, 8, (i) => toSlot(`203.0.113.${i}`, true));
    expect([valid.count('entered'), valid.count(undefined)]).toEqual([4, 4]);
  });

  test('leave a quarter of the places and of the queue to other clients, even for verified requests', async () => {
    const { capacity } = start(BUSY);
    const flood = enterMany(capacity, 100, () => PLACE);
    expect([flood.count('entered'), flood.count(undefined), flood.count('client_share')]).toEqual([6, 6, 88]);
    const other = enterMany(capacity, 4, () => toSlot('203.0.113.10', true));
    expect([other.count('entered'), other.count(undefined)]).toEqual([2, 2]);
  });

  test('count an IPv6 /64 as one client', async () => {
    const { capacity } = start(BUSY);
    const flood = enterMany(capacity, 100, (i) => capacity.toSlot({ address: `2001:db8::${i.toString(16)}`, isVerified: true }));
    expect([flood.count('entered'), flood.count(undefined)]).toEqual([6, 6]);
  });

  test('give a freed place to the first request that may have it, not to the first in the queue', async () => {
    const { capacity, gauges } = start({ ...BUSY, maxInFlightUnverified: 4 });
    const open = enterMany(capacity, 5, (i) => toSlot(`198.51.100.${i}`, false));
    const valid = enterMany(capacity, 5, (i) => toSlot(`203.0.113.${i}`, true));
    expect([open.count(undefined), valid.count(undefined)]).toEqual([1, 1]);
    capacity.leave(toSlot('203.0.113.0', true));
    await settle();
    expect([open.count(undefined), valid.count(undefined)]).toEqual([1, 0]);
    capacity.leave(toSlot('198.51.100.0', false));
    await settle();
    expect([open.count(undefined), gauges.inFlight]).toEqual([0, 8]);
  });

  test('leave a quarter of the places and of the queue to other routes, with any number of clients', async () => {
    const { capacity } = start(BUSY);
    const flood = enterMany(capacity, 100, (i) => ({ ...toSlot(`198.51.100.${i}`, true), route: 'a' }));
    expect([flood.count('entered'), flood.count(undefined), flood.count('route_share')]).toEqual([6, 6, 88]);
    const other = enterMany(capacity, 4, (i) => ({ ...toSlot(`203.0.113.${i}`, true), route: 'b' }));
    expect([other.count('entered'), other.count(undefined)]).toEqual([2, 2]);
  });

  test.each([true, false])('of a route are not all for one client (verified: %s)', (isVerified) => {
    const { capacity } = start({ ...BUSY, maxInFlight: 256, maxQueued: 256 });
    const flood = enterMany(capacity, 400, () => ({ ...PLACE, isVerified, route: 'a' }));
    expect(flood.count('entered')).toBe(isVerified ? 144 : 72);
    expect(flood.count('client_share')).toBeGreaterThan(0);
    expect(capacity.enter({ ...toSlot('203.0.113.10', isVerified), route: 'a' })).toBe('entered');
  });

  test.each([
    [true, undefined, [192, 48, 12]],
    [false, undefined, [96, 24, 6]],
    [true, 'a', [144, 36, 9]],
    [false, 'a', [72, 18, 5]],
  ])('are left to a third client, slots and queue alike (verified: %s, route: %s)', (isVerified, route, expected) => {
    const { capacity } = start({ ...BUSY, maxInFlight: 256, maxQueued: 256 });
    const floods = expected.map((_, i) => enterMany(capacity, 400, () => ({ ...toSlot(`198.51.100.${i}`, isVerified), route })));
    for (const result of ['entered', undefined] as const) expect(floods.map(({ count }) => count(result))).toEqual(expected);
    expect(floods.every(({ count }) => count('client_share') > 0)).toBe(true);
  });

  test('of those that last are left to a third client', async () => {
    const { capacity, clock } = start({ ...BUSY, maxInFlight: 256 });
    for (let round = 0; round < 3; round++) {
      for (const client of ['198.51.100.1', '203.0.113.1'])
        for (let i = 0; i < 300; i++) {
          const slot = toSlot(client, false);
          if (capacity.enter(slot) === 'entered')
            capacity.follow(slot, { request: COMPLETE, response: { headersSent: true } }, 5_000);
        }
      await clock.advance(6_000);
    }
    expect(capacity.enter(toSlot('192.0.2.9', false))).toBe('entered');
  });

  test('of one client are as many as the config says, and no more', () => {
    const { capacity } = start({ ...BUSY, maxInFlight: 256, maxInFlightPerClient: 100 });
    expect(enterMany(capacity, 400, () => PLACE).count('entered')).toBe(100);
  });

  test('are all for one client if the config says so', () => {
    const { capacity } = start({ ...BUSY, maxInFlight: 256, maxInFlightPerClient: 256 });
    expect(enterMany(capacity, 400, () => ({ ...PLACE, route: 'a' })).count('route_share')).toBeGreaterThan(0);
  });

  test('leave places to a route, however many others have an app that hangs', () => {
    const { capacity } = start({ ...BUSY, maxInFlight: 256 });
    const flood = enterMany(capacity, 8_000, (i) => ({ ...toSlot(`198.51.100.${i % 200}`, true), route: `a${i % 8}` }));
    expect(flood.count('entered')).toBeLessThan(256);
    expect(capacity.enter({ ...PLACE, route: 'b' })).toBe('entered');
  });

  test('give all of the places to the only route', () => {
    const { capacity } = start(BUSY);
    expect(enterMany(capacity, 8, (i) => toSlot(`198.51.100.${i}`, true)).count('entered')).toBe(8);
  });

  test('leave some of the places for unverified requests to other open routes', () => {
    const { capacity } = start(BUSY);
    const open = enterMany(capacity, 100, (i) => ({ ...toSlot(`198.51.100.${i}`, false), route: 'a' }));
    expect([open.count('entered'), open.count('route_share')]).toEqual([3, 94]);
    expect(capacity.enter({ ...toSlot('203.0.113.1', false), route: 'b' })).toBe('entered');
  });

  test('can be set, and are never less than one place', async () => {
    const { capacity } = start({ ...BUSY, maxInFlight: 1, maxInFlightPerClient: 500, maxInFlightUnverified: 500 });
    expect(capacity.enter(toSlot('198.51.100.1', false))).toBe('entered');
    capacity.leave(toSlot('198.51.100.1', false));
    expect(capacity.enter(PLACE)).toBe('entered');
  });
});

describe('a response that lasts', () => {
  test('leaves its place after its time, counted from its head, and to the first request that waits', async () => {
    const { capacity, clock, enter, results, gauges } = start({ ...LIMITS, queueTimeout: 60_000 });
    const response = { headersSent: false };
    const slot = { ...PLACE };
    expect(capacity.enter(slot)).toBe('entered');
    capacity.follow(slot, { request: COMPLETE, response }, 5_000);
    await enter();
    void enter();
    await clock.advance(20_000);
    expect(results).toEqual(['entered', undefined]);
    response.headersSent = true;
    await clock.advance(4_000);
    expect(results).toEqual(['entered', undefined]);
    await clock.advance(2_000);
    expect(results).toEqual(['entered', 'entered']);
    expect(gauges).toEqual({ inFlight: 2, queued: 0 });
    capacity.leave(slot);
    expect(gauges.inFlight).toBe(2);
    await clock.advance(2_000);
    expect(clock.timers).toBe(0);
  });

  test('leaves its place also before its head, if its request has been arriving for that time', async () => {
    const { capacity, clock, gauges } = start();
    const request = { body: { isArriving: true } };
    const slot = { ...PLACE };
    expect(capacity.enter(slot)).toBe('entered');
    capacity.follow(slot, { request, response: { headersSent: false } }, 5_000);
    await clock.advance(4_000);
    expect(gauges.inFlight).toBe(1);
    await clock.advance(2_000);
    expect(gauges.inFlight).toBe(0);
    capacity.leave(slot);
    expect(gauges.inFlight).toBe(0);
  });

  test('keeps its place if there are as many others as there are places', async () => {
    const { capacity, clock, gauges } = start();
    const slots = Array.from({ length: 4 }, (_, i): AppSlot => ({ client: `198.51.100.${i}`, isVerified: true }));
    for (const slot of slots) {
      expect(capacity.enter(slot)).toBe('entered');
      capacity.follow(slot, { request: COMPLETE, response: { headersSent: true } }, 5_000);
      await clock.advance(6_000);
    }
    expect(gauges.inFlight).toBe(2);
    for (const slot of slots) capacity.leave(slot);
    expect(gauges.inFlight).toBe(0);
  });
});
