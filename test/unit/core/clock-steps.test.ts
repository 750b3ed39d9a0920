import { expect, test } from 'vitest';
import { ClockSteps } from '../../../src/core/clock.ts';
import { FakeClock } from '../../support/fake-clock.ts';

const DAY_MS = 24 * 3_600_000;

test('is ahead after a step of more than a minute, until the clock is set back, or for an hour', async () => {
  const clock = new FakeClock();
  const steps = new ClockSteps(clock);
  await clock.advance(5 * DAY_MS);
  expect(steps.isAhead()).toBe(false);
  clock.step(60_000);
  expect(steps.isAhead()).toBe(false);
  clock.step(31 * DAY_MS);
  expect(steps.isAhead()).toBe(true);
  clock.step(-31 * DAY_MS);
  expect(steps.isAhead()).toBe(false);
  clock.step(5 * DAY_MS);
  expect(steps.isAhead()).toBe(true);
  await clock.advance(3_599_000);
  expect(steps.isAhead()).toBe(true);
  await clock.advance(1_000);
  expect([steps.isAhead(), steps.isAhead()]).toEqual([false, false]);
});

test('is not ahead after a step back, and from there again after a step forward', () => {
  const clock = new FakeClock();
  const steps = new ClockSteps(clock);
  clock.step(-DAY_MS);
  expect(steps.isAhead()).toBe(false);
  clock.step(DAY_MS);
  expect(steps.isAhead()).toBe(true);
});

test('counts from the restart: a store whose time is a day ahead of the process is not a clock that was set ahead', () => {
  const clock = new FakeClock();
  const steps = new ClockSteps(clock);
  clock.step(DAY_MS);
  steps.restart();
  expect(steps.isAhead()).toBe(false);
  clock.step(DAY_MS);
  expect(steps.isAhead()).toBe(true);
  steps.restart();
  expect(steps.isAhead()).toBe(false);
});
