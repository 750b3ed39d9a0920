import { expect, test } from 'vitest';
import { matchesPattern, parseEventPattern } from '../../../../src/provider/endpoints/endpoint-index.ts';
import { fc } from '../../../support/property.ts';

const matches = (pattern: string, type: string): boolean => matchesPattern(parseEventPattern(pattern), type.split('.'));

test.each([
  ['invoice.paid', 'invoice.paid'],
  ['invoice.*', 'invoice.paid'],
  ['invoice.*', 'invoice.paid.late'],
  ['*', 'ping'],
  ['*', 'a.b.c'],
  ['*.paid', 'invoice.paid'],
  ['a.*.z', 'a.b.z'],
  ['a.*.z', 'a.z.z'],
  ['a.*.b.*.c', 'a.1.b.2.b.3.c'],
  ['*.*', 'a.b'],
])('matches %s with %s', (pattern, type) => {
  expect(matches(pattern, type)).toBe(true);
});

test.each([
  ['invoice.paid', 'invoice'],
  ['invoice.paid', 'invoice.paid.late'],
  ['invoice.*', 'invoice'],
  ['invoice.*', 'invoices.paid'],
  ['*.*', 'a'],
  ['a.*.z', 'a.z'],
  ['*.paid', 'paid'],
  ['a.*.b.*.c', 'a.b.c'],
])('does not match %s with %s', (pattern, type) => {
  expect(matches(pattern, type)).toBe(false);
});

test('matches like the regular expression with the same meaning', () => {
  const segment = fc.constantFrom('a', 'b', '*');
  fc.assert(
    fc.property(
      fc.array(segment, { minLength: 1, maxLength: 5 }),
      fc.array(fc.constantFrom('a', 'b'), { minLength: 1, maxLength: 7 }),
      (pattern, type) => {
        const expression = new RegExp(`^${pattern.map((each) => (each === '*' ? '[ab](?:\\.[ab])*' : each)).join('\\.')}$`);
        expect(matches(pattern.join('.'), type.join('.'))).toBe(expression.test(type.join('.')));
      },
    ),
  );
});

test('takes bounded time for a pattern that a regular expression would try exponentially often', () => {
  const startedAt = performance.now();
  expect(matches(`${'*.'.repeat(63)}z`, `${'a.'.repeat(63)}b`)).toBe(false);
  expect(matches(`${'*.a.'.repeat(31)}z`, `${'a.'.repeat(63)}b`)).toBe(false);
  expect(performance.now() - startedAt).toBeLessThan(5_000);
});
