import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { ATTEMPT_OUTCOMES, findRetryAfter, toOutcome } from '../../../../src/provider/attempt/attempt.ts';

test.each([
  [200, 'delivered'],
  [204, 'delivered'],
  [299, 'delivered'],
  [300, 'redirect'],
  [301, 'redirect'],
  [304, 'redirect'],
  [400, 'client_error'],
  [404, 'client_error'],
  [410, 'gone'],
  [429, 'throttled'],
  [499, 'client_error'],
  [500, 'server_error'],
  [502, 'server_error'],
  [599, 'server_error'],
] as const)('maps %i to %s', (status, outcome) => {
  expect(toOutcome(status)).toBe(outcome);
});

test('the documentation lists every outcome once', () => {
  const page = readFileSync('docs/delivery-attempts.md', 'utf8');
  const table = page.slice(page.indexOf('## The result'), page.indexOf('- **The status'));
  const listed = [...table.matchAll(/^\| `([a-z_]+)` \|/gm)].map(([, outcome]) => outcome);
  expect(listed.toSorted()).toEqual([...ATTEMPT_OUTCOMES].sort());
});

describe('findRetryAfter', () => {
  const now = Date.parse('Sun, 22 Nov 2026 08:00:00 GMT');
  const DAY = 86_400_000;

  test.each([
    ['0', 0],
    ['120', 120_000],
    ['86401', DAY],
    ['999999999999999', DAY],
    ['Sun, 22 Nov 2026 08:01:40 GMT', 100_000],
    ['Sun, 22 Nov 2026 07:00:00 GMT', 0],
    ['Fri, 31 Dec 9999 23:59:59 GMT', DAY],
  ])('reads %s', (value, delay) => {
    expect(findRetryAfter(['Date', 'x', 'RETRY-AFTER', value], now)).toBe(delay);
  });

  test.each([
    '',
    '-1',
    '1.5',
    '1e3',
    '0x10',
    '9999999999999999',
    'soon',
    '2026-11-22T08:01:40Z',
    'Sun, 99 Foo 2026 99:99:99 GMT',
  ])('ignores "%s"', (value) => {
    expect(findRetryAfter(['Retry-After', value], now)).toBeUndefined();
  });

  test('uses the first of several, and undefined if there is none', () => {
    expect(findRetryAfter(['Retry-After', '1', 'Retry-After', '2'], now)).toBe(1_000);
    expect(findRetryAfter(['Retry-Aftex', '1'], now)).toBeUndefined();
  });
});
