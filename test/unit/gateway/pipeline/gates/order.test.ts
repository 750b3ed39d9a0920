import { describe, expect, test } from 'vitest';
import type { Claim, ClaimGrant } from '../../../../../src/core/event.ts';
import {
  type ClaimSettlement,
  ClaimWaiters,
  joinGrants,
  NOTHING_CLAIMED,
  type SettlementOutcome,
  Settlements,
} from '../../../../../src/gateway/pipeline/claims.ts';
import { createOrderGate, type OrderEvent, type OrderOptions } from '../../../../../src/gateway/pipeline/gates/order.ts';
import { createMemoryNewestVersions, createMemorySeenIds } from '../../../../../src/state/memory.ts';
import type { NewestVersions } from '../../../../../src/state/newest-versions.ts';
import { type StoreFailure, StoreUnavailable } from '../../../../../src/state/seen-ids.ts';
import { type Arrived, arriveAt, claimAt } from '../../../../support/claiming.ts';
import { FakeClock, settle } from '../../../../support/fake-clock.ts';

const OPTIONS: OrderOptions = {
  route: 'a',
  key: { text: '$.data.id', steps: ['data', 'id'] },
  version: { text: '$.data.version', steps: ['data', 'version'] },
  retention: 259_200_000,
  lease: 60_000,
  maxWait: 4_000,
  onStale: 'acknowledge',
  onStoreError: 'refuse',
};

function start(over: Partial<OrderOptions> = {}) {
  const clock = new FakeClock();
  const memory = createMemoryNewestVersions(clock, { maxResources: 1_000 });
  let failure: StoreFailure | 'bug' | undefined;
  const keys: string[] = [];
  const versions: NewestVersions = {
    enter: async (request) => {
      keys.push(request.key);
      if (failure === 'bug') throw new TypeError('a bug');
      if (failure !== undefined) throw new StoreUnavailable(failure, 'away');
      return memory.enter(request);
    },
    leave: async (request) => {
      if (failure !== undefined) throw new StoreUnavailable('unreachable', 'away');
      return memory.leave(request);
    },
    close: () => memory.close(),
  };
  const events: OrderEvent[] = [];
  const settled: SettlementOutcome[] = [];
  const lost: ClaimSettlement[] = [];
  const settlements = new Settlements(createMemorySeenIds(clock, { maxIds: 10 }), clock, {
    onOutcome: (outcome) => void settled.push(outcome),
    onLost: (settlement) => void lost.push(settlement),
  });
  const orderGate = createOrderGate(
    { ...OPTIONS, ...over },
    {
      versions,
      clock,
      settlements,
      waiters: new ClaimWaiters(1, () => undefined, String),
      onEvent: (event) => void events.push(event),
    },
  );
  let count = 0;
  /** A verified event at this gate: its content as text, or of this version. */
  const arrive = (content: string | number): Arrived => {
    count++;
    const body = typeof content === 'string' ? content : `{"data":{"id":"r","version":${content}}}`;
    return arriveAt(`r${count}`, clock.monotonic(), `evt_${count}`, body);
  };
  const gate = { check: (arrived: Arrived) => claimAt(orderGate, arrived) };
  /** The event passes, and its time with the app ends so. */
  const pass = async (content: string | number, how: keyof Claim = 'confirm'): Promise<void> => {
    const arrived = arrive(content);
    expect(await gate.check(arrived)).toBeUndefined();
    arrived.grant?.claim?.[how]();
    await settle();
  };
  return {
    clock,
    events,
    settled,
    lost,
    keys,
    gate,
    arrive,
    pass,
    fail: (next: typeof failure) => {
      failure = next;
    },
  };
}

