import { expect, test } from 'vitest';
import type { Clock } from '../../../../src/core/clock.ts';
import { EventLoopMonitor } from '../../../../src/telemetry/metrics/process-metrics.ts';

/** An event loop whose turns take as long as a test says. */
function makeLoop() {
  let now = 0;
  let check = (): void => undefined;
  const clock: Clock = {
    now: () => now,
    monotonic: () => now,
    after: () => () => undefined,
    every: (_interval, action) => {
      check = action;
      return () => {
        check = () => undefined;
      };
    },
  };
  const monitor = new EventLoopMonitor(clock);
  const turn = (...durations: number[]): void => {
    for (const duration of durations) {
      now += duration;
      check();
    }
  };
  return { monitor, turn };
}

test('a loop with an occasional turn of a second is not stuck', () => {
  const { monitor, turn } = makeLoop();
  turn(...Array<number>(100).fill(1_500), 1_000, 1_999, 2_000);
  expect(monitor.stuckFor).toBeUndefined();
});

test('a single pause of any length does not count, because the machine was suspended or the process stopped', () => {
  const { monitor, turn } = makeLoop();
  turn(3_600_000);
  expect(monitor.stuckFor).toBeUndefined();
  turn(1_000);
  expect(monitor.stuckFor).toBeUndefined();
});

test('a loop whose every turn is late is stuck after half a minute, and not before', () => {
  const { monitor, turn } = makeLoop();
  turn(...Array<number>(10).fill(3_000), 2_999);
  expect(monitor.stuckFor).toBeUndefined();
  turn(3_000);
  expect(monitor.stuckFor).toBe(32_999);
});

test('a single turn in time ends the stuck state', () => {
  const { monitor, turn } = makeLoop();
  turn(...Array<number>(20).fill(3_000));
  expect(monitor.stuckFor).toBe(57_000);
  turn(1_000);
  expect(monitor.stuckFor).toBeUndefined();
  turn(...Array<number>(5).fill(3_000));
  expect(monitor.stuckFor).toBeUndefined();
});
