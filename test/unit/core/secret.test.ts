import { expect, test } from 'vitest';
import { containsSecret } from '../../../src/core/secret.ts';

const SECRET = 'k/ey+with=odd"chars';
const secrets = [Buffer.from('another-secret'), Buffer.from(SECRET)];
const contains = (text: string): boolean => containsSecret(Buffer.from(text), secrets);
const toUnicode = (text: string): string =>
  [...text].map((each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, '0')}`).join('');

test.each([
  ['as it is', `x${SECRET}x`],
  ['escaped by JSON', JSON.stringify({ a: SECRET })],
  ['with escaped slashes', `{"a":"${SECRET.replaceAll('"', '\\"').replaceAll('/', '\\/')}"}`],
  ['as Unicode escapes', `{"a":"${toUnicode(SECRET)}"}`],
  ['as Unicode escapes in upper case', `{"a":"${toUnicode(SECRET).replaceAll(/[a-f]/g, (digit) => digit.toUpperCase())}"}`],
  ['in a form', `a=b&secret=${encodeURIComponent(SECRET)}`],
  ['in JSON in a string of JSON', JSON.stringify({ message: JSON.stringify({ a: SECRET }) })],
  ['in JSON in a form', `payload=${encodeURIComponent(JSON.stringify({ a: SECRET }))}`],
])('finds a secret %s', (_, text) => {
  expect(contains(text)).toBe(true);
});

test('finds a secret with characters beyond ASCII, as it is and escaped', () => {
  const text = 'pässwört-€-😀';
  const units = Array.from({ length: text.length }, (_, i) => `\\u${text.charCodeAt(i).toString(16).padStart(4, '0')}`).join('');
  const ascii = text.replaceAll(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
  for (const content of [text, units, ascii, JSON.stringify(ascii), encodeURIComponent(text), encodeURIComponent(`"${units}"`)])
    expect([content, containsSecret(Buffer.from(content), [Buffer.from(text)])]).toEqual([content, true]);
});

test('finds a secret that contains what looks like an escape', () => {
  for (const text of ['k"ey%2fwith-an-escape', 'k"ey\\u0041with-an-escape', '"%41%42%43%44%45%46%47%48'])
    for (const content of [text, JSON.stringify(text), encodeURIComponent(text), JSON.stringify(JSON.stringify(text))])
      expect([content, containsSecret(Buffer.from(content), [Buffer.from(text)])]).toEqual([content, true]);
  expect(containsSecret(Buffer.from('\\"AB'), [Buffer.from('%41%42')])).toBe(false);
});

test('finds a secret with spaces in a form, which writes them as plus signs', () => {
  for (const content of ['a=open+my+d%6for', 'a=open+my+door'])
    expect(containsSecret(Buffer.from(content), [Buffer.from('open my door')])).toBe(true);
});

test('finds a secret of which only the beginning is in the first bytes, and none behind them', () => {
  for (const secret of [SECRET, toUnicode(SECRET)]) {
    expect(containsSecret(Buffer.from(`abc${secret}`), secrets, 4)).toBe(true);
    expect(containsSecret(Buffer.from(`abc${'-'.repeat(10_000)}${secret}`), secrets, 4)).toBe(false);
  }
});

test('finds nothing in content without a secret, and without secrets', () => {
  for (const text of ['', '\\', '%', '\\u', '\\u00', '%2', 'k%2fey', `{"a":"${toUnicode('key')}"}`, SECRET.slice(1)])
    expect([text, contains(text)]).toEqual([text, false]);
  expect(containsSecret(Buffer.from('\\u0061'), [])).toBe(false);
});

test('stays fast for content that is all escapes', () => {
  const started = performance.now();
  expect(contains('%41'.repeat(22_000))).toBe(false);
  expect(contains('\\'.repeat(65_000))).toBe(false);
  expect(contains('\\u0041'.repeat(11_000))).toBe(false);
  expect(performance.now() - started).toBeLessThan(2_000);
});