describe('an event', () => {
  test('that is older than the newest handled one is stale; the same and newer ones pass', async () => {
    const { gate, arrive, pass, events, settled } = start();
    await pass(5);
    expect(await gate.check(arrive(4))).toEqual({ code: 'stale', reason: 'stale' });
    await pass(5);
    await pass(6);
    expect(await gate.check(arrive(5))).toMatchObject({ code: 'stale' });
    expect(events).toEqual(['entered', 'stale', 'entered', 'entered', 'stale']);
    expect(settled).toEqual(['confirmed', 'confirmed', 'confirmed']);
  });

  test('passes after a newer one that the app did not handle, and waits for one with an unknown outcome', async () => {
    const { gate, arrive, pass, clock, events, settled } = start();
    await pass(5, 'release');
    await pass(4, 'hold');
    expect([events, settled]).toEqual([['entered', 'entered', 'held'], ['released']]);
    const waiting = gate.check(arrive(9));
    await settle();
    await clock.advance(4_000);
    expect(await waiting).toMatchObject({ code: 'in_progress', reason: 'resource_busy', retryAfterSeconds: 10 });
    await clock.advance(56_000);
    await pass(3);
  });

  test('is forwarded as stale if the route allows it, without a place, and without delaying others', async () => {
    const { gate, arrive, pass } = start({ onStale: 'forward' });
    await pass(5);
    const older = arrive(4);
    expect(await gate.check(older)).toBeUndefined();
    expect(older.grant).toMatchObject({ isStale: true });
    expect(older.grant?.claim).toBeUndefined();
    const newer = arrive(6);
    expect(await gate.check(newer)).toBeUndefined();
    expect(newer.grant?.isStale).toBe(false);
  });

  test('is compared by all its digits, beyond the precision of a double', async () => {
    const { gate, arrive, pass } = start();
    await pass('{"data":{"id":"r","version":9007199254740993}}');
    expect(await gate.check(arrive('{"data":{"id":"r","version":9007199254740992}}'))).toMatchObject({ code: 'stale' });
    await pass('{"data":{"id":"r","version":9007199254740993}}');
  });

  test('of another resource, or with a version of another kind, is not older', async () => {
    const { pass, keys } = start();
    await pass('{"data":{"id":"r","version":5}}');
    await pass('{"data":{"id":"s","version":4}}');
    await pass('{"data":{"id":"r","version":"2020-01-01T00:00:00Z"}}');
    await pass('{"data":{"id":7,"version":1}}');
    expect(keys.map((key) => key.replace(/:o(\d)\d+:/, ':o$1:'))).toEqual(['a:o1:i:r', 'a:o1:i:s', 'a:o2:i:r', 'a:o1:i:7']);
  });

  test('from another path of the config is not older: it starts a sequence of its own', async () => {
    const { pass, keys } = start();
    await pass('{"id":"r","created":1790000000,"data":{"id":"r","version":5}}');
    const over = { version: { text: '$.created', steps: ['created'] } };
    const byTime = start(over);
    await byTime.pass('{"id":"r","created":1790000000,"data":{"id":"r","version":5}}');
    const byId = start({ key: { text: '$.id', steps: ['id'] } });
    await byId.pass('{"id":"r","created":1790000000,"data":{"id":"r","version":5}}');
    expect(new Set([...keys, ...byTime.keys, ...byId.keys]).size).toBe(3);
  });

  test('of a resource with a long or unusual name has a short key', async () => {
    const { gate, arrive, pass, keys } = start();
    const content = (id: string, version: number): string => JSON.stringify({ data: { id, version } });
    const names = ['x'.repeat(200), `${'x'.repeat(199)}y`, 'a b', 'a\nb', 'ü'];
    for (const id of names) await pass(content(id, 5));
    for (const id of names) expect(await gate.check(arrive(content(id, 4)))).toMatchObject({ code: 'stale' });
    for (const key of keys) expect(key).toMatch(/^a:o1\d+:h:[\w-]{43}$/);
  });

  test('may begin with a byte order mark, because apps accept it', async () => {
    const { events, pass } = start();
    await pass('\ufeff{"data":{"id":"r","version":5}}');
    expect(events).toEqual(['entered']);
  });

  test.each([
    ['without version', '{"data":{"id":"r"}}'],
    ['without resource', '{"data":{"version":5}}'],
    ['an empty resource', '{"data":{"id":"","version":5}}'],
    ['a resource that is null', '{"data":{"id":null,"version":5}}'],
    ['a resource that is an object', '{"data":{"id":{},"version":5}}'],
    ['a version without order', '{"data":{"id":"r","version":"v5"}}'],
    ['a version that is null', '{"data":{"id":"r","version":null}}'],
    ['a list', '[1]'],
    ['null', 'null'],
    ['no JSON', 'not json'],
    ['nothing', ''],
  ])('without a resource or a version passes unordered, and is counted: %s', async (_what, content) => {
    const { gate, arrive, events } = start();
    const arrived = arrive(content);
    expect(await gate.check(arrived)).toBeUndefined();
    expect([events, arrived.grant?.claim]).toEqual([['unordered'], undefined]);
  });
});

