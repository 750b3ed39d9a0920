import { expect, test } from 'vitest';
import { stringify } from 'yaml';
import { parseConfig } from '../../../../src/config/load/load.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

// The fake clock stands at 2027-01-15T08:00:00Z.
const PAST = '2026-12-01T00:00:00Z';
const LATER = '2027-02-01T00:00:00Z';
const LAST = '2027-03-01T00:00:00Z';
const AT = 'routes.0.webhook.keys';

function check(...dates: readonly object[]): string[] {
  const keys = dates.map((each, i) => ({ name: `k${i}`, secret: { env: 'K' }, ...each }));
  const route = { name: 'a', match: { path: '/a' }, upstream: 'http://127.0.0.1:3000', webhook: { keys } };
  return parseConfig('f', stringify({ routes: [route] }), new FakeClock()).problems.map(
    ({ severity, path, message }) => `${severity} ${path}: ${message}`,
  );
}

test.each([
  ['a key for ever', [{}]],
  ['a key that takes over from another', [{ notBefore: LATER }, { notAfter: LAST }]],
  ['a key with a beginning and an end', [{ notBefore: PAST, notAfter: LAST }]],
])('accepts %s', (_, dates) => {
  expect(check(...dates)).toEqual([]);
});

test.each([
  [
    [{}, { notBefore: LAST, notAfter: LATER }],
    `error ${AT}.1.notBefore: notAfter is not after notBefore, so the key is never accepted`,
  ],
  [
    [{}, { notBefore: LAST, notAfter: LAST }],
    `error ${AT}.1.notBefore: notAfter is not after notBefore, so the key is never accepted`,
  ],
  [[{ notBefore: LATER }, { notBefore: LAST }], `warning ${AT}: no key is valid yet, so every delivery gets 503`],
  [[{ notBefore: LATER }, { notAfter: PAST }], `warning ${AT}: no key is valid yet, so every delivery gets 503`],
  [[{}, { notAfter: PAST }], `warning ${AT}.1.notAfter: the key has expired`],
])('reports what is wrong with the dates of keys: %j', (dates, problem) => {
  expect(check(...dates)).toContain(problem);
});

test('a route whose keys have all expired is an error, and nothing else', () => {
  const all = [`error ${AT}: every key has expired, so every delivery would be rejected`];
  expect(check({ notAfter: PAST })).toEqual(all);
  expect(check({ notAfter: PAST }, { notAfter: PAST })).toEqual(all);
  expect(check({ notAfter: PAST }, {})).toEqual([`warning ${AT}.0.notAfter: the key has expired`]);
});
