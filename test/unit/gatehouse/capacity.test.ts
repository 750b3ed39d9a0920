import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Capacity, type CapacityLimits, type CapacityResult } from '../../../src/gatehouse/capacity.ts';
import { FakeClock, settle } from '../../support/fake-clock.ts';

const LIMITS: CapacityLimits = { maxInFlight: 2, maxQueued: 2, queueTimeout: 1_000 };

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
    results[at] = await capacity.enter();
  };
  return { clock, gauges, capacity, results, enter };
}

describe('places', () => {
  test('are given at once while there are some, then queued for, then refused', async () => {
    const { capacity, enter, results, gauges } = start();
    for (let i = 0; i < 5; i++) void enter();
    await settle();
    expect(results).toEqual(['entered', 'entered', undefined, undefined, 'queue_full']);
    expect(gauges).toEqual({ inFlight: 2, queued: 2 });
    expect(capacity.inFlight).toBe(2);
  });

  test('go to whoever waits longest', async () => {
    const { capacity, enter, results, gauges } = start();
    for (let i = 0; i < 4; i++) void enter();
    await settle();
    capacity.leave();
    await settle();
    expect(results).toEqual(['entered', 'entered', 'entered', undefined]);
    expect(gauges).toEqual({ inFlight: 2, queued: 1 });
  });

  test('are not waited for longer than the queue allows, and a timer is left for nobody', async () => {
    const { capacity, clock, enter, results, gauges } = start();
    for (let i = 0; i < 4; i++) void enter();
    await clock.advance(999);
    capacity.leave();
    await clock.advance(1);
    expect(results).toEqual(['entered', 'entered', 'entered', 'queue_timeout']);
    expect(gauges).toEqual({ inFlight: 2, queued: 0 });
    expect(clock.timers).toBe(0);
  });

  test('are given to nobody once the house is closed', async () => {
    const { capacity, clock, enter, results, gauges } = start();
    for (let i = 0; i < 3; i++) void enter();
    await settle();
    capacity.close();
    void enter();
    await settle();
    expect(results).toEqual(['entered', 'entered', 'closed', 'closed']);
    capacity.leave();
    capacity.leave();
    expect(gauges).toEqual({ inFlight: 0, queued: 0 });
    expect(clock.timers).toBe(0);
  });
});

test('whatever comes and goes, no more are inside or waiting than allowed, and each ask has one end', async () => {
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
          capacity.leave();
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
