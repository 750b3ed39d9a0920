import { describe, expect, test } from 'vitest';
import {
  type DecisionTotals,
  MAX_INTERVALS,
  MAX_RATED_ROUTES,
  RATE_INTERVAL_MS,
  RateHistory,
} from '../../../src/admin/rate-history.ts';
import { FakeClock } from '../../support/fake-clock.ts';

function create(routes: readonly string[]) {
  const clock = new FakeClock();
  const config = { routes };
  const totals = new Map<string, DecisionTotals>();
  const history = new RateHistory({
    clock,
    routes: () => config.routes,
    totals: (route) => totals.get(route) ?? { allowed: 0, rejected: 0, errors: 0 },
  });
  const pass = (intervals: number): Promise<void> => clock.advance(intervals * RATE_INTERVAL_MS);
  return { clock, config, totals, history, pass };
}

describe('the history of rates', () => {
  test('counts the decisions of each interval, oldest first', async () => {
    const { clock, totals, history, pass } = create(['a', 'b']);
    expect(history.of('a')).toEqual({ until: clock.now(), accepted: [], failed: [], rejected: [] });
    totals.set('a', { allowed: 5, rejected: 1, errors: 1 });
    await pass(1);
    totals.set('a', { allowed: 7, rejected: 1, errors: 1 });
    await pass(1);
    expect(history.of('a')).toEqual({ until: clock.now(), accepted: [5, 2], failed: [0, 0], rejected: [1, 0] });
    expect(history.of('b')).toMatchObject({ accepted: [0, 0] });
    expect(history.of('none')).toBeUndefined();
  });

  test('counts failures apart from what was handled, also if a response is counted later than its decision', async () => {
    const { totals, history, pass } = create(['a']);
    totals.set('a', { allowed: 5, rejected: 2, errors: 5 });
    await pass(1);
    totals.set('a', { allowed: 5, rejected: 3, errors: 5 });
    await pass(1);
    expect(history.of('a')).toMatchObject({ accepted: [2, 0], failed: [3, 0], rejected: [2, 1] });
  });

  test('keeps ten minutes', async () => {
    const { totals, history, pass } = create(['a']);
    for (let i = 1; i <= MAX_INTERVALS + 7; i++) {
      totals.set('a', { allowed: i * (i + 1), rejected: i, errors: i });
      await pass(1);
    }
    const { accepted = [], rejected = [] } = history.of('a') ?? {};
    expect([accepted.length, accepted[0], accepted.at(-1)]).toEqual([MAX_INTERVALS, 2 * 8, 2 * (MAX_INTERVALS + 7)]);
    expect(new Set(rejected)).toEqual(new Set([1]));
  });

  test('begins anew with counters that start again, and with a route that a reload adds', async () => {
    const { config, totals, history, pass } = create(['a']);
    totals.set('a', { allowed: 100, rejected: 0, errors: 0 });
    await pass(3);
    totals.set('a', { allowed: 4, rejected: 0, errors: 0 });
    totals.set('b', { allowed: 50, rejected: 50, errors: 50 });
    config.routes = ['a', 'b'];
    await pass(1);
    expect(history.of('a')).toMatchObject({ accepted: [100, 0, 0, 4] });
    expect(history.of('b')).toMatchObject({ accepted: [] });
    config.routes = ['b'];
    await pass(1);
    expect(history.of('a')).toBeUndefined();
    expect(history.of('b')).toMatchObject({ accepted: [0], rejected: [0] });
  });

  test('is bounded, also for a config with many routes', async () => {
    const names = Array.from({ length: MAX_RATED_ROUTES + 1 }, (_, i) => `r${i}`);
    const { history, pass } = create(names);
    await pass(1);
    expect(history.of(`r${MAX_RATED_ROUTES - 1}`)).toBeDefined();
    expect(history.of(`r${MAX_RATED_ROUTES}`)).toBeUndefined();
  });

  test('ends with the port', async () => {
    const { totals, history, pass } = create(['a']);
    history.close();
    totals.set('a', { allowed: 1, rejected: 0, errors: 0 });
    await pass(2);
    expect(history.of('a')).toMatchObject({ accepted: [] });
  });
});
