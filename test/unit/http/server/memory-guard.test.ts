import { expect, test } from 'vitest';
import { MemoryGuard } from '../../../../src/http/server/memory-guard.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const MIB = 1024 * 1024;

function start(limit: number | undefined) {
  const clock = new FakeClock();
  const state = {
    heap: 0.1,
    used: 10,
    live: 10,
    shrinkable: 0,
    collections: 0,
    fullCollections: 0,
    reads: 0,
    tight: 0,
    pause: 0,
  };
  const guard = new MemoryGuard({
    clock,
    limit,
    workers: 1,
    ports: 1,
    shed: 0.8,
    heapShed: 0.85,
    readHeap: () => state.heap,
    read: () => {
      state.reads++;
      return state.used;
    },
    collect: () => {
      state.collections++;
      clock.pass(state.pause);
      state.used = state.live;
    },
    collectAll: () => {
      state.fullCollections++;
      state.used = state.live - state.shrinkable;
    },
  });
  guard.addShed(() => state.tight++);
  return { clock, state, guard };
}

test('memory is tight at its share of the limit, and full halfway from there', async () => {
  const { clock, state, guard } = start(100);
  for (const [live, isTight, isFull] of [
    [60, false, false],
    [81, true, false],
    [89, true, false],
    [91, true, true],
    [60, false, false],
  ] as const) {
    state.live = live;
    state.used = live;
    await clock.advance(1_000);
    expect([guard.isTight, guard.shortage, guard.used]).toEqual([isTight, isFull ? 'memory' : undefined, live]);
  }
  expect(state.tight).toBe(3);
});

test('garbage is collected before anything is rejected', async () => {
  const { clock, state, guard } = start(100);
  state.used = 95;
  state.live = 30;
  await clock.advance(1_000);
  expect([guard.isTight, guard.used, state.fullCollections, state.tight]).toEqual([false, 30, 1, 0]);
});

test('a heap that has grown is shrunk before everything is rejected for good', async () => {
  const { clock, state, guard } = start(100);
  Object.assign(state, { used: 95, live: 95, shrinkable: 20 });
  await clock.advance(1_000);
  expect([guard.isTight, guard.used, state.collections, state.fullCollections]).toEqual([false, 75, 0, 1]);
});

test('a heap that has grown is shrunk while memory is tight, but not more often than every 10 seconds', async () => {
  const { clock, state, guard } = start(100);
  Object.assign(state, { used: 85, live: 85, shrinkable: 20 });
  await clock.advance(1_000);
  expect([guard.isTight, guard.used, state.fullCollections]).toEqual([false, 65, 1]);
  Object.assign(state, { used: 85, shrinkable: 0 });
  await clock.advance(9_000);
  expect([guard.isTight, state.fullCollections]).toEqual([true, 1]);
  await clock.advance(11_000);
  expect([guard.isTight, state.fullCollections]).toEqual([true, 3]);
});

test('collections that free nothing become less frequent', async () => {
  const { clock, state } = start(100);
  state.used = 75;
  state.live = 75;
  await clock.advance(60_000);
  expect(state.collections).toBeLessThan(20);
});

test('memory is measured for each mebibyte that arrives, without waiting for a second', () => {
  const { state, guard } = start(100);
  state.used = 95;
  state.live = 95;
  guard.onBytes(MIB - 1);
  expect([state.reads, guard.shortage]).toEqual([0, undefined]);
  guard.onBytes(1);
  expect(guard.shortage).toBe('memory');
});

test('known garbage is collected at once, however little the last collection freed', async () => {
  const { clock, state, guard } = start(100);
  Object.assign(state, { used: 75, live: 75 });
  await clock.advance(20_000);
  const before = state.collections;
  guard.onGarbage(5);
  expect(state.collections).toBe(before);
  guard.onGarbage(1);
  expect(state.collections).toBe(before + 1);
});

