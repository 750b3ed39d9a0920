/** The queueing model behind docs/scale.md, against formulas of queueing theory. */
import { describe, expect, test } from 'vitest';
import { EventLoop, Timeline } from '../../../bench/scale/event-loop.ts';
import { fitLinear, fitTimes } from '../../../bench/scale/fit.ts';
import { type CallParts, toCapacity, toUtilization } from '../../../bench/scale/results.ts';
import { simulateFleet, simulateSmall } from '../../../bench/scale/simulate.ts';
import { SeededRandom } from '../../simulation/seeded-random.ts';

const SERVICE = 10;
const ARRIVALS = 200_000;

/** Waiting times of customers that arrive at random at a server with a fixed service time. */
function simulateQueue(utilization: number): { readonly meanWait: number; readonly utilization: number } {
  const timeline = new Timeline();
  const random = new SeededRandom(1);
  let waited = 0;
  let served = 0;
  const loop = new EventLoop<number>({
    timeline,
    toWakeup: () => 0,
    toCost: () => SERVICE,
    maxPerTurn: 1,
    onTurn: ([arrivedAt = 0]) => {
      waited += timeline.now - arrivedAt - SERVICE;
      served++;
    },
  });
  const arrive = (): void => {
    loop.post(timeline.now);
    timeline.after((-Math.log(1 - random.fraction()) * SERVICE) / utilization, arrive);
  };
  arrive();
  timeline.runUntil((ARRIVALS * SERVICE) / utilization);
  return { meanWait: waited / served, utilization: loop.busy / timeline.now };
}

describe('an event loop that takes one item per turn', () => {
  test.each([0.3, 0.5, 0.8])('waits as long as an M/D/1 queue that is busy for %d of the time', (utilization) => {
    const found = simulateQueue(utilization);
    const expected = (utilization * SERVICE) / (2 * (1 - utilization));
    expect(Math.abs(found.meanWait / expected - 1)).toBeLessThan(0.03);
    expect(found.utilization).toBeCloseTo(utilization, 2);
  });
});

describe('an event loop', () => {
  test('takes what arrived during a turn in the next one, and sleeps when nothing is left', () => {
    const timeline = new Timeline();
    const turns: [number, readonly string[]][] = [];
    const slept: number[] = [];
    const loop = new EventLoop<string>({
      timeline,
      toWakeup: (since) => {
        slept.push(since);
        return 5;
      },
      toCost: () => 10,
      onTurn: (items) => turns.push([timeline.now, items]),
    });
    for (const [at, name] of [
      [100, 'a'],
      [103, 'b'],
      [110, 'c'],
      [111, 'd'],
      [300, 'e'],
    ] as const)
      timeline.after(at, () => loop.post(name));
    timeline.runUntil(1_000);
    expect(turns).toEqual([
      [125, ['a', 'b']],
      [145, ['c', 'd']],
      [315, ['e']],
    ]);
    expect(slept).toEqual([100, 155]);
    expect(loop.busy).toBe(60);
    expect(loop.wakeups).toBe(2);
  });

  test('runs what is due at the same time in the order of the calls', () => {
    const timeline = new Timeline();
    const found: number[] = [];
    for (const [i, at] of [3, 1, 2, 1, 3, 1].entries()) timeline.after(at, () => found.push(i));
    timeline.runUntil(2);
    expect(found).toEqual([1, 3, 5, 2]);
    timeline.runUntil(3);
    expect(found).toEqual([1, 3, 5, 2, 0, 4]);
  });
});

const SERVICE_TIMES = { wakeup: 26, coldWakeup: 26, read: 3, call: 5, operation: 4 };
const TIMES = { service: SERVICE_TIMES, client: { call: 20, operation: 4 }, gateMicroseconds: 160 };
const PARTS: CallParts = { service: SERVICE_TIMES, id: { expiryMicroseconds: 0 }, surcharges: [] };