describe('while another event of the resource is in progress, a second one', () => {
  /** The second event arrives while the app has version 5, which then ends as `end` says. */
  async function raceWith(version: number, end: 'confirm' | 'release') {
    const { gate, arrive, clock, events } = start();
    const first = arrive(5);
    await gate.check(first);
    const second = arrive(version);
    const waiting = gate.check(second);
    await settle();
    first.grant?.claim?.[end]();
    await clock.advance(500);
    return { second, verdict: await waiting, events };
  }

  test('waits, and goes next if it is newer', async () => {
    const { second, verdict, events } = await raceWith(6, 'confirm');
    expect(verdict).toBeUndefined();
    expect(second.grant?.claim).toBeDefined();
    expect(events).toEqual(['entered', 'busy', 'entered']);
  });

  test('waits, and is stale if the other was newer and is handled', async () => {
    expect((await raceWith(4, 'confirm')).verdict).toMatchObject({ code: 'stale' });
  });

  test('waits, and goes next if the other was newer and failed', async () => {
    expect((await raceWith(4, 'release')).verdict).toBeUndefined();
  });

  test('is rejected for a retry if too many wait', async () => {
    const { gate, arrive, clock } = start();
    await gate.check(arrive(5));
    const waiting = gate.check(arrive(6));
    await settle();
    expect(await gate.check(arrive(7))).toMatchObject({ code: 'in_progress', reason: 'waiters_full' });
    await clock.advance(4_000);
    expect(await waiting).toMatchObject({ code: 'in_progress', reason: 'resource_busy' });
  });

  test('is never forwarded if the store fails in the meantime, with any setting of the route', async () => {
    const { gate, arrive, fail, clock, events } = start({ onStoreError: 'forward' });
    await gate.check(arrive(5));
    const second = gate.check(arrive(6));
    await settle();
    fail('timeout');
    await clock.advance(1_000);
    expect(await second).toMatchObject({ code: 'store_unavailable', reason: 'order_unavailable' });
    expect(events).toEqual(['entered', 'busy', 'unavailable']);
  });
});

