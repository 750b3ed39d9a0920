import { PassThrough, Writable } from 'node:stream';
import { describe, expect, test, vi } from 'vitest';
import { MAX_TIMER_MS } from '../../../src/core/clock.ts';
import { endCounted, findPause, handOver, pauseUntilDrained, ReadPause, writeCounted } from '../../../src/core/reading.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { makePauseOwner } from '../../support/pauses.ts';

const nothing = (): void => undefined;

test('ends at its deadline, after what made it necessary was ended', async () => {
  const clock = new FakeClock();
  const source = new PassThrough();
  const order: string[] = [];
  const pause = new ReadPause(makePauseOwner(clock), 0, 1_000, () => order.push('overdue'));
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
  const pause = new ReadPause(makePauseOwner(clock), 0, 1_000, nothing);
  pause.onOver(() => count++);
  pause.end();
  pause.end();
  pause.onOver(() => count++);
  expect([count, clock.timers]).toEqual([2, 0]);
});

test('holds no stream once it is over, and reads one that is released', () => {
  const pause = new ReadPause(makePauseOwner(new FakeClock()), 0, 1_000, nothing);
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
  const owner = makePauseOwner(clock);
  const writer = new PassThrough();
  const before = ['drain', 'close'].map((name) => writer.listenerCount(name));
  const pause = pauseUntilDrained(writer, owner, 1_000);
  writer.emit(event);
  expect([pause?.isOver, writer.destroyed, clock.timers]).toEqual([true, false, 0]);
  expect(['drain', 'close'].map((name) => writer.listenerCount(name))).toEqual(before);
});

test('is one for all chunks that wait for a writer, until it has drained', () => {
  const clock = new FakeClock();
  const owner = makePauseOwner(clock);
  const writer = new PassThrough();
  const pause = pauseUntilDrained(writer, owner, 1_000);
  expect([pauseUntilDrained(writer, owner, 1_000), findPause(writer), clock.timers]).toEqual([pause, pause, 1]);
  expect(pauseUntilDrained(new PassThrough(), owner, 1_000)).not.toBe(pause);
  writer.emit('drain');
  expect(findPause(writer)).toBeUndefined();
  expect(pauseUntilDrained(writer, owner, 1_000)).not.toBe(pause);
});

test('counts what waits in a connection far below the limit of Node, until nothing waits', async () => {
  const taken: (() => void)[] = [];
  const writer = new Writable({ highWaterMark: 65_536, write: (_chunk, _encoding, done) => void taken.push(done) });
  expect([writeCounted(writer, Buffer.alloc(16_384)), writeCounted(writer, Buffer.alloc(1))]).toEqual([true, false]);
  const pause = pauseUntilDrained(writer, makePauseOwner(new FakeClock()), 1_000);
  const written = vi.fn();
  writeCounted(writer, Buffer.alloc(1), written);
  for (const isOver of [false, false, true]) {
    taken.shift()?.();
    await vi.waitFor(() => expect(pause?.isOver).toBe(isOver));
  }
  expect([written.mock.calls.length, findPause(writer), writer.writableNeedDrain]).toEqual([1, undefined, false]);
});

test('counts bytes that wait one by one, because each takes more memory than its content', () => {
  const writer = new Writable({ highWaterMark: 65_536, write: nothing });
  const hasRoom = Array.from({ length: 17 }, () => writeCounted(writer, Buffer.alloc(1)));
  expect([hasRoom.lastIndexOf(true), hasRoom.indexOf(false)]).toEqual([15, 16]);
});

test('counts no writes that the system has taken', async () => {
  const writer = new Writable({ write: (_chunk, _encoding, done) => queueMicrotask(done) });
  for (let i = 0; i < 100; i++) {
    await new Promise<void>((resolve) => {
      expect(writeCounted(writer, Buffer.alloc(1), () => resolve())).toBe(true);
    });
  }
});

describe('a response that is ended with its content', () => {
  const end = (clock: FakeClock, content: string) => {
    let sent = (): void => undefined;
    const write = (_chunk: unknown, _encoding: unknown, done: () => void): void => {
      sent = done;
    };
    const writer = new Writable({ write });
    const held: number[] = [];
    const owner = makePauseOwner(clock);
    const pauses = { ...owner.pauses, add: (pause: ReadPause) => void held.push(pause.held) };
    endCounted(writer, content, { ...owner, pauses }, 1_000);
    return { writer, held, sent: () => sent() };
  };

  test('counts all that waits, until everything is sent', async () => {
    const clock = new FakeClock();
    const { writer, held, sent } = end(clock, 'x'.repeat(5_000));
    expect([held, findPause(writer)?.isOver]).toEqual([[5_000 + 128 * 1_024], false]);
    sent();
    await vi.waitFor(() => expect(writer.closed).toBe(true));
    expect([findPause(writer), clock.timers]).toEqual([undefined, 0]);
  });

  test('is destroyed if the client does not read it in time', async () => {
    const clock = new FakeClock();
    const { writer } = end(clock, 'x');
    await clock.advance(1_000);
    expect(writer.destroyed).toBe(true);
  });

  test('counts for nothing once the system has taken it', () => {
    const clock = new FakeClock();
    const writer = new Writable({ write: (_chunk, _encoding, done) => done() });
    endCounted(writer, 'x', makePauseOwner(clock), 1_000);
    expect([findPause(writer), clock.timers]).toEqual([undefined, 0]);
  });
});

test('tells who holds a stream that it is over, once, and not who released it', () => {
  const pause = new ReadPause(makePauseOwner(new FakeClock()), 0, 1_000, nothing);
  const [held, released] = [new PassThrough(), new PassThrough()];
  const order: string[] = [];
  pause.hold(held, () => order.push(`held, ${held.isPaused() ? 'paused' : 'read'}`));
  pause.hold(held, () => order.push('held twice'));
  pause.hold(released, () => order.push('released'));
  pause.release(released);
  pause.end();
  expect(order).toEqual(['held, paused']);
});

test('destroys a writer that does not drain, or does what the caller says', async () => {
  const clock = new FakeClock();
  const owner = makePauseOwner(clock);
  const [writer, other] = [new PassThrough(), new PassThrough()];
  let isOverdue = false;
  pauseUntilDrained(writer, owner, 1_000);
  pauseUntilDrained(other, owner, 1_000, () => {
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
  new ReadPause(makePauseOwner(clock), 0, Number.POSITIVE_INFINITY, nothing);
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
