import { describe, expect, test } from 'vitest';
import { type IdSettlement, type SettlementOutcome, Settlements } from '../../../../src/gateway/pipeline/claims.ts';
import { createMemorySeenIds } from '../../../../src/state/memory.ts';
import { type SeenIds, StoreUnavailable } from '../../../../src/state/seen-ids.ts';
import { FakeClock, settle } from '../../../support/fake-clock.ts';

/** A memory store that can be taken away and given back. */
function start(): {
  clock: FakeClock;
  store: SeenIds;
  settlements: Settlements;
  outcomes: SettlementOutcome[];
  lost: string[];
  setDown: (isDown: boolean) => void;
} {
  const clock = new FakeClock();
  const memory = createMemorySeenIds(clock, { maxIds: 1_000_000 });
  let isDown = false;
  const guard = async <T>(run: () => Promise<T>): Promise<T> => {
    if (isDown) throw new StoreUnavailable('unreachable', 'away');
    return run();
  };
  const store: SeenIds = {
    claim: (request) => guard(() => memory.claim(request)),
    confirm: (...args) => guard(() => memory.confirm(...args)),
    release: (...args) => guard(() => memory.release(...args)),
    forget: (key) => guard(() => memory.forget(key)),
    isUp: () => !isDown,
    close: () => memory.close(),
  };
  const outcomes: SettlementOutcome[] = [];
  const lost: string[] = [];
  const settlements = new Settlements(store, clock, {
    onOutcome: (outcome) => void outcomes.push(outcome),
    onLost: ({ key }, why) => void lost.push(`${key}: ${why}`),
  });
  return {
    clock,
    store,
    settlements,
    outcomes,
    lost,
    setDown: (down) => {
      isDown = down;
    },
  };
}

const CONFIRM: IdSettlement = {
  of: 'id',
  kind: 'confirm',
  key: 'k',
  token: 't',
  fingerprint: 'f',
  retention: 600_000,
  mootAt: 600_000,
};
const CLAIM = { key: 'k', token: 't', fingerprint: 'f', leaseMs: 60_000 };

describe('a settlement', () => {
  test('succeeds at once if the store is reachable', async () => {
    const { store, settlements, outcomes } = start();
    await store.claim(CLAIM);
    settlements.settle(CONFIRM);
    await settle();
    expect(outcomes).toEqual(['confirmed']);
    settlements.settle({ ...CONFIRM, kind: 'release' });
    await settle();
    expect(outcomes).toEqual(['confirmed', 'fenced']);
  });

  test('is retried until the store is back', async () => {
    const { clock, store, settlements, outcomes, setDown } = start();
    await store.claim(CLAIM);
    setDown(true);
    settlements.settle(CONFIRM);
    await settle();
    expect(settlements.pending).toBe(1);
    await clock.advance(30_000);
    expect(outcomes.length).toBeGreaterThan(5);
    setDown(false);
    await clock.advance(6_000);
    expect(outcomes.at(-1)).toBe('confirmed');
    expect(settlements.pending).toBe(0);
    expect(clock.timers).toBe(1);
    expect(await store.claim({ ...CLAIM, token: 'x' })).toMatchObject({ state: 'handled' });
  });

  test('is dropped silently as a release when its lease ends, and reported as a confirm when its retention ends', async () => {
    const { clock, settlements, outcomes, lost, setDown } = start();
    setDown(true);
    settlements.settle({ ...CONFIRM, kind: 'release', key: 'r', mootAt: 10_000 });
    settlements.settle({ ...CONFIRM, key: 'c', mootAt: 20_000 });
    await clock.advance(60_000);
    expect(settlements.pending).toBe(0);
    expect(lost).toEqual(['c: the store was unavailable for the whole retention']);
    expect(outcomes.filter((outcome) => outcome === 'settle_lost')).toHaveLength(1);
  });

  test('beyond the limit is lost, and reported', async () => {
    const { settlements, lost, setDown } = start();
    setDown(true);
    for (let i = 0; i < 10_001; i++) settlements.settle({ ...CONFIRM, key: `k${i}` });
    await settle();
    expect(settlements.pending).toBe(10_000);
    expect(lost).toEqual(['k10000: too many settlements wait for the store']);
  });

  test('keeps its order: the ID of a failed delivery is released before that of its retry is confirmed', async () => {
    const { clock, store, settlements, setDown } = start();
    await store.claim(CLAIM);
    setDown(true);
    settlements.settle({ ...CONFIRM, kind: 'release' });
    settlements.settle({ ...CONFIRM, token: 'retry' });
    await settle();
    setDown(false);
    await clock.advance(1_000);
    expect(await store.claim({ ...CLAIM, token: 'later' })).toMatchObject({ state: 'handled' });
  });

  test('of an event that was handled is neither lost nor late because of releases', async () => {
    const { clock, settlements, outcomes, lost, setDown } = start();
    setDown(true);
    for (let i = 0; i < 10_001; i++) settlements.settle({ ...CONFIRM, kind: 'release', key: `r${i}` });
    for (let i = 0; i < 500; i++) settlements.settle({ ...CONFIRM, key: `k${i}` });
    await clock.advance(40_000);
    expect(lost).toEqual([]);
    setDown(false);
    // The next try is 5 s later at most; the others follow it, a hundred in 200 ms.
    await clock.advance(8_000);
    expect(outcomes.filter((outcome) => outcome === 'confirmed')).toHaveLength(500);
  });
});

describe('draining', () => {
  test('waits for pending settlements', async () => {
    const { store, settlements, outcomes } = start();
    await store.claim(CLAIM);
    settlements.settle(CONFIRM);
    await settlements.drain(1_000);
    expect(outcomes).toEqual(['confirmed']);
  });

  test('settles all that wait at once, if the store is back', async () => {
    const { clock, settlements, outcomes, lost, setDown } = start();
    setDown(true);
    for (let i = 0; i < 5_000; i++) settlements.settle({ ...CONFIRM, key: `k${i}` });
    await settle();
    setDown(false);
    const drained = settlements.drain(1_000);
    await clock.advance(1_000);
    await drained;
    expect([outcomes.filter((outcome) => outcome === 'confirmed').length, lost]).toEqual([5_000, []]);
  });

  test('ends after its time, and names the lost ones', async () => {
    const { clock, settlements, lost, setDown } = start();
    setDown(true);
    settlements.settle(CONFIRM);
    await settle();
    const drained = settlements.drain(2_000);
    await clock.advance(2_000);
    await drained;
    expect(lost).toEqual(['k: sidegate stopped before the store came back']);
  });

  test('with nothing pending ends at once', async () => {
    await start().settlements.drain(1_000);
  });
});
