import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import {
  ATTEMPT_OUTCOMES,
  type AttemptResult,
  type Decision,
  decide,
  findRetryAfter,
  toOutcome,
} from '../../../../src/provider/attempt/attempt.ts';
import { fc } from '../../../support/property.ts';
import { DEFAULT_SCHEDULE, failed, responded } from '../../../support/provider/endpoint.ts';

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

const NOW = 1_800_000_000_000;
const HOUR = 3_600_000;
const ENDPOINT = { schedule: DEFAULT_SCHEDULE, retryClientErrors: [] } as const;

const decideFirst = (result: AttemptResult, endpoint: Parameters<typeof decide>[0]['endpoint'] = ENDPOINT): Decision =>
  decide({ result, tries: 0, endpoint, now: NOW, random: 0.5 });
const dueIn = (decision: Decision): number => (decision.kind === 'retry' ? decision.due - NOW : Number.NaN);

describe('what follows a response', () => {
  test.each([200, 201, 202, 204, 299])('acknowledges a delivery answered with %i', (status) => {
    expect(decideFirst(responded(status))).toEqual({ kind: 'delivered' });
  });

  test.each([301, 302, 304, 307, 308, 401, 403, 404, 408, 425, 429, 500, 501, 502, 503, 504, 599])(
    'retries after %i',
    (status) => {
      expect(decideFirst(responded(status))).toEqual({ kind: 'retry', due: NOW + 5_000 });
    },
  );

  test.each([400, 402, 405, 409, 413, 415, 422, 451, 499])('gives up after %i', (status) => {
    expect(decideFirst(responded(status))).toEqual({ kind: 'dead', reason: 'rejected' });
  });

  test.each(['timeout', 'dns', 'connect', 'tls', 'reset', 'protocol', 'blocked'] as const)('retries after "%s"', (outcome) => {
    expect(decideFirst(failed(outcome))).toEqual({ kind: 'retry', due: NOW + 5_000 });
  });

  test('gives up and has the endpoint disabled after 410, whatever the endpoint retries', () => {
    for (const retryClientErrors of ['all', [410], []] as const)
      expect(decideFirst(responded(410), { ...ENDPOINT, retryClientErrors })).toEqual({ kind: 'dead', reason: 'gone' });
  });

  test('retries the statuses of 4xx that the endpoint names, or all of them', () => {
    expect(decideFirst(responded(409), { ...ENDPOINT, retryClientErrors: [409] }).kind).toBe('retry');
    expect(decideFirst(responded(400), { ...ENDPOINT, retryClientErrors: [409] }).kind).toBe('dead');
    expect(decideFirst(responded(400), { ...ENDPOINT, retryClientErrors: 'all' }).kind).toBe('retry');
  });
});

describe('Retry-After', () => {
  test('postpones the retry, and never brings it forward', () => {
    expect(dueIn(decideFirst(responded(503, { retryAfter: 60_000 })))).toBe(60_000);
    expect(decideFirst(responded(503, { retryAfter: 60_000 }))).toMatchObject({ isAsked: true });
    expect(decideFirst(responded(503, { retryAfter: 1_000 }))).not.toHaveProperty('isAsked');
    expect(dueIn(decideFirst(responded(503, { retryAfter: 1_000 })))).toBe(5_000);
    expect(dueIn(decideFirst(responded(503, { retryAfter: 0 })))).toBe(5_000);
  });

  test('postpones by at most 24 hours', () => {
    expect(dueIn(decideFirst(responded(429, { retryAfter: 1_000 * HOUR })))).toBe(24 * HOUR);
  });

  test('postpones by at most what remains of a short schedule', () => {
    const endpoint = { schedule: [1_000, 2_000, 3_000], retryClientErrors: [] };
    const result = responded(503, { retryAfter: 24 * HOUR });
    expect(dueIn(decideFirst(result, endpoint))).toBe(6_000);
    expect(dueIn(decide({ result, tries: 2, endpoint, now: NOW, random: 0.5 }))).toBe(3_000);
  });
});

