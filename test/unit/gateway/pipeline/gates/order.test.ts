import { describe, expect, test } from 'vitest';
import type { Claim, ClaimGrant } from '../../../../../src/core/event.ts';
import { ClaimWaiters } from '../../../../../src/gateway/pipeline/claim-waiters.ts';
import { createOrderGate, type OrderEvent, type OrderOptions } from '../../../../../src/gateway/pipeline/gates/order.ts';
import { joinGrants, NOTHING_CLAIMED } from '../../../../../src/gateway/pipeline/grants.ts';
import { type Settlement, type SettlementOutcome, Settlements } from '../../../../../src/gateway/pipeline/settlements.ts';
import { createMemorySeenIds } from '../../../../../src/state/claims/memory-seen-ids.ts';
import { type StoreFailure, StoreUnavailable } from '../../../../../src/state/claims/seen-ids.ts';
import { createMemoryNewestVersions } from '../../../../../src/state/ordering/memory-newest-versions.ts';
import type { NewestVersions } from '../../../../../src/state/ordering/newest-versions.ts';
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
  const lost: Settlement[] = [];
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
      waiters: new ClaimWaiters(1, () => undefined),
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

  test('passes after a newer one that the app did not handle, and waits for one whose end is unknown', async () => {
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

  test('is forwarded as stale where the route says so, takes no place, and holds nobody up', async () => {
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

  test('is compared by all its digits, beyond what a double can tell', async () => {
    const { gate, arrive, pass } = start();
    await pass('{"data":{"id":"r","version":9007199254740993}}');
    expect(await gate.check(arrive('{"data":{"id":"r","version":9007199254740992}}'))).toMatchObject({ code: 'stale' });
    await pass('{"data":{"id":"r","version":9007199254740993}}');
  });

  test('of another resource, or with a version of another kind, is no older one', async () => {
    const { pass, keys } = start();
    await pass('{"data":{"id":"r","version":5}}');
    await pass('{"data":{"id":"s","version":4}}');
    await pass('{"data":{"id":"r","version":"2020-01-01T00:00:00Z"}}');
    await pass('{"data":{"id":7,"version":1}}');
    expect(keys).toEqual(['a:o1:i:r', 'a:o1:i:s', 'a:o2:i:r', 'a:o1:i:7']);
  });

  test('of a resource with a long or odd name is found by a short key', async () => {
    const { gate, arrive, pass, keys } = start();
    const content = (id: string, version: number): string => JSON.stringify({ data: { id, version } });
    const names = ['x'.repeat(200), `${'x'.repeat(199)}y`, 'a b', 'a\nb', 'ü'];
    for (const id of names) await pass(content(id, 5));
    for (const id of names) expect(await gate.check(arrive(content(id, 4)))).toMatchObject({ code: 'stale' });
    for (const key of keys) expect(key).toMatch(/^a:o1:h:[\w-]{43}$/);
  });

  test('may begin with a byte order mark, as apps take it', async () => {
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
    [
      'nests too deep to read',
      `{"data":{"id":"r","version":12345678901234567890},"deep":${'['.repeat(100_000)}${']'.repeat(100_000)}}`,
    ],
  ])('that says no resource or no version passes unordered, counted: %s', async (_what, content) => {
    const { gate, arrive, events } = start();
    const arrived = arrive(content);
    expect(await gate.check(arrived)).toBeUndefined();
    expect([events, arrived.grant?.claim]).toEqual([['unordered'], undefined]);
  });
});

describe('while another event of the resource is with the app, one that comes', () => {
  test('waits, and goes next if it is newer', async () => {
    const { gate, arrive, clock, events } = start();
    const first = arrive(5);
    await gate.check(first);
    const second = arrive(6);
    const verdict = gate.check(second);
    await settle();
    first.grant?.claim?.confirm();
    await clock.advance(500);
    expect(await verdict).toBeUndefined();
    expect(second.grant?.claim).toBeDefined();
    expect(events).toEqual(['entered', 'busy', 'entered']);
  });

  test('waits, and is stale if the other was newer and is handled', async () => {
    const { gate, arrive, clock } = start();
    const first = arrive(5);
    await gate.check(first);
    const verdict = gate.check(arrive(4));
    await settle();
    first.grant?.claim?.confirm();
    await clock.advance(500);
    expect(await verdict).toMatchObject({ code: 'stale' });
  });

  test('waits, and goes next if the other was newer and failed', async () => {
    const { gate, arrive, clock } = start();
    const first = arrive(5);
    await gate.check(first);
    const second = arrive(4);
    const verdict = gate.check(second);
    await settle();
    first.grant?.claim?.release();
    await clock.advance(500);
    expect(await verdict).toBeUndefined();
  });

  test('is told to come again where too many wait', async () => {
    const { gate, arrive, clock } = start();
    await gate.check(arrive(5));
    const waiting = gate.check(arrive(6));
    await settle();
    expect(await gate.check(arrive(7))).toMatchObject({ code: 'in_progress', reason: 'waiters_full' });
    await clock.advance(4_000);
    expect(await waiting).toMatchObject({ code: 'in_progress', reason: 'resource_busy' });
  });

  test('is never forwarded when the store goes away meanwhile, whatever the route says', async () => {
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

describe('while the store is away', () => {
  test('an event is refused, and the place that a lost answer may have taken is left', async () => {
    const { gate, arrive, fail, events, settled } = start();
    fail('timeout');
    expect(await gate.check(arrive(5))).toMatchObject({ code: 'store_unavailable', reason: 'order_unavailable' });
    await settle();
    expect([events, settled]).toEqual([['unavailable'], ['settle_retried']]);
  });

  test('a store that is full took no place, so nothing is left', async () => {
    const { gate, arrive, fail, settled } = start();
    fail('full');
    expect(await gate.check(arrive(5))).toMatchObject({ code: 'store_unavailable' });
    await settle();
    expect(settled).toEqual([]);
  });

  test('an event passes where the route says so, counted, and its version is recorded once the store is back', async () => {
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

  test('a full store lets it pass without a place', async () => {
    const { gate, arrive, fail } = start({ onStoreError: 'forward' });
    fail('full');
    const arrived = arrive(5);
    expect(await gate.check(arrived)).toBeUndefined();
    expect(arrived.grant?.claim).toBeUndefined();
  });

  test('what was handled is told again and again, and is a loss after the retention; a place is no loss after its lease', async () => {
    const { gate, arrive, fail, clock, settled, lost } = start({ retention: 100_000 });
    const [handled, failed] = [arrive(5), arrive('{"data":{"id":"s","version":5}}')];
    await gate.check(handled);
    await gate.check(failed);
    fail('unreachable');
    handled.grant?.claim?.confirm();
    failed.grant?.claim?.release();
    await clock.advance(120_000);
    expect(lost).toMatchObject([{ kind: 'confirm', key: 'a:o1:i:r' }]);
    expect(settled.filter((outcome) => outcome === 'settle_lost')).toHaveLength(1);
  });

  test('records a handled event after an outage longer than the lease, and does not leave the place of a failed one again', async () => {
    const { gate, arrive, fail, clock, settled } = start();
    const [handled, failed] = [arrive(5), arrive('{"data":{"id":"s","version":5}}')];
    await gate.check(handled);
    await gate.check(failed);
    fail('unreachable');
    handled.grant?.claim?.confirm();
    failed.grant?.claim?.release();
    await clock.advance(OPTIONS.lease + OPTIONS.maxWait + 1_000);
    fail(undefined);
    await clock.advance(10_000);
    expect(settled.filter((outcome) => outcome !== 'settle_retried')).toEqual(['confirmed']);
    expect(await gate.check(arrive(4))).toMatchObject({ code: 'stale' });
  });

  test('a bug is no outage: it comes out as a throw, which the pipeline refuses', async () => {
    const { gate, arrive, fail } = start({ onStoreError: 'forward' });
    fail('bug');
    await expect(gate.check(arrive(5))).rejects.toThrow('a bug');
  });
});

describe('claims that are joined', () => {
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
    });
    const joined = joinGrants(toGrant('a', true), toGrant('b', false));
    joined.claim?.confirm();
    joined.claim?.release();
    joined.claim?.hold();
    expect(calls).toEqual(['b confirm', 'a confirm', 'b release', 'a release', 'b hold', 'a hold']);
    expect(joined).toMatchObject({ isStale: true, isUnchecked: true });
  });

  test('are one of them where the other gate claimed nothing', () => {
    const grant: ClaimGrant = {
      claim: { confirm: () => undefined, release: () => undefined, hold: () => undefined },
      isStale: false,
      isUnchecked: false,
    };
    expect(joinGrants(NOTHING_CLAIMED, grant)).toBe(grant);
    expect(joinGrants(grant, NOTHING_CLAIMED).claim).toBe(grant.claim);
  });
});
