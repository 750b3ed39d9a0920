import { describe, expect, test } from 'vitest';
import { refuse } from '../../../../../src/core/refusal.ts';
import { type ClaimSettlement, ClaimWaiters, Settlements } from '../../../../../src/gateway/pipeline/claims.ts';
import {
  createDedupGate,
  type DedupEvent,
  type DedupOptions,
  type DedupParts,
  type StoredDeliveries,
} from '../../../../../src/gateway/pipeline/gates/dedup.ts';
import { createMemorySeenIds } from '../../../../../src/state/memory.ts';
import { type SeenIds, type StoreFailure, StoreUnavailable } from '../../../../../src/state/seen-ids.ts';
import { type Arrived, arriveAt, claimAt } from '../../../../support/claiming.ts';
import { FakeClock, settle } from '../../../../support/fake-clock.ts';

const OPTIONS: DedupOptions = {
  route: 'a',
  retention: 259_200_000,
  lease: 60_000,
  inProgress: 'wait',
  maxWait: 4_000,
  onStoreError: 'refuse',
  unsignedId: 'check',
  repeatsBytes: false,
  maxKinds: 2,
};

function start(over: Partial<DedupOptions> = {}, stored?: DedupParts['stored'], maxIds = 1_000) {
  const clock = new FakeClock();
  const memory = createMemorySeenIds(clock, { maxIds });
  let failure: StoreFailure | 'bug' | undefined;
  let losesAnswers = false;
  let losesReleases = false;
  let claimMs = 0;
  const durations: number[] = [];
  const store: SeenIds = {
    claim: async (request) => {
      if (failure === 'bug') throw new TypeError('a bug');
      if (failure !== undefined) throw new StoreUnavailable(failure, 'away');
      clock.pass(claimMs);
      const result = await memory.claim(request);
      if (losesAnswers) throw new StoreUnavailable('timeout', 'the answer is lost');
      return result;
    },
    confirm: (...args) => memory.confirm(...args),
    release: async (...args) => {
      if (losesReleases) throw new StoreUnavailable('unreachable', 'away');
      return memory.release(...args);
    },
    forget: (key) => memory.forget(key),
    isUp: () => failure === undefined,
    close: () => memory.close(),
  };
  const events: DedupEvent[] = [];
  const lost: ClaimSettlement[] = [];
  const settled: string[] = [];
  const settlements = new Settlements(store, clock, {
    onOutcome: (outcome) => void settled.push(outcome),
    onLost: (settlement) => void lost.push(settlement),
  });
  const dedupGate = createDedupGate(
    { ...OPTIONS, ...over },
    {
      store,
      clock,
      settlements,
      waiters: new ClaimWaiters(1, () => undefined, String),
      onEvent: (event) => void events.push(event),
      onDuration: (duration) => void durations.push(duration),
      stored,
    },
  );
  let count = 0;
  /** A verified delivery at this gate. */
  const arrive = (id = 'evt_1', body = 'body'): Arrived => {
    count++;
    return arriveAt(`r${count}`, clock.monotonic(), id, body);
  };
  const gate = { check: (arrived: Arrived) => claimAt(dedupGate, arrived) };
  return {
    clock,
    memory,
    events,
    settled,
    gate,
    arrive,
    durations,
    slowDown: (duration: number) => {
      claimMs = duration;
    },
    loseAnswers: (loses: boolean) => {
      losesAnswers = loses;
    },
    loseReleases: (loses: boolean) => {
      losesReleases = loses;
    },
    fail: (next: typeof failure) => {
      failure = next;
    },
  };
}

test('reports how long a claim took', async () => {
  const { gate, arrive, durations, slowDown } = start();
  slowDown(7);
  expect(await gate.check(arrive())).toBeUndefined();
  expect(durations).toEqual([7]);
});

