import { beforeEach, expect, test } from 'vitest';
import { ReplyDeadlines } from '../../../../src/state/redis/reply-deadlines.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const LIMIT = 1_000;
let clock: FakeClock;
let deadlines: ReplyDeadlines;
let timedOut: string[];

beforeEach(() => {
  clock = new FakeClock();
  deadlines = new ReplyDeadlines(clock, LIMIT);
  timedOut = [];
});

const begin = (name: string) => deadlines.begin(() => timedOut.push(name));

test('each call that has no reply ends exactly at its deadline, and a later reply is too late', async () => {
  const first = begin('first');
  await clock.advance(400);
  const second = begin('second');
  await clock.advance(599);
  expect(timedOut).toEqual([]);
  await clock.advance(1);
  expect(timedOut).toEqual(['first']);
  expect(deadlines.end(first)).toBe(false);
  await clock.advance(399);
  expect(timedOut).toEqual(['first']);
  await clock.advance(1);
  expect(timedOut).toEqual(['first', 'second']);
  expect(deadlines.end(second)).toBe(false);
});

test('a call whose reply comes in time never times out, in whatever order replies come', async () => {
  const calls = ['a', 'b', 'c'].map(begin);
  expect(deadlines.end(calls[1] as (typeof calls)[number])).toBe(true);
  expect(deadlines.end(calls[0] as (typeof calls)[number])).toBe(true);
  await clock.advance(LIMIT);
  expect(timedOut).toEqual(['c']);
});

test('a call that begins when another times out gets its whole time', async () => {
  deadlines.begin(() => begin('next'));
  await clock.advance(LIMIT);
  await clock.advance(LIMIT - 1);
  expect(timedOut).toEqual([]);
  await clock.advance(1);
  expect(timedOut).toEqual(['next']);
});

test('any number of calls share one timer, and none is left once all are over', async () => {
  for (let i = 0; i < 1_000; i++) {
    const call = begin(String(i));
    await clock.advance(1);
    expect(clock.timers).toBe(1);
    deadlines.end(call);
  }
  await clock.advance(LIMIT);
  expect(clock.timers).toBe(0);
  expect(timedOut).toEqual([]);
});
