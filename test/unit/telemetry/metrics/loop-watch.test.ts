import { expect, test } from 'vitest';
import type { Clock } from '../../../../src/core/clock.ts';
import { LoopWatch } from '../../../../src/telemetry/metrics/loop-watch.ts';

/** A loop whose turns take as long as a test says. */
function makeLoop() {
  let now = 0;
  let beat = (): void => undefined;
  const clock: Clock = {
    now: () => now,
    monotonic: () => now,
    after: () => () => undefined,
    every: (_interval, action) => {
      beat = action;
      return () => {
        beat = () => undefined;
      };
    },
  };
  const watch = new LoopWatch(clock);
  const turn = (...durations: number[]): void => {
    for (const duration of durations) {
      now += duration;
      beat();
    }
  };
  return { watch, turn };
}

test('a loop that gets round is not stuck, also where a turn takes a second now and then', () => {
  const { watch, turn } = makeLoop();
  turn(...Array<number>(100).fill(1_500), 1_000, 1_999, 2_000);
  expect(watch.stuckFor).toBeUndefined();
});

test('one pause, however long, is none: the machine slept, or the process was stopped', () => {
  const { watch, turn } = makeLoop();
  turn(3_600_000);
  expect(watch.stuckFor).toBeUndefined();
  turn(1_000);
  expect(watch.stuckFor).toBeUndefined();
});

test('a loop that is late each time is stuck after half a minute, and not before', () => {
  const { watch, turn } = makeLoop();
  turn(...Array<number>(10).fill(3_000), 2_999);
  expect(watch.stuckFor).toBeUndefined();
  turn(3_000);
  expect(watch.stuckFor).toBe(32_999);
});

test('one turn in time is enough to be alive again', () => {
  const { watch, turn } = makeLoop();
  turn(...Array<number>(20).fill(3_000));
  expect(watch.stuckFor).toBe(57_000);
  turn(1_000);
  expect(watch.stuckFor).toBeUndefined();
  turn(...Array<number>(5).fill(3_000));
  expect(watch.stuckFor).toBeUndefined();
});
