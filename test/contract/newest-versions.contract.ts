/** What any store of newest versions must keep to. */

import { beforeEach, describe, expect, test } from 'vitest';
import { MAX_DURATION } from '../../src/core/clock.ts';
import type { EnterRequest, NewestVersions } from '../../src/state/newest-versions.ts';
import { fc } from '../support/property.ts';

/** A store under test, and how its time passes. */
export interface VersionsUnderTest {
  readonly store: NewestVersions;
  /** Lets at least this much of the store's time pass. */
  readonly pass: (ms: number) => Promise<void>;
}

let counter = 0;

function request(over: Partial<EnterRequest> = {}): EnterRequest {
  return { key: `route:o1:i:${++counter}`, version: '5', token: `t${counter}`, leaseMs: 60_000, ...over };
}

function handled(version: string, retentionMs = 60_000) {
  return { version, retentionMs };
}

/** The suite. */
export function describeNewestVersions(name: string, open: () => VersionsUnderTest): void {
  describe(name, () => {
    let store: NewestVersions;
    let pass: VersionsUnderTest['pass'];
    beforeEach(() => {
      ({ store, pass } = open());
    });

    test('admits one of a hundred concurrent events, with any versions, and returns the remaining time to the others', async () => {
      const { key } = request();
      const asks = Array.from({ length: 100 }, (_, i) => store.enter(request({ key, token: `r${i}`, version: String(100 + i) })));
      const results = await Promise.all(asks);
      expect(results.filter(({ state }) => state === 'entered')).toHaveLength(1);
      const busy = results.flatMap((result) => (result.state === 'busy' ? [result.remainingMs] : []));
      expect(busy).toHaveLength(99);
      expect(Math.min(...busy)).toBeGreaterThan(50_000);
      expect(Math.max(...busy)).toBeLessThanOrEqual(60_000);
    });

    test('keeps resources separate', async () => {
      expect(await store.enter(request())).toEqual({ state: 'entered' });
      expect(await store.enter(request())).toEqual({ state: 'entered' });
    });

    test('admits newer and equal versions after a handled one, and reports older ones as stale', async () => {
      const first = request({ version: '50' });
      await store.enter(first);
      expect(await store.leave({ ...first, handled: handled('50') })).toBe(true);
      expect(await store.enter({ ...first, token: 'older', version: '49' })).toEqual({ state: 'stale' });
      expect(await store.enter({ ...first, token: 'same' })).toEqual({ state: 'entered' });
      expect(await store.leave({ key: first.key, token: 'same' })).toBe(true);
      expect(await store.enter({ ...first, token: 'newer', version: '51' })).toEqual({ state: 'entered' });
    });

    test('reports an older event as stale even while another one is in progress', async () => {
      const first = request({ version: '50' });
      await store.enter(first);
      await store.leave({ ...first, handled: handled('50') });
      await store.enter({ ...first, token: 'newer', version: '51' });
      expect(await store.enter({ ...first, token: 'older', version: '49' })).toEqual({ state: 'stale' });
    });

    test('compares byte by byte from the start, so that a longer version is newer than its prefix', async () => {
      const first = request({ version: '15' });
      await store.enter(first);
      await store.leave({ ...first, handled: handled('15') });
      expect(await store.enter({ ...first, version: '149' })).toEqual({ state: 'stale' });
      expect(await store.enter({ ...first, version: '150' })).toEqual({ state: 'entered' });
      await store.leave({ ...first, handled: handled('150') });
      expect(await store.enter({ ...first, version: '15' })).toEqual({ state: 'stale' });
    });

    test('distinguishes long versions by the last digit', async () => {
      const long = '7'.repeat(63);
      const first = request({ version: `${long}5` });
      await store.enter(first);
      await store.leave({ ...first, handled: handled(`${long}5`) });
      expect(await store.enter({ ...first, version: `${long}4` })).toEqual({ state: 'stale' });
      expect(await store.enter({ ...first, version: `${long}6` })).toEqual({ state: 'entered' });
    });

    test('remembers nothing of an event that the app did not handle', async () => {
      const first = request({ version: '50' });
      await store.enter(first);
      expect(await store.leave({ key: first.key, token: first.token })).toBe(true);
      expect(await store.enter({ ...first, token: 'older', version: '1' })).toEqual({ state: 'entered' });
    });

    test('admits the same token again, with a new lease', async () => {
      const first = request({ leaseMs: 100 });
      await store.enter(first);
      expect(await store.enter({ ...first, leaseMs: 60_000 })).toEqual({ state: 'entered' });
      await pass(120);
      expect(await store.enter({ ...first, token: 'other' })).toMatchObject({ state: 'busy' });
    });

    test('admits the next one when the lease ends, and then the first can no longer free the place', async () => {
      const first = request({ leaseMs: 40 });
      await store.enter(first);
      await pass(60);
      expect(await store.enter({ ...first, token: 'second', leaseMs: 60_000 })).toEqual({ state: 'entered' });
      expect(await store.leave({ key: first.key, token: first.token })).toBe(false);
      expect(await store.enter({ ...first, token: 'third' })).toMatchObject({ state: 'busy' });
    });

    test('raises the newest version with one whose place another token took, and leaves that place', async () => {
      const first = request({ version: '50', leaseMs: 40 });
      await store.enter(first);
      await pass(60);
      await store.enter({ ...first, token: 'second', version: '49', leaseMs: 60_000 });
      expect(await store.leave({ ...first, handled: handled('50') })).toBe(false);
      expect(await store.enter({ ...first, token: 'third', version: '51' })).toMatchObject({ state: 'busy' });
      expect(await store.enter({ ...first, token: 'fourth', version: '49' })).toEqual({ state: 'stale' });
      expect(await store.leave({ key: first.key, token: 'second', handled: handled('49') })).toBe(true);
      expect(await store.enter({ ...first, token: 'fifth', version: '49' })).toEqual({ state: 'stale' });
    });

    test('records a handled event after its lease if nobody took the place, and changes nothing if nothing was handled', async () => {
      const first = request({ version: '50', leaseMs: 40 });
      await store.enter(first);
      await pass(60);
      expect(await store.leave({ key: first.key, token: first.token })).toBe(false);
      expect(await store.leave({ ...first, handled: handled('50') })).toBe(true);
      expect(await store.enter({ ...first, token: 'older', version: '49' })).toEqual({ state: 'stale' });
    });

    test('never lowers the newest version, or forgets it earlier because of an older one', async () => {
      const first = request({ version: '50' });
      await store.enter(first);
      await store.leave({ ...first, handled: handled('50') });
      await store.leave({ ...first, token: 'late', handled: handled('40', 40) });
      await store.leave({ ...first, token: 'late', handled: handled('50', 40) });
      await pass(60);
      expect(await store.enter({ ...first, version: '49' })).toEqual({ state: 'stale' });
    });

    test('forgets the newest version when its retention ends, and keeps an occupied place', async () => {
      const first = request({ version: '50' });
      await store.enter(first);
      await store.leave({ ...first, handled: handled('50', 80) });
      await store.enter({ ...first, token: 'second', version: '51' });
      await pass(100);
      expect(await store.enter({ ...first, token: 'third', version: '1' })).toMatchObject({ state: 'busy' });
      await store.leave({ key: first.key, token: 'second' });
      expect(await store.enter({ ...first, token: 'third', version: '1' })).toEqual({ state: 'entered' });
    });

    test('keeps the newest version for the longest time that a config can have', async () => {
      const first = request({ version: '50' });
      await store.enter(first);
      await store.leave({ ...first, handled: handled('50', MAX_DURATION) });
      expect(await store.enter({ ...first, version: '49' })).toEqual({ state: 'stale' });
    });

    test('distinguishes tokens with the same prefix', async () => {
      const first = request({ token: 'abc' });
      await store.enter(first);
      expect(await store.leave({ key: first.key, token: 'ab' })).toBe(false);
      expect(await store.enter({ ...first, token: 'ab' })).toMatchObject({ state: 'busy' });
    });

    test('behaves like its model for any order of operations', async () => {
      const operation = fc.record({
        kind: fc.constantFrom('enter', 'handled', 'failed'),
        token: fc.constantFrom('t1', 't2', 't3'),
        version: fc.constantFrom('1', '12', '120', '13', '2', '20'),
      });
      await fc.assert(
        fc.asyncProperty(fc.array(operation, { maxLength: 25 }), async (operations) => {
          const key = `model:${++counter}`;
          let newest = '';
          let holder: string | undefined;
          for (const { kind, token, version } of operations) {
            if (kind === 'enter') {
              const isBusy = holder !== undefined && holder !== token;
              const expected = version < newest ? 'stale' : isBusy ? 'busy' : 'entered';
              expect((await store.enter(request({ key, token, version }))).state).toBe(expected);
              if (expected === 'entered') holder = token;
            } else {
              const isMine = holder === token;
              const isDone = isMine || (holder === undefined && kind === 'handled');
              const over = kind === 'handled' ? { handled: handled(version) } : {};
              expect(await store.leave({ key, token, ...over })).toBe(isDone);
              if (kind === 'handled' && version > newest) newest = version;
              if (isMine) holder = undefined;
            }
          }
        }),
        { numRuns: 100 },
      );
    });

    test('admits one at a time, never a stale one, and never lowers the newest version, with any concurrency', async () => {
      const visitor = fc.record({
        version: fc.integer({ min: 10, max: 30 }).map(String),
        /** Other visitors' turns while it is with the app. */
        turns: fc.integer({ min: 0, max: 3 }),
        isHandled: fc.boolean(),
      });
      await fc.assert(
        fc.asyncProperty(fc.array(visitor, { minLength: 2, maxLength: 8 }), async (visitors) => {
          const key = `race:${++counter}`;
          let inside = 0;
          let newest = '';
          const visit = async ({ version, turns, isHandled }: (typeof visitors)[number], index: number): Promise<void> => {
            const token = `v${index}`;
            for (;;) {
              const { state } = await store.enter(request({ key, token, version }));
              if (state === 'busy') continue;
              if (state === 'stale') {
                expect(version < newest).toBe(true);
                return;
              }
              expect(version >= newest).toBe(true);
              expect(++inside).toBe(1);
              for (let i = 0; i < turns; i++) await store.enter(request({ key, token, version }));
              inside--;
              if (isHandled && version > newest) newest = version;
              expect(await store.leave({ key, token, ...(isHandled ? { handled: handled(version) } : {}) })).toBe(true);
              return;
            }
          };
          await Promise.all(visitors.map(visit));
          const after = await store.enter(request({ key, version: '0' }));
          expect(after.state).toBe(newest === '' ? 'entered' : 'stale');
        }),
        { numRuns: 50 },
      );
    });
  });
}