describe('a simulated fleet', () => {
  test('keeps Redis as busy as the formula of the page says, below its capacity', () => {
    for (const eventsPerSecond of [1_000, 10_000, 20_000]) {
      const seconds = 50_000 / eventsPerSecond;
      const found = simulateFleet(TIMES, { gates: 1_000, senders: 10_000, shards: 1, eventsPerSecond, seconds });
      const expected = toUtilization(PARTS, 2 * eventsPerSecond);
      expect(found.delivered / eventsPerSecond).toBeCloseTo(1, 1);
      expect(Math.abs(found.utilization / expected - 1)).toBeLessThan(0.05);
    }
  });

  test('delivers no more than Redis can take, and as many as fit by Little’s law', () => {
    const offered = 80_000;
    const senders = 10_000;
    const found = simulateFleet(TIMES, { gates: 1_000, senders, shards: 1, eventsPerSecond: offered, seconds: 1 });
    expect(found.utilization).toBeGreaterThan(0.98);
    // A turn reads and runs at least its operations.
    expect(2 * found.delivered * SERVICE_TIMES.operation).toBeLessThan(1e6);
    // Senders in a delivery, and those in the pause between two.
    const pause = Math.max(senders / offered - 0.03066, 0);
    const inSystem = found.delivered * (found.deliveryP50 / 1_000 + pause);
    expect(Math.abs(inSystem / senders / Math.ceil((offered / senders) * 0.1) - 1)).toBeLessThan(0.05);
  });

  test('is the same in each run', () => {
    const fleet = { gates: 10, senders: 100, shards: 3, eventsPerSecond: 1_000, seconds: 1 };
    expect(simulateFleet(TIMES, fleet)).toEqual(simulateFleet(TIMES, fleet));
  });
});

describe('the simulated small case', () => {
  test('sends what is due at one tick in one call', () => {
    const small = { gaps: [[1_000], [900, 1_100], [1_000], [1_000]], seconds: 5 };
    const sparse = simulateSmall(TIMES, { ...small, eventsPerSecond: 100 });
    const dense = simulateSmall(TIMES, { ...small, eventsPerSecond: 40_000 });
    expect(sparse.operations / sparse.calls).toBeLessThan(1.05);
    // Ten events in each tick; all of their claims share a call, and so do the confirmations.
    expect(dense.operations / dense.calls).toBeGreaterThan(9.5);
    expect(dense.operations / 80_000).toBeCloseTo(1, 1);
  });

  test('sends a confirm with the next claim if a process claims more than 500 times a second', () => {
    const small = { gaps: [[1_000]], seconds: 5 };
    const rare = simulateSmall(TIMES, { ...small, eventsPerSecond: 250 });
    const frequent = simulateSmall(TIMES, { ...small, eventsPerSecond: 1_000 });
    // In one of five ticks of the rare events, two are due.
    expect(rare.operations / rare.calls).toBeLessThan(1.3);
    expect(frequent.operations / frequent.calls).toBeGreaterThan(2);
    expect(frequent.operations).toBeGreaterThan(1_900);
  });
});

describe('the utilization', () => {
  test('and the capacity are inverse', () => {
    for (const share of [0.01, 0.3, 0.5, 0.99]) expect(toUtilization(PARTS, toCapacity(PARTS, share))).toBeCloseTo(share, 10);
  });
});

describe('the fit', () => {
  test('finds the times from which loads were computed', () => {
    const rows = [
      [1, 1, 1, 1],
      [1, 1, 1, 64],
      [0.1, 1, 1, 1],
      [0.2, 1, 12, 12],
    ];
    const times = [26, 3, 5, 4];
    const values = rows.map((row) => row.reduce((sum, count, i) => sum + count * (times[i] as number), 0));
    for (const [i, found] of fitLinear(rows, values).entries()) expect(found).toBeCloseTo(times[i] as number, 6);
  });

  test('has no negative times', () => {
    const found = fitLinear(
      [
        [1, 1],
        [2, 1],
        [3, 1],
      ],
      [3, 2, 1],
    );
    expect(Math.min(...found)).toBeGreaterThanOrEqual(0);
  });

  test('separates short sleeps from long ones', () => {
    const base = { title: '', operations: 100, calls: 100, reads: 100, clientMicroseconds: 1_000 };
    const { service } = fitTimes([
      { ...base, wakeups: 100, coldWakeups: 0, cpuMicroseconds: 3_800 },
      { ...base, wakeups: 10, coldWakeups: 0, cpuMicroseconds: 1_460 },
      { ...base, wakeups: 0, coldWakeups: 100, cpuMicroseconds: 6_200 },
      { ...base, operations: 6_400, wakeups: 100, coldWakeups: 0, cpuMicroseconds: 29_000 },
      { ...base, reads: 10, wakeups: 10, coldWakeups: 0, cpuMicroseconds: 1_190 },
    ]);
    expect(service).toEqual({ wakeup: 26, coldWakeup: 50, read: 3, call: 5, operation: 4 });
  });
});
