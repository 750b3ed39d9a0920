import { describe, expect, test } from 'vitest';
import { trimEnd, trimEnds } from '../../../src/core/text.ts';
import { fc } from '../../support/property.ts';

const BLANKS = new Set('\t\n\r ');
const HOSTILE = `x${'\n'.repeat(262_144)}x`;

/** How often a character is read. */
function count(trim: typeof trimEnd, text: string): number {
  let looks = 0;
  trim(text, {
    has(character) {
      looks++;
      return BLANKS.has(character);
    },
  });
  return looks;
}

describe('trimming', () => {
  test('removes the same characters as a regular expression', () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom('\t', '\n', '\r', ' ', 'x', '\f'), maxLength: 12 }), (text) => {
        expect(trimEnd(text, BLANKS)).toBe(text.replace(/[\t\n\r ]+$/, ''));
        expect(trimEnds(text, BLANKS)).toBe(text.replace(/^[\t\n\r ]+|[\t\n\r ]+$/g, ''));
      }),
    );
  });

  test('reads no character twice, and none after the first one that is kept', () => {
    expect([count(trimEnd, HOSTILE), count(trimEnds, HOSTILE)]).toEqual([1, 2]);
    const blank = '\n'.repeat(262_144);
    expect([count(trimEnd, blank), count(trimEnds, `${blank}x${blank}`)]).toEqual([262_144, 2 * 262_144 + 2]);
  });
});
