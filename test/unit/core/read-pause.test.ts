import { PassThrough } from 'node:stream';
import { expect, test, vi } from 'vitest';
import { MAX_TIMER_MS } from '../../../src/core/clock.ts';
import { handOver, pauseUntilDrained, ReadPause } from '../../../src/core/read-pause.ts';
import { FakeClock } from '../../support/fake-clock.ts';

const nothing = (): void => undefined;

test('ends at its deadline, after what made it necessary was ended', async () => {
  const clock = new FakeClock();
  const source = new PassThrough();
  const order: string[] = [];
  const pause = new ReadPause(clock, 1_000, () => order.push('overdue'));
  pause.hold(source);
  pause.onOver(() => order.push(`over, ${source.isPaused() ? 'paused' : 'read'}`));
  await clock.advance(999);
  expect([source.isPaused(), order]).toEqual([true, []]);
  await clock.advance(1);
  expect([source.isPaused(), pause.isOver, order]).toEqual([false, true, ['overdue', 'over, paused']]);
});

test('ends once, and leaves no timer', () => {
  const clock = new FakeClock();
  let count = 0;
  const pause = new ReadPause(clock, 1_000, nothing);
  pause.onOver(() => count++);
  pause.end();
  pause.end();
  pause.onOver(() => count++);
  expect([count, clock.timers]).toEqual([2, 0]);
});

test('holds no stream once it is over, and reads one that is released', () => {
  const pause = new ReadPause(new FakeClock(), 1_000, nothing);
  const [held, released, late] = [new PassThrough(), new PassThrough(), new PassThrough()];
  pause.hold(held);
  pause.hold(released);
  pause.release(released);
  pause.release(late);
  expect([held.isPaused(), released.isPaused()]).toEqual([true, false]);
  pause.end();
  pause.hold(late);
  expect([held.isPaused(), late.isPaused()]).toEqual([false, false]);
});

test.each(['drain', 'close'] as const)('ends with the %s of a writer, and removes its listeners', (event) => {
  const clock = new FakeClock();
  const writer = new PassThrough();
  const before = ['drain', 'close'].map((name) => writer.listenerCount(name));
  const pause = pauseUntilDrained(writer, clock, 1_000);
  writer.emit(event);
  expect([pause.isOver, writer.destroyed, clock.timers]).toEqual([true, false, 0]);
  expect(['drain', 'close'].map((name) => writer.listenerCount(name))).toEqual(before);
});

test('destroys a writer that does not drain, or does what the caller says', async () => {
  const clock = new FakeClock();
  const [writer, other] = [new PassThrough(), new PassThrough()];
  let isOverdue = false;
  pauseUntilDrained(writer, clock, 1_000);
  pauseUntilDrained(other, clock, 1_000, () => {
    isOverdue = true;
  });
  await clock.advance(1_000);
  expect([writer.destroyed, other.destroyed, isOverdue]).toEqual([true, false, true]);
});

test('takes no deadline for one that Node would let pass at once', () => {
  const delays: number[] = [];
  const clock = new FakeClock();
  vi.spyOn(clock, 'after').mockImplementation((delay) => {
    delays.push(delay);
    return nothing;
  });
  new ReadPause(clock, Number.POSITIVE_INFINITY, nothing);
  expect(delays).toEqual([MAX_TIMER_MS]);
});

test('hands a socket over while it is paused', () => {
  const source = new PassThrough();
  let wasPaused = false;
  handOver(source, () => {
    wasPaused = source.isPaused();
  });
  expect(wasPaused).toBe(true);
});
