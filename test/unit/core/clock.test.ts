import { describe, expect, test } from 'vitest';
import { parseConfig } from '../../../src/config/load/load.ts';
import { ClockSteps, systemClock } from '../../../src/core/clock.ts';
import { FakeClock } from '../../support/fake-clock.ts';

const DAY_MS = 86_400_000;

/** Resolves after the timers of one millisecond that were set before. */
function turn(): Promise<void> {
  return new Promise((resolve) => systemClock.after(5, resolve));
}

test.each([25, 30, 60, 10_000])('a timer of %d days, longer than those of Node, does not fire at once', async (days) => {
  const fired: string[] = [];
  const cancels = [
    systemClock.after(days * DAY_MS, () => fired.push('after')),
    systemClock.every(days * DAY_MS, () => fired.push('every')),
  ];
  await turn();
  for (const cancel of cancels) cancel();
  expect(fired).toEqual([]);
});

test('a limit of time that the timers of libraries do not support is an error', () => {
  const text =
    'routes: []\nlimits: { bodyTimeout: 13d }\nprovider: { queue: { postgres: { url: { env: A }, statementTimeout: 20d } } }\n';
  const messages = parseConfig('gate.yaml', text, new FakeClock()).problems.map(({ message }) => message);
  expect(messages.sort()).toEqual(['13d is too long; write at most 12d', '20d is too long; write at most 12d']);
});

test('a duration that a store could not count from now is an error', () => {
  const text =
    'routes: []\nstore: { memory: {} }\nlimits: { queueTimeout: 36500d }\nshutdown: { grace: 36501d, drain: 999999999999d }\n';
  const messages = parseConfig('gate.yaml', text, new FakeClock()).problems.map(({ message }) => message);
  expect(messages).toEqual(
    expect.arrayContaining(['36501d is too long; write at most 36500d', '999999999999d is too long; write at most 36500d']),
  );
  expect(messages.filter((message) => message.startsWith('36500d'))).toEqual([]);
});

describe('ClockSteps', () => {
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
});
