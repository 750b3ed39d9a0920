import { describe, expect, test } from 'vitest';
import { foldCase, trimEnd, trimEnds } from '../../../src/core/text.ts';
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

describe('foldCase', () => {
  /** All characters that have a case by any rule. */
  const LETTERS = Array.from({ length: 0x11_0000 }, (_, code) => code)
    .filter((code) => code < 0xd800 || code > 0xdfff)
    .map((code) => String.fromCodePoint(code))
    .filter((letter) => /[\p{Changes_When_Casemapped}\p{Changes_When_Casefolded}]/u.test(letter));
  const ALL = LETTERS.join('');

  test("equals Unicode's simple case folding, which Go's JSON decoder applies, for every character", () => {
    const differing = LETTERS.flatMap((letter) =>
      [...ALL.matchAll(new RegExp(letter, 'giu'))].filter(([other]) => foldCase(`a${letter}b`) !== foldCase(`a${other}b`)),
    );
    expect(differing.map(([other]) => other)).toEqual([]);
  });

  test('equals upper and lower case, which .NET and Java apply, for every character', () => {
    const differing = LETTERS.filter(
      (letter) => foldCase(letter) !== foldCase(letter.toUpperCase()) || foldCase(letter) !== foldCase(letter.toLowerCase()),
    );
    expect(differing).toEqual([]);
  });

  test.each([
    ['\u017fucce\u017f\u017f', 'success'],
    ['to\u212aen', 'token'],
    ['\u0130D', 'id'],
    ['\u0131d', 'id'],
    ['I\u0307\u0130d', 'iid'],
    ['\ufb01eld', 'field'],
  ])('reads %s as %s', (text, expected) => {
    expect(foldCase(text)).toBe(expected);
  });
});
