import { describe, expect, test } from 'vitest';
import { HeaderNames, KnownHeaderNames } from '../../../src/core/header-names.ts';
import { fc } from '../../support/property.ts';

const name = fc.constantFrom('Host', 'host', 'HOST', 'Via', 'X-A', 'x_a', 'Content-Length', 'constructor', '__proto__');
const head = fc.array(fc.tuple(name, fc.string()), { maxLength: 8 }).map((fields) => fields.flat());

describe('the known names of heads', () => {
  test('finds the same names, at the same positions, as a head that is seen for the first time', () => {
    fc.assert(
      fc.property(fc.array(head, { maxLength: 30 }), name, (heads, searched) => {
        const known = new KnownHeaderNames();
        for (const raw of heads) {
          const [found, expected] = [known.find(raw), new HeaderNames(raw)];
          const lower = searched.toLowerCase();
          const toAll = (names: HeaderNames): number[] => {
            const positions: number[] = [];
            for (let at = names.find(lower); at !== -1; at = names.find(lower, at + 1)) positions.push(at);
            return positions;
          };
          expect([found.list, found.count(lower), toAll(found)]).toEqual([expected.list, expected.count(lower), toAll(expected)]);
          expect(found.count(lower)).toBe(toAll(expected).length);
        }
      }),
    );
  });

  test('distinguishes names that differ only in case, order or place', () => {
    const known = new KnownHeaderNames();
    for (const raw of [
      ['Ab', '1', 'c', '2'],
      ['aB', '1', 'c', '2'],
      ['c', '1', 'Ab', '2'],
      ['A', '1', 'bc', '2'],
      ['Ab', 'c', 'c', 'Ab'],
    ])
      for (let again = 0; again < 3; again++)
        expect(known.find(raw).list).toEqual([raw[0]?.toLowerCase(), raw[2]?.toLowerCase()]);
  });

  test('returns the same object for the same names', () => {
    const known = new KnownHeaderNames();
    expect(known.find(['Host', 'a', 'Via', 'b'])).toBe(known.find(['Host', 'c', 'Via', 'd']));
  });

  test('keeps nothing of long heads', () => {
    const known = new KnownHeaderNames();
    const long = ['x'.repeat(2_000), 'v'];
    expect(known.find(long)).not.toBe(known.find(long));
    expect(known.find(long).list).toEqual([long[0]]);
  });
});
