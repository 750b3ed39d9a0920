import { PassThrough } from 'node:stream';
import { expect, test } from 'vitest';
import { pauseUntilDrained, ReadPause } from '../../../../src/core/reading.ts';
import { PausedMemory } from '../../../../src/http/server/limits.ts';
import { NO_PRESSURE } from '../../../../src/http/server/memory-guard.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const KIB = 1_024;
/** What each pause counts for, without bytes that wait. */
const PAUSE = 128 * KIB;

function start(maxBytes: number) {
  const clock = new FakeClock();
  const hits: string[] = [];
  const garbage: number[] = [];
  const pressure = { ...NO_PRESSURE, onGarbage: (bytes: number) => void garbage.push(bytes) };
  const pauses = new PausedMemory(maxBytes, clock, (limit) => void hits.push(limit), pressure);
  const ended: string[] = [];
  const pause = (network: string, name: string, bytes = 0): ReadPause =>
    new ReadPause({ network, pauses }, bytes, 60_000, (isEvicted) => void ended.push(`${name} ${isEvicted}`));
  return { clock, pauses, hits, garbage, ended, pause };
}

test('ends the oldest pauses of the network that holds most, and counts them as garbage', async () => {
  const { clock, pauses, hits, garbage, ended, pause } = start(4 * PAUSE);
  const slow = pause('192.0.2.1', 'slow');
  await clock.advance(1);
  for (const name of ['first', 'second', 'third']) {
    pause('192.0.2.2', name);
    await clock.advance(1);
  }
  expect([pauses.held, ended]).toEqual([4 * PAUSE, []]);
  pause('192.0.2.2', 'fourth');
  expect([pauses.held, ended, slow.isOver]).toEqual([4 * PAUSE, ['first true'], false]);
  expect([hits, garbage]).toEqual([['buffer_share'], [PAUSE]]);
});

test('counts what waits until the pause is over, and nothing afterwards', async () => {
  const { clock, pauses, ended, pause } = start(4 * PAUSE);
  const [one, two] = [pause('192.0.2.1', 'one', KIB), pause('192.0.2.1', 'two')];
  expect(pauses.held).toBe(2 * PAUSE + KIB);
  one.end();
  one.evict();
  expect([pauses.held, ended]).toEqual([PAUSE, []]);
  await clock.advance(60_000);
  expect([pauses.held, ended, two.isOver, clock.timers]).toEqual([0, ['two false'], true, 0]);
});

test('ends a pause at once that alone holds too much', () => {
  const { pauses, ended, pause } = start(PAUSE);
  expect([pause('192.0.2.1', 'large', 1).isOver, pauses.held, ended]).toEqual([true, 0, ['large true']]);
});

test('ends as many pauses as are necessary, of one network after the other', () => {
  const { pauses, ended, pause } = start(3 * PAUSE);
  for (const name of ['a', 'b', 'c']) pause(`network ${name}`, name);
  pause('network d', 'd', 2 * PAUSE);
  expect([pauses.held <= 3 * PAUSE, ended]).toEqual([true, ['d true']]);
});

test('destroys the writer that takes no more, and holds nothing for one that is destroyed', () => {
  const { pauses } = start(2 * PAUSE);
  const owner = { network: '192.0.2.1', pauses };
  const writers = [new PassThrough(), new PassThrough(), new PassThrough()];
  const started = writers.map((writer) => pauseUntilDrained(writer, owner, 60_000));
  expect(writers.map(({ destroyed }) => destroyed)).toEqual([true, false, false]);
  expect(started.map((pause) => pause?.isOver)).toEqual([true, false, false]);
  expect(pauseUntilDrained(writers[0] as PassThrough, owner, 60_000)).toBeUndefined();
  expect(pauses.held).toBe(2 * PAUSE);
});
