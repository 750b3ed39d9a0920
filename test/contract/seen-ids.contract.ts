/** What any store of seen ids must keep to. */

import { beforeEach, describe, expect, test } from 'vitest';
import { MAX_DURATION } from '../../src/core/clock.ts';
import type { ClaimRequest, SeenIds } from '../../src/state/seen-ids.ts';
import { fc } from '../support/property.ts';

/** A store under test, and how its time passes. */
export interface StoreUnderTest {
  readonly store: SeenIds;
  /** Lets at least this much of the store's time pass. */
  readonly pass: (ms: number) => Promise<void>;
}

let counter = 0;

function request(over: Partial<ClaimRequest> = {}): ClaimRequest {
  return { key: `route:i:${++counter}`, token: `t${counter}`, fingerprint: 'f1', leaseMs: 60_000, ...over };
}

/** The suite. */
export function describeSeenIds(name: string, open: () => StoreUnderTest): void {
  describe(name, () => {
    let store: SeenIds;
    let pass: StoreUnderTest['pass'];
    beforeEach(() => {
      ({ store, pass } = open());
    });

    test('grants one of a hundred concurrent claims, and reports it to the others', async () => {
      const key = request().key;
      const results = await Promise.all(Array.from({ length: 100 }, (_, i) => store.claim(request({ key, token: `racer${i}` }))));
      expect(results.filter(({ state }) => state === 'new')).toHaveLength(1);
      expect(results.filter(({ state }) => state === 'in-progress')).toHaveLength(99);
    });

    test('returns how long a claim is still valid, and if the content is the same', async () => {
      const first = request();
      await store.claim(first);
      const again = await store.claim({ ...first, token: 'other' });
      expect(again).toMatchObject({ state: 'in-progress', fingerprint: first.fingerprint });
      if (again.state === 'in-progress') {
        expect(again.remainingMs).toBeGreaterThan(50_000);
        expect(again.remainingMs).toBeLessThanOrEqual(60_000);
      }
      expect(await store.claim({ ...first, token: 'other', fingerprint: 'f2' })).toMatchObject({
        fingerprint: first.fingerprint,
      });
    });

    test('grants a claim again that was sent twice because its reply was lost', async () => {
      const first = request({ leaseMs: 1_000 });
      expect(await store.claim(first)).toEqual({ state: 'new' });
      expect(await store.claim({ ...first, leaseMs: 60_000 })).toEqual({ state: 'new' });
      const other = await store.claim({ ...first, token: 'other' });
      expect(other).toMatchObject({ state: 'in-progress', remainingMs: expect.any(Number) });
      if (other.state === 'in-progress') expect(other.remainingMs).toBeGreaterThan(50_000);
      expect(await store.release(first.key, first.token)).toBe(true);
    });

    test('remembers a confirmed ID for every later claim', async () => {
      const first = request();
      await store.claim(first);
      expect(await store.confirm(first.key, first.token, first.fingerprint, 60_000)).toBe(true);
      const handled = { state: 'handled', fingerprint: first.fingerprint };
      expect(await store.claim({ ...first, token: 'other' })).toMatchObject(handled);
      expect(await store.claim({ ...first, fingerprint: 'f2' })).toMatchObject(handled);
    });

    test('returns how long a confirmed ID is still remembered', async () => {
      const first = request();
      await store.claim(first);
      await store.confirm(first.key, first.token, first.fingerprint, 90_000);
      const { remainingMs } = (await store.claim(first)) as { readonly remainingMs: number };
      expect(remainingMs).toBeGreaterThan(80_000);
      expect(remainingMs).toBeLessThanOrEqual(90_000);
    });

    test('forgets a released ID', async () => {
      const first = request();
      await store.claim(first);
      expect(await store.release(first.key, first.token)).toBe(true);
      expect(await store.claim({ ...first, token: 'other' })).toEqual({ state: 'new' });
    });

    test('forgets a claim when its lease ends, and an ID when its retention ends', async () => {
      const first = request({ leaseMs: 40 });
      await store.claim(first);
      await pass(60);
      expect(await store.claim({ ...first, token: 'second' })).toEqual({ state: 'new' });
      expect(await store.confirm(first.key, 'second', 'f1', 40)).toBe(true);
      await pass(60);
      expect(await store.claim({ ...first, token: 'third' })).toEqual({ state: 'new' });
    });

    test('keeps an ID for the longest time that a config can have', async () => {
      const first = request({ leaseMs: MAX_DURATION });
      await store.claim(first);
      expect(await store.confirm(first.key, first.token, 'f1', MAX_DURATION)).toBe(true);
      expect(await store.claim({ ...first, token: 'other' })).toMatchObject({ state: 'handled' });
    });

    test('ignores a token that lost the claim to another', async () => {
      const first = request({ leaseMs: 40 });
      await store.claim(first);
      await pass(60);
      await store.claim({ ...first, token: 'second', leaseMs: 60_000 });
      expect(await store.confirm(first.key, first.token, 'f1', 60_000)).toBe(false);
      expect(await store.release(first.key, first.token)).toBe(false);
      expect(await store.claim({ ...first, token: 'third' })).toMatchObject({ state: 'in-progress' });
    });

    test('records a late confirm if nobody took the expired claim', async () => {
      const first = request({ leaseMs: 40 });
      await store.claim(first);
      await pass(60);
      expect(await store.confirm(first.key, first.token, 'f1', 60_000)).toBe(true);
      expect(await store.claim({ ...first, token: 'other' })).toMatchObject({ state: 'handled' });
    });

    test('does not confirm or release a handled ID', async () => {
      const first = request();
      await store.claim(first);
      await store.confirm(first.key, first.token, 'f1', 60_000);
      expect(await store.release(first.key, first.token)).toBe(false);
      expect(await store.confirm(first.key, first.token, 'f2', 60_000)).toBe(false);
      expect(await store.claim({ ...first, token: 'other' })).toMatchObject({ state: 'handled', fingerprint: first.fingerprint });
    });

    test('forgets an ID on demand in any state, and returns the state', async () => {
      const first = request();
      expect(await store.forget(first.key)).toEqual({ was: 'absent' });
      await store.claim(first);
      expect(await store.forget(first.key)).toEqual({ was: 'in-progress', fingerprint: 'f1' });
      expect(await store.forget(first.key)).toEqual({ was: 'absent' });
      await store.claim(first);
      await store.confirm(first.key, first.token, 'f2', 60_000);
      expect(await store.forget(first.key)).toEqual({ was: 'handled', fingerprint: 'f2' });
      expect(await store.claim({ ...first, token: 'other' })).toEqual({ state: 'new' });
    });

    test('forgets no other ID', async () => {
      const [first, second] = [request(), request()];
      await store.claim(first);
      await store.claim(second);
      await store.forget(first.key);
      expect(await store.claim({ ...second, token: 'other' })).toMatchObject({ state: 'in-progress' });
    });

    test('confirms a forgotten claim if nobody took it, and changes nothing otherwise', async () => {
      const first = request();
      await store.claim(first);
      await store.forget(first.key);
      expect(await store.release(first.key, first.token)).toBe(false);
      expect(await store.confirm(first.key, first.token, 'f1', 60_000)).toBe(true);
      expect(await store.claim({ ...first, token: 'other' })).toMatchObject({ state: 'handled' });
      await store.forget(first.key);
      await store.claim({ ...first, token: 'other' });
      expect(await store.confirm(first.key, first.token, 'f1', 60_000)).toBe(false);
    });

    test('reports an ID whose lease or retention has ended as absent when it is forgotten', async () => {
      const first = request({ leaseMs: 40 });
      await store.claim(first);
      await pass(60);
      expect(await store.forget(first.key)).toEqual({ was: 'absent' });
      await store.confirm(first.key, first.token, 'f1', 40);
      await pass(60);
      expect(await store.forget(first.key)).toEqual({ was: 'absent' });
    });

    test('distinguishes tokens with the same prefix', async () => {
      const first = request({ token: 'abc' });
      await store.claim(first);
      expect(await store.release(first.key, 'ab')).toBe(false);
      expect(await store.confirm(first.key, 'a', 'f1', 1_000)).toBe(false);
    });

    test('behaves like its model for any order of operations', async () => {
      const operation = fc.record({
        kind: fc.constantFrom('claim', 'confirm', 'release', 'forget'),
        key: fc.constantFrom('a', 'b'),
        token: fc.constantFrom('t1', 't2'),
      });
      await fc.assert(
        fc.asyncProperty(fc.array(operation, { maxLength: 20 }), async (operations) => {
          const prefix = `model:${++counter}:`;
          const model = new Map<string, string>();
          for (const { kind, key, token } of operations) {
            const held = model.get(key);
            const at = prefix + key;
            if (kind === 'claim') {
              const { state } = await store.claim(request({ key: at, token }));
              const isFree = held === undefined || held === token;
              expect(state).toBe(isFree ? 'new' : held === 'handled' ? 'handled' : 'in-progress');
              if (isFree) model.set(key, token);
            } else if (kind === 'confirm') {
              const isMine = held === undefined || held === token;
              expect(await store.confirm(at, token, 'f1', 60_000)).toBe(isMine);
              if (isMine) model.set(key, 'handled');
            } else if (kind === 'forget') {
              const { was } = await store.forget(at);
              expect(was).toBe(held === undefined ? 'absent' : held === 'handled' ? 'handled' : 'in-progress');
              model.delete(key);
            } else {
              expect(await store.release(at, token)).toBe(held === token);
              if (held === token) model.delete(key);
            }
          }
        }),
        { numRuns: 50 },
      );
    });
  });
}