const schedule = fc.array(fc.integer({ min: 0, max: 10 * 24 * HOUR }), { maxLength: 50 });
const random = fc.double({ min: 0, max: 1, noNaN: true });
const result = fc.record({
  outcome: fc.constantFrom(...ATTEMPT_OUTCOMES),
  startedAt: fc.constant(NOW),
  duration: fc.double({ min: 0, max: 60_000, noNaN: true }),
  status: fc.option(fc.integer({ min: 100, max: 999 }), { nil: undefined }),
  retryAfter: fc.option(fc.double({ min: 0, max: 24 * HOUR, noNaN: true }), { nil: undefined }),
  isSent: fc.boolean(),
});
const failure = result.filter(({ outcome }) => !['delivered', 'gone', 'client_error'].includes(outcome));
const retryClientErrors = fc.oneof(fc.constant('all' as const), fc.array(fc.integer({ min: 400, max: 499 }), { maxLength: 5 }));

describe('any schedule', () => {
  test('is due at a whole number of milliseconds, between now and the bound', () => {
    fc.assert(
      fc.property(schedule, retryClientErrors, fc.nat(60), result, random, (delays, retried, tries, ended, share) => {
        const endpoint = { schedule: delays, retryClientErrors: retried };
        const decision = decide({ result: ended, tries, endpoint, now: NOW, random: share });
        if (decision.kind !== 'retry') return;
        expect(Number.isSafeInteger(decision.due)).toBe(true);
        const rest = delays.slice(tries).reduce((sum, delay) => sum + delay, 0);
        const bound = Math.max(1.2 * (delays[tries] ?? 0), Math.min(rest, 24 * HOUR));
        expect(decision.due).toBeGreaterThanOrEqual(NOW);
        expect(decision.due).toBeLessThanOrEqual(NOW + Math.ceil(bound));
      }),
    );
  });

  test('allows one attempt more than it has delays', () => {
    fc.assert(
      fc.property(schedule, fc.array(failure, { minLength: 51, maxLength: 51 }), random, (delays, results, share) => {
        let tries = 0;
        for (const ended of results) {
          const endpoint = { schedule: delays, retryClientErrors: [] };
          const decision = decide({ result: ended, tries, endpoint, now: NOW, random: share });
          tries++;
          if (decision.kind === 'retry') continue;
          expect(decision).toEqual({ kind: 'dead', reason: 'exhausted' });
          break;
        }
        expect(tries).toBe(delays.length + 1);
      }),
    );
  });

  test('varies its delays by at most 20 %, and evenly', () => {
    fc.assert(
      fc.property(fc.integer({ min: 5, max: 24 * HOUR }), random, (delay, share) => {
        const endpoint = { schedule: [delay], retryClientErrors: [] };
        const due = dueIn(decide({ result: failed('timeout'), tries: 0, endpoint, now: NOW, random: share }));
        expect(due).toBeGreaterThanOrEqual(Math.floor(0.8 * delay));
        expect(due).toBeLessThanOrEqual(Math.ceil(1.2 * delay));
        expect(Math.abs(due - delay * (0.8 + 0.4 * share))).toBeLessThanOrEqual(1);
      }),
    );
  });

  test('is never due earlier with a longer Retry-After or a larger random number', () => {
    fc.assert(
      fc.property(schedule, fc.nat(50), failure, fc.nat(48 * HOUR), random, random, (delays, tries, ended, more, a, b) => {
        const endpoint = { schedule: delays, retryClientErrors: [] };
        const [low, high] = a < b ? [a, b] : [b, a];
        const first = decide({ result: ended, tries, endpoint, now: NOW, random: low });
        const later = { ...ended, retryAfter: (ended.retryAfter ?? 0) + more };
        const second = decide({ result: later, tries, endpoint, now: NOW, random: high });
        expect(second.kind).toBe(first.kind);
        if (first.kind === 'retry') expect(dueIn(second)).toBeGreaterThanOrEqual(dueIn(first));
      }),
    );
  });
});
