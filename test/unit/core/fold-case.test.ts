import { expect, test } from 'vitest';
import { foldCase } from '../../../src/core/text.ts';

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