test('there is room for what leaves memory that is not tight, measured and collected at once', () => {
  const { state, guard } = start(100);
  expect([guard.hasRoom(70), guard.hasRoom(71)]).toEqual([true, false]);
  expect(state.collections).toBe(1);
  state.used = 75;
  expect(guard.hasRoom(70)).toBe(false);
  expect(start(undefined).guard.hasRoom(1_000)).toBe(true);
});

test('without a limit memory is neither measured nor short', async () => {
  const { clock, state, guard } = start(undefined);
  state.used = 1_000_000;
  guard.onBytes(5 * MIB);
  guard.onGarbage(5 * MIB);
  await clock.advance(1_000);
  expect([state.reads, guard.isTight, guard.shortage]).toEqual([0, false, undefined]);
});

test('a heap above its share is short until it is below it again, and is collected first', async () => {
  const { clock, state, guard } = start(undefined);
  state.heap = 0.86;
  expect(guard.shortage).toBeUndefined();
  await clock.advance(1_000);
  expect([guard.shortage, state.collections]).toEqual(['heap', 1]);
  state.heap = 0.76;
  await clock.advance(1_000);
  expect([guard.shortage, state.collections]).toEqual([undefined, 1]);
});

test('during a flood, the heap is measured more often than once a second, but not for each mebibyte', async () => {
  const { clock, state, guard } = start(undefined);
  await clock.advance(1_000);
  state.heap = 0.86;
  await clock.advance(99);
  guard.onBytes(MIB);
  expect([guard.shortage, state.collections]).toEqual([undefined, 0]);
  await clock.advance(1);
  for (let i = 0; i < 10; i++) guard.onBytes(MIB);
  expect([guard.shortage, state.collections]).toEqual(['heap', 1]);
});

test('a heap that a collection leaves nearly full is collected again only after ten times its duration', () => {
  const { clock, state, guard } = start(undefined);
  Object.assign(state, { heap: 0.8, pause: 300 });
  for (const [passed, collections] of [
    [100, 1],
    [2_800, 1],
    [200, 2],
  ] as const) {
    clock.pass(passed);
    guard.onBytes(MIB);
    expect([guard.isHeapTight, guard.shortage, state.collections]).toEqual([true, undefined, collections]);
  }
  Object.assign(state, { heap: 0.7 });
  clock.pass(100);
  guard.onBytes(MIB);
  expect([guard.isHeapTight, state.collections]).toEqual([false, 2]);
});

test('the next collection waits one and a half times as long as the last one took, whatever asks for it', () => {
  const { clock, state, guard } = start(100);
  Object.assign(state, { pause: 200, live: 70, used: 70 });
  for (const [passed, collections] of [
    [0, 1],
    [200, 1],
    [200, 2],
  ] as const) {
    clock.pass(passed);
    guard.onGarbage(6);
    expect(state.collections).toBe(collections);
  }
});

test('a heap that stays nearly full does not keep the guard from shrinking it for the memory', async () => {
  const { clock, state, guard } = start(100);
  Object.assign(state, { heap: 0.8, pause: 20, live: 95, used: 95, shrinkable: 60 });
  await clock.advance(3_000);
  expect(state.fullCollections).toBeGreaterThan(0);
  expect(guard.shortage).toBeUndefined();
});

test('garbage in a heap that is nearly full rejects nothing', () => {
  const { clock, state, guard } = start(undefined);
  Object.assign(state, { heap: 0.8, pause: 100 });
  guard.onBytes(MIB);
  clock.pass(200);
  const { collections } = state;
  Object.defineProperty(state, 'heap', { get: () => (state.collections > collections ? 0.8 : 0.9) });
  guard.onBytes(MIB);
  expect([guard.shortage, guard.isHeapTight]).toEqual([undefined, true]);
});

test('no timer is left after close', () => {
  const { clock, guard } = start(100);
  guard.close();
  expect(clock.timers).toBe(0);
});