describe('a repeated delivery of a route that stores its deliveries', () => {
  /** Its time is another one than that of the replica. */
  const storeClock = new FakeClock(1_800_000_000_000);
  const toStored = (repeat: StoredDeliveries['repeat'], storedFor?: number): StoredDeliveries => ({
    clock: storeClock,
    storedFor,
    toId: ({ id, body }) => `${id} ${body.toString()}`,
    repeat,
  });
  const handle = async ({ gate, arrive }: ReturnType<typeof start>) => {
    const first = arrive();
    await gate.check(first);
    first.grant?.claim?.confirm();
    await settle();
    return gate.check(arrive());
  };

  test('is a duplicate once the inbox has made sure that it is sent', async () => {
    const repeated: (string | undefined)[] = [];
    const stored = toStored(async (id) => {
      repeated.push(id.split(' ')[0]);
      return 'known';
    });
    const scene = start({}, stored);
    expect(await handle(scene)).toMatchObject({ code: 'duplicate' });
    expect([repeated, scene.events]).toEqual([['evt_1'], ['new', 'duplicate']]);
  });

  test('passes if the inbox has lost it, which is told whether it must be stored', async () => {
    const accepted: (number | undefined)[] = [];
    const stored = toStored(async (_id, acceptedAt) => {
      accepted.push(acceptedAt);
      return 'lost';
    }, 60_000);
    const now = { ...stored };
    const scene = start({}, now);
    const { gate, arrive, settled, events } = scene;
    const acceptedAt = storeClock.now();
    expect(await handle(scene)).toBeUndefined();
    storeClock.pass(60_000);
    const again = arrive();
    expect(await gate.check(again)).toBeUndefined();
    // Its ID is confirmed already.
    again.grant?.claim?.confirm();
    await settle();
    // After a restart, the queue keeps deliveries for longer than it kept this one.
    now.storedFor = 600_000;
    await gate.check(arrive());
    expect([accepted, events, settled]).toEqual([[acceptedAt, undefined, undefined], Array(4).fill('new'), ['confirmed']]);
  });

  test('is not lost if the sender signed the ID with other content', async () => {
    const accepted: (number | undefined)[] = [];
    const stored = toStored(async (_id, acceptedAt) => {
      accepted.push(acceptedAt);
      return acceptedAt === undefined ? 'known' : 'lost';
    }, 60_000);
    const scene = start({}, stored);
    expect(await handle(scene)).toBeUndefined();
    expect(await scene.gate.check(scene.arrive('evt_1', 'other'))).toMatchObject({ code: 'duplicate', reason: 'id_reused' });
    expect(accepted).toEqual([expect.any(Number), undefined]);
  });

  test('is rejected if the inbox cannot say, so that the sender retries', async () => {
    const scene = start(
      {},
      toStored(async () => refuse('store_unavailable', 'queue_unavailable')),
    );
    expect(await handle(scene)).toMatchObject({ code: 'store_unavailable', reason: 'queue_unavailable' });
  });
});

describe('while the store is unreachable', () => {
  test('a delivery is rejected, and a claim that a lost response may have made is released', async () => {
    const { gate, arrive, fail, events, settled } = start();
    fail('timeout');
    expect(await gate.check(arrive())).toMatchObject({ code: 'store_unavailable', reason: 'dedup_unavailable' });
    await settle();
    expect([events, settled]).toEqual([['unavailable'], ['fenced']]);
  });

  test('a full store claimed nothing, so nothing is released', async () => {
    const { gate, arrive, fail, settled } = start();
    fail('full');
    expect(await gate.check(arrive())).toMatchObject({ code: 'store_unavailable' });
    await settle();
    expect(settled).toEqual([]);
  });

  test('a store that had room for one of two claims keeps none', async () => {
    const { gate, arrive, settled } = start({}, undefined, 1);
    for (const _ of [1, 2]) {
      const arrived = arrive();
      const check = gate.check({ ...arrived, event: { ...arrived.event, digest: 'd1' } });
      expect(await check).toMatchObject({ code: 'store_unavailable' });
      await settle();
    }
    expect(settled).toEqual(['released', 'released']);
  });

  test('a delivery passes if the route allows it, is counted, and its outcome is recorded', async () => {
    const { gate, arrive, fail, events, memory } = start({ onStoreError: 'forward' });
    fail('unreachable');
    const arrived = arrive();
    expect(await gate.check(arrived)).toBeUndefined();
    expect(events).toEqual(['unavailable', 'bypassed']);
    fail(undefined);
    arrived.grant?.claim?.confirm();
    await settle();
    expect(await gate.check(arrive())).toMatchObject({ code: 'duplicate' });
    await memory.close();
  });

  test('a delivery passes without a claim if the store is full', async () => {
    const { gate, arrive, fail } = start({ onStoreError: 'forward' });
    fail('full');
    const arrived = arrive();
    expect(await gate.check(arrived)).toBeUndefined();
    expect(arrived.grant?.claim).toBeUndefined();
  });

  test('a bug is not an outage: it throws, and the pipeline rejects the delivery', async () => {
    const { gate, arrive, fail } = start({ onStoreError: 'forward' });
    fail('bug');
    await expect(gate.check(arrive())).rejects.toThrow('a bug');
  });
});