describe('while the store is unreachable', () => {
  test('an event is rejected, and a place that a lost response may have taken is released', async () => {
    const { gate, arrive, fail, events, settled } = start();
    fail('timeout');
    expect(await gate.check(arrive(5))).toMatchObject({ code: 'store_unavailable', reason: 'order_unavailable' });
    await settle();
    expect([events, settled]).toEqual([['unavailable'], ['settle_retried']]);
  });

  test('a full store took no place, so nothing is released', async () => {
    const { gate, arrive, fail, settled } = start();
    fail('full');
    expect(await gate.check(arrive(5))).toMatchObject({ code: 'store_unavailable' });
    await settle();
    expect(settled).toEqual([]);
  });

  test('an event passes if the route allows it, is counted, and its version is recorded once the store is back', async () => {
    const { gate, arrive, fail, events, clock } = start({ onStoreError: 'forward' });
    fail('unreachable');
    const arrived = arrive(5);
    expect(await gate.check(arrived)).toBeUndefined();
    expect(events).toEqual(['unavailable', 'bypassed']);
    arrived.grant?.claim?.confirm();
    await settle();
    fail(undefined);
    await clock.advance(6_000);
    expect(await gate.check(arrive(4))).toMatchObject({ code: 'stale' });
  });

  test('an event passes without a place if the store is full', async () => {
    const { gate, arrive, fail } = start({ onStoreError: 'forward' });
    fail('full');
    const arrived = arrive(5);
    expect(await gate.check(arrived)).toBeUndefined();
    expect(arrived.grant?.claim).toBeUndefined();
  });

  /** One event was handled and one failed, but the store cannot record either. */
  async function settleDuringOutage(options: Parameters<typeof start>[0] = {}) {
    const parts = start(options);
    const [handled, failed] = [parts.arrive(5), parts.arrive('{"data":{"id":"s","version":5}}')];
    await parts.gate.check(handled);
    await parts.gate.check(failed);
    parts.fail('unreachable');
    handled.grant?.claim?.confirm();
    failed.grant?.claim?.release();
    return parts;
  }

  test('reports a handled event repeatedly, and as lost after the retention; a place is not lost after its lease', async () => {
    const { clock, settled, lost } = await settleDuringOutage({ retention: 100_000 });
    await clock.advance(120_000);
    expect(lost).toMatchObject([{ kind: 'confirm', key: expect.stringMatching(/^a:o1\d+:i:r$/) }]);
    expect(settled.filter((outcome) => outcome === 'settle_lost')).toHaveLength(1);
  });

  test('releases the place of an event whose body took longer than the lease', async () => {
    const { gate, arrive, pass, clock, settled, fail } = start();
    const late = arrive(5);
    await clock.advance(70_000);
    expect(await gate.check(late)).toBeUndefined();
    fail('unreachable');
    late.grant?.claim?.release();
    await settle();
    fail(undefined);
    await clock.advance(5_000);
    expect(settled.at(-1)).toBe('released');
    await pass(5);
  });

  test('records a handled event after an outage longer than the lease, and releases the place of a failed one only once', async () => {
    const { gate, arrive, fail, clock, settled } = await settleDuringOutage();
    await clock.advance(OPTIONS.lease + OPTIONS.maxWait + 1_000);
    fail(undefined);
    await clock.advance(10_000);
    expect(settled.filter((outcome) => outcome !== 'settle_retried')).toEqual(['confirmed']);
    expect(await gate.check(arrive(4))).toMatchObject({ code: 'stale' });
  });

  test('a bug is not an outage: it throws, and the pipeline rejects the event', async () => {
    const { gate, arrive, fail } = start({ onStoreError: 'forward' });
    fail('bug');
    await expect(gate.check(arrive(5))).rejects.toThrow('a bug');
  });
});

describe('joined claims', () => {
  test('are settled together, the later one first', async () => {
    const calls: string[] = [];
    const toGrant = (name: string, isStale: boolean): ClaimGrant => ({
      claim: {
        confirm: () => void calls.push(`${name} confirm`),
        release: () => void calls.push(`${name} release`),
        hold: () => void calls.push(`${name} hold`),
      },
      isStale,
      isUnchecked: !isStale,
      expiresAt: isStale ? 2_000 : 1_000,
    });
    const joined = joinGrants(toGrant('a', true), toGrant('b', false));
    joined.claim?.confirm();
    joined.claim?.release();
    joined.claim?.hold();
    expect(calls).toEqual(['b confirm', 'a confirm', 'b release', 'a release', 'b hold', 'a hold']);
    expect(joined).toMatchObject({ isStale: true, isUnchecked: true, expiresAt: 1_000 });
  });

  test('are a single one if the other gate claimed nothing', () => {
    const grant: ClaimGrant = {
      claim: { confirm: () => undefined, release: () => undefined, hold: () => undefined },
      isStale: false,
      isUnchecked: false,
      expiresAt: 1_000,
    };
    expect(joinGrants(NOTHING_CLAIMED, grant)).toBe(grant);
    expect(joinGrants(grant, NOTHING_CLAIMED).claim).toBe(grant.claim);
  });
});
