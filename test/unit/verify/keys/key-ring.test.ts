import { describe, expect, test } from 'vitest';
import { KeyRing } from '../../../../src/verify/schemes/keys.ts';
import type { VerifyKey } from '../../../../src/verify/schemes/scheme.ts';
import { fc } from '../../../support/property.ts';

const key = (name: string, notBefore?: number, notAfter?: number): VerifyKey => ({ name, material: {}, notBefore, notAfter });
const names = (ring: KeyRing, now: number): string[] => ring.live(now).map(({ name }) => name);

describe('a key ring', () => {
  test('returns a key from its notBefore until its notAfter', () => {
    const ring = new KeyRing({ keys: [key('next', 100), key('current', 50, 150), key('old', undefined, 100)], unavailable: [] });
    expect([49, 50, 99, 100, 149, 150].map((now) => names(ring, now))).toEqual([
      ['old'],
      ['current', 'old'],
      ['current', 'old'],
      ['next', 'current'],
      ['next', 'current'],
      ['next'],
    ]);
  });

  test('returns the same list each time if no key has dates, so that a request costs nothing', () => {
    const ring = new KeyRing({ keys: [key('a'), key('b')], unavailable: [] });
    expect(ring.live(1)).toBe(ring.live(2));
    ring.replace({ keys: [key('a', 5)], unavailable: ['b'] });
    expect(names(ring, 4)).toEqual([]);
    expect([ring.isUnavailable('b'), ring.isUnavailable('a'), ring.isIncomplete]).toEqual([true, false, true]);
  });

  test('keeps for bodies that still arrive only what the next config has, with its dates', () => {
    const ring = new KeyRing({ keys: [key('a'), key('b'), key('c', 0, 100)], unavailable: [] });
    ring.setRemote('jwks', [key('jwks')]);
    ring.setRemote('gone', [key('gone')]);
    ring.setRemote('moved', [key('moved')]);
    const next = new KeyRing({ keys: [key('c', 0, 200), key('b', undefined, 50)], unavailable: [] });
    next.setRemote('jwks', [key('jwks', undefined, 60)]);
    next.setRemote('moved', undefined);
    ring.retire(next);
    expect([49, 50, 60, 199].map((now) => names(ring, now))).toEqual([['jwks', 'b', 'c'], ['jwks', 'c'], ['c'], ['c']]);
    expect([ring.isUnavailable('moved'), ring.isUnavailable('gone')]).toEqual([true, false]);
    next.setRemote('jwks', []);
    next.replace({ keys: [key('c')], unavailable: ['b'] });
    expect(names(ring, 49)).toEqual(['c']);
    expect([ring.isUnavailable('b'), ring.isIncomplete]).toEqual([true, true]);
    const last = new KeyRing({ keys: [key('b')], unavailable: [] });
    next.retire(last);
    expect(names(ring, 49)).toEqual([]);
    last.retire(undefined);
    expect(names(ring, 1)).toEqual([]);
  });

  test('never returns a key outside its dates, and keeps the order of the config', () => {
    const instant = fc.option(fc.integer({ min: 0, max: 20 }), { nil: undefined });
    fc.assert(
      fc.property(fc.array(fc.tuple(instant, instant), { maxLength: 6 }), fc.integer({ min: 0, max: 20 }), (dates, now) => {
        const keys = dates.map(([from, to], i) => key(String(i), from, to));
        const expected = keys.filter(({ notBefore = -1, notAfter = 99 }) => notBefore <= now && now < notAfter);
        expect(new KeyRing({ keys, unavailable: [] }).live(now)).toEqual(expected);
      }),
    );
  });
});