describe('a delivery that arrives while the first is in progress', () => {
  test('is never forwarded if the store fails in the meantime, with any setting of the route', async () => {
    const { gate, arrive, fail, clock, events } = start({ onStoreError: 'forward' });
    await gate.check(arrive());
    const second = gate.check(arrive());
    await settle();
    fail('unreachable');
    await clock.advance(1_000);
    expect(await second).toMatchObject({ code: 'store_unavailable' });
    expect(events).toEqual(['new', 'in_progress', 'unavailable']);
  });

  test('leaves no claim that it took over while the response was lost', async () => {
    const { gate, arrive, clock, loseAnswers, settled } = start();
    const first = arrive();
    await gate.check(first);
    const second = gate.check(arrive());
    await settle();
    first.grant?.claim?.release();
    await settle();
    loseAnswers(true);
    await clock.advance(1_000);
    expect(await second).toMatchObject({ code: 'store_unavailable' });
    loseAnswers(false);
    expect(settled).toEqual(['released', 'released']);
    expect(await gate.check(arrive())).toBeUndefined();
  });

  test('waits up to the limit, then gets a Retry-After, and frees its place for the next', async () => {
    const { gate, arrive, clock } = start();
    await gate.check(arrive());
    const second = gate.check(arrive());
    await settle();
    expect(await gate.check(arrive())).toMatchObject({ code: 'in_progress', reason: 'waiters_full' });
    await clock.advance(4_000);
    expect(await second).toMatchObject({ code: 'in_progress', reason: 'in_progress' });
    const third = gate.check(arrive());
    await settle();
    await clock.advance(4_000);
    expect(await third).toMatchObject({ reason: 'in_progress' });
  });

  test('gets a Retry-After until the end of the lease, counted from the end of its wait', async () => {
    const { gate, arrive, clock } = start({ lease: 10_000 });
    await gate.check(arrive());
    const second = gate.check(arrive());
    await settle();
    await clock.advance(4_000);
    expect(await second).toMatchObject({ code: 'in_progress', retryAfterSeconds: 6 });
  });

  test('is forwarded once the lease of a vanished first one ends', async () => {
    const { gate, arrive, clock, events } = start();
    await gate.check(arrive());
    await clock.advance(58_000);
    const second = arrive();
    const verdict = gate.check(second);
    await settle();
    await clock.advance(4_000);
    expect(await verdict).toBeUndefined();
    expect(second.grant?.claim).toBeDefined();
    expect(events).toEqual(['new', 'in_progress', 'taken_over']);
  });
});

test('distinguishes IDs that are too long to be stored unchanged', async () => {
  const { gate, arrive } = start();
  const long = 'x'.repeat(200);
  expect(await gate.check(arrive(`${long}1`))).toBeUndefined();
  expect(await gate.check(arrive(`${long}2`))).toBeUndefined();
});

test('a release that fails is retried also if the body took longer than the lease', async () => {
  const { gate, arrive, clock, settled, loseReleases } = start();
  const late = arrive();
  await clock.advance(70_000);
  expect(await gate.check(late)).toBeUndefined();
  loseReleases(true);
  late.grant?.claim?.release();
  await settle();
  loseReleases(false);
  await clock.advance(5_000);
  expect(settled.at(-1)).toBe('released');
  expect(await gate.check(arrive())).toBeUndefined();
});
