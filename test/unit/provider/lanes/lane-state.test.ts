import { describe, expect, test } from 'vitest';
import { type AttemptResult, decide } from '../../../../src/provider/attempt/attempt.ts';
import {
  applyAttempt,
  isBreakerOpen,
  MAX_BREAKER_PAUSE_MS,
  takeToken,
  toConcurrency,
  toCurrentState,
  toFailureStreak,
  toHealth,
  toPause,
  toRank,
} from '../../../../src/provider/lanes/lane-state.ts';
import type { LaneState } from '../../../../src/provider/queue/delivery-queue.ts';
import { fc } from '../../../support/property.ts';
import { anEndpoint, failed, responded } from '../../../support/provider/endpoint.ts';

const NOW = 1_800_000_000_000;
const DAY = 24 * 3_600_000;
const ENDPOINT = anEndpoint('acme');
const NEW = toCurrentState(undefined, ENDPOINT);
const PROVEN: LaneState = { ...NEW, isProven: true };

interface Options {
  readonly type?: string;
  readonly tries?: number;
  readonly isReplay?: boolean;
  readonly now?: number;
  readonly maxPause?: number;
  readonly gaveWay?: boolean;
}

function update(state: LaneState, result: AttemptResult, options: Options = {}) {
  const {
    type = 'invoice.paid',
    tries = 0,
    isReplay = false,
    now = NOW,
    gaveWay = false,
    maxPause = MAX_BREAKER_PAUSE_MS.endpoint,
  } = options;
  const decision = decide({ result, tries, endpoint: ENDPOINT, now, random: 0.5 });
  const delivery = { type, tries, isReplay };
  return applyAttempt(state, {
    delivery,
    result,
    gaveWay,
    decision,
    now,
    random: 0.5,
    disable: { after: 5 * DAY, attempts: 20 },
    maxPause,
  });
}

/** The state after so many equal results, one after the other. */
function repeat(state: LaneState, result: AttemptResult, times: number, options?: Options): LaneState {
  return times === 0 ? state : repeat(update(state, result, options).state, result, times - 1, options);
}

const pauseOf = (state: LaneState): number => (state.pausedUntil ?? NOW) - NOW;

describe('concurrency', () => {
  test('starts at one, and is full after a success', () => {
    expect(toConcurrency(NEW, ENDPOINT)).toBe(1);
    expect(toConcurrency(update(NEW, responded(200)).state, ENDPOINT)).toBe(4);
  });

  test.each([500, 501, 404, 422, 302])('stays full after any number of failed events (%i), without a pause', (status) => {
    const state = repeat(PROVEN, responded(status), 500);
    expect(toConcurrency(state, ENDPOINT)).toBe(4);
    expect(state.pausedUntil).toBeUndefined();
    expect(isBreakerOpen(state)).toBe(false);
  });

  test('is one while the breaker is open', () => {
    expect(toConcurrency(repeat(PROVEN, failed('timeout'), 4), ENDPOINT)).toBe(4);
    expect(toConcurrency(repeat(PROVEN, failed('timeout'), 5), ENDPOINT)).toBe(1);
  });

  test('starts again at one when the endpoint was enabled again', () => {
    const failing = repeat(PROVEN, failed('timeout'), 30);
    expect(toCurrentState(failing, ENDPOINT)).toBe(failing);
    expect(toCurrentState(failing, { ...ENDPOINT, enabledAt: NOW })).toMatchObject({ failures: 0, isProven: false, since: NOW });
  });

  test('starts again at one, without a pause, when the endpoint has another URL', () => {
    const paused = update(toCurrentState(undefined, ENDPOINT), responded(429, { retryAfter: 3_600_000 })).state;
    expect(toCurrentState(paused, { ...ENDPOINT, timeout: 1 })).toBe(paused);
    const current = toCurrentState(paused, { ...ENDPOINT, url: 'https://new.example' });
    expect([current.failures, current.isProven, toPause(current, NOW)]).toEqual([0, false, undefined]);
    // Also if the state is one from before it was known whose it is.
    const { identity: _, ...older } = paused;
    const known = toCurrentState(older, ENDPOINT);
    expect(known).toEqual(paused);
    expect(toCurrentState(known, { ...ENDPOINT, url: 'https://new.example' }).failures).toBe(0);
  });
});

describe('the health of an endpoint', () => {
  test.each([responded(503), responded(429), failed('timeout'), failed('reset', { isSent: false }), failed('connect')])(
    'survives one $outcome $status, not five',
    (result) => {
      expect(toHealth(update(PROVEN, result).state)).toBe('proven');
      expect(toHealth(repeat(PROVEN, result, 5))).toBe('away');
    },
  );

  test('without a success is failing after one', () => {
    expect([toHealth(NEW), toHealth(update(NEW, responded(503)).state)]).toEqual(['unproven', 'failing']);
  });
});

test('leaves the state of a healthy endpoint as it is, so that it need not be stored again', () => {
  expect(update(PROVEN, responded(200)).state).toBe(PROVEN);
});

describe('the breaker', () => {
  test('opens at the fifth sign in a row that the endpoint is away, closes at the first success', () => {
    const four = repeat(PROVEN, failed('timeout'), 4);
    expect(four.pausedUntil).toBeUndefined();
    const fifth = update(four, failed('timeout'));
    expect(fifth.breaker).toBe('open');
    expect(pauseOf(fifth.state)).toBe(1_000);
    expect(update(fifth.state, failed('timeout')).breaker).toBeUndefined();
    expect(update(fifth.state, responded(200)).breaker).toBe('closed');
    expect(update(four, responded(200)).breaker).toBeUndefined();
  });

  test.each([
    failed('dns'),
    failed('connect'),
    failed('tls'),
    failed('blocked'),
    failed('timeout'),
    failed('reset', { isSent: false }),
    responded(429),
    responded(502),
    responded(503),
    responded(504),
  ])('opens for $outcome $status', (result) => {
    expect(isBreakerOpen(repeat(PROVEN, result, 5))).toBe(true);
  });

  test.each([
    failed('reset', { isSent: true }),
    failed('protocol', { isSent: true }),
    failed('protocol', { isSent: false }),
    responded(302),
    responded(401),
    responded(422, { retryAfter: 1_000 }),
    responded(500),
    responded(500, { retryAfter: 1_000 }),
  ])('does not open for $outcome $status, which concerns one event', (result) => {
    expect(isBreakerOpen(repeat(PROVEN, result, 100))).toBe(false);
  });

  test('closes when the endpoint responds, even if it fails the event: the event must not hold up others', () => {
    const open = repeat(PROVEN, failed('connect'), 9);
    const closed = update(open, responded(500));
    expect(closed.breaker).toBe('closed');
    expect(toConcurrency(closed.state, ENDPOINT)).toBe(4);
  });

  test('opens for replays, too, which do not count towards disabling', () => {
    const state = repeat(PROVEN, failed('connect'), 5, { isReplay: true });
    expect(pauseOf(state)).toBe(1_000);
    expect(state.failures).toBe(0);
  });

  test('pauses a quarter longer after each further sign, up to a minute, and up to a second in the inbox', () => {
    const pauses = (maxPause: number) =>
      [6, 7, 8, 20, 2_000].map((times) => pauseOf(repeat(PROVEN, failed('connect'), times, { maxPause })));
    expect(pauses(MAX_BREAKER_PAUSE_MS.endpoint)).toEqual([1_250, 1_563, 1_953, 28_422, 60_000]);
    expect(pauses(MAX_BREAKER_PAUSE_MS.app)).toEqual(Array(5).fill(1_000));
  });

  test('pauses no longer if only retries and failing types time out or get 503, as the endpoint may work for others', () => {
    for (const result of [failed('timeout'), responded(503)]) {
      expect(pauseOf(repeat(PROVEN, result, 200, { tries: 1 }))).toBe(1_000);
      expect(pauseOf(repeat({ ...PROVEN, failingTypes: ['bad'] }, result, 200, { type: 'bad' }))).toBe(1_000);
    }
    // No connection cannot depend on the event.
    expect(pauseOf(repeat(PROVEN, failed('connect'), 200, { tries: 1 }))).toBe(60_000);
  });
});

describe('an event that times out', () => {
  const timeout = failed('timeout', { duration: 15_000 });
  const hung = update(PROVEN, timeout).state;

  test('is noted, unless it gave way to another one', () => {
    expect(hung.timedOutAt).toBe(NOW);
    expect(update(PROVEN, timeout, { gaveWay: true }).state.timedOutAt).toBeUndefined();
    expect(update(PROVEN, responded(503)).state.timedOutAt).toBeUndefined();
    expect(update(PROVEN, failed('timeout', { isSent: false })).state.timedOutAt).toBeUndefined();
  });

  test('does not open the breaker of an endpoint that responded meanwhile, or of late', () => {
    const ok = update(hung, responded(200, { duration: 5 })).state;
    expect(isBreakerOpen(repeat(ok, timeout, 50, { now: NOW + 14_000 }))).toBe(false);
    expect(isBreakerOpen(repeat(ok, failed('timeout', { duration: 60_000 }), 50, { now: NOW + 50_000 }))).toBe(false);
    expect(isBreakerOpen(repeat(ok, timeout, 50, { now: NOW + 17_000 }))).toBe(true);
    expect(isBreakerOpen(repeat(ok, failed('connect'), 50, { now: NOW + 1_000 }))).toBe(true);
  });

  test('makes successes change the state once a second, for two minutes', () => {
    const quick = responded(200, { duration: 5 });
    const first = update(hung, quick, { now: NOW + 1_100 }).state;
    expect(first).toMatchObject({ succeededAt: NOW + 1_000, slowMs: undefined });
    expect(update(first, quick, { now: NOW + 1_900 }).state).toBe(first);
    expect(update(first, quick, { now: NOW + 2_100 }).state).not.toBe(first);
    expect(update(first, responded(200, { duration: 1_500 }), { now: NOW + 1_900 }).state.slowMs).toBe(2_000);
    const later = update(first, quick, { now: NOW + 121_000 }).state;
    expect([later.timedOutAt, later.succeededAt]).toEqual([undefined, undefined]);
    expect(update(later, quick, { now: NOW + 122_000 }).state).toBe(later);
  });
});

describe('an endpoint that fails almost everything', () => {
  const failAll = (state: LaneState, times: number, types: readonly string[], tries = 0): LaneState => {
    let next = state;
    for (let at = 0; at < times; at++) next = update(next, responded(500), { type: types[at % types.length] ?? '', tries }).state;
    return next;
  };

  test('opens the breaker after 20 failed first attempts in a row of several types, or without a success so far', () => {
    expect(isBreakerOpen(failAll(PROVEN, 19, ['a', 'b']))).toBe(false);
    expect(isBreakerOpen(failAll(PROVEN, 20, ['a', 'b']))).toBe(true);
    expect(isBreakerOpen(failAll(PROVEN, 500, ['a']))).toBe(false);
    expect(isBreakerOpen(failAll(NEW, 20, ['a']))).toBe(true);
    expect(isBreakerOpen(failAll(PROVEN, 500, ['a', 'b'], 1))).toBe(false);
  });

  test('gets first attempts as ever, and retries after half a second', () => {
    const open = failAll(PROVEN, 100, ['a', 'b']);
    expect(open.pausedUntil).toBeUndefined();
    expect(toConcurrency(open, ENDPOINT)).toBe(4);
    expect(pauseOf(failAll(open, 1, ['a'], 1))).toBe(500);
    expect(pauseOf(failAll(open, 100, ['a'], 1))).toBe(500);
    expect(update(open, responded(200)).breaker).toBe('closed');
  });
});

describe('failing types', () => {
  const typesOf = ({ failingTypes = [] }: LaneState): readonly string[] => failingTypes;

  test('are those whose last three attempts failed, until the first success', () => {
    const two = repeat(PROVEN, responded(500), 2, { type: 'bad' });
    expect(typesOf(two)).toEqual([]);
    const three = update(two, responded(422), { type: 'bad' }).state;
    expect(typesOf(three)).toEqual(['bad']);
    expect(typesOf(update(three, responded(200), { type: 'good' }).state)).toEqual(['bad']);
    expect(typesOf(update(three, responded(200), { type: 'bad', tries: 3 }).state)).toEqual([]);
  });

  test('starts to count again after a success of the type, not of another one', () => {
    const two = repeat(PROVEN, responded(500), 2, { type: 'mixed' });
    const reset = update(two, responded(200), { type: 'mixed' }).state;
    expect(typesOf(repeat(reset, responded(500), 2, { type: 'mixed' }))).toEqual([]);
    const other = update(two, responded(200), { type: 'good' }).state;
    expect(typesOf(update(other, responded(500), { type: 'mixed' }).state)).toEqual(['mixed']);
  });

  test('does not count attempts that did not reach the endpoint, or that it asked to make later', () => {
    for (const result of [failed('connect'), responded(429), responded(503, { retryAfter: 1_000 })])
      expect(typesOf(repeat(PROVEN, result, 50, { type: 'bad' }))).toEqual([]);
  });

  test('are at most 64, and so are those on the way there', () => {
    let state = PROVEN;
    for (let at = 0; at < 3_000; at++)
      state = update(state, responded(500), { type: `type-${Math.floor(at / 3)}`, now: NOW + at * 1_000 }).state;
    expect(typesOf(state)).toEqual(Array.from({ length: 64 }, (_, at) => `type-${936 + at}`));
    for (let at = 0; at < 3_000; at++) state = update(state, responded(500), { type: `once-${at}`, now: NOW }).state;
    expect(state.failedTypes).toHaveLength(64);
    expect(JSON.stringify(state).length).toBeLessThan(4_096);
  });

  test('are added at most once per second, as the queue ranks many deliveries again, but at once while attempts are paused', () => {
    const add = (state: LaneState, type: string, now: number) => repeat(state, responded(500), 3, { type, now });
    const first = add(PROVEN, 'a', NOW);
    const second = add(first, 'b', NOW + 500);
    expect(typesOf(second)).toEqual(['a']);
    expect(typesOf(update(second, responded(500), { type: 'b', now: NOW + 1_000 }).state)).toEqual(['a', 'b']);
    const open = repeat(first, responded(503), 5, { type: 'c', now: NOW });
    expect(typesOf(update(open, responded(503), { type: 'c', now: NOW }).state)).toEqual(['a', 'c']);
    // The clock was set back.
    expect(typesOf(add(first, 'b', NOW - 3_600_000))).toEqual(['a', 'b']);
  });

  test.each(['__proto__', 'constructor', 'toString'])('can be called %s', (type) => {
    expect(typesOf(repeat(PROVEN, responded(500), 2, { type }))).toEqual([]);
    expect(typesOf(repeat(PROVEN, responded(500), 3, { type }))).toEqual([type]);
  });

  test('rank behind others, and before retries', () => {
    const state = repeat(PROVEN, responded(500), 3, { type: 'bad' });
    const rank = (type: string, tries: number, isReplay = false): number => toRank({ type, tries, isReplay }, state);
    expect([rank('good', 0), rank('bad', 0), rank('good', 1), rank('good', 0, true), rank('bad', 5)]).toEqual([0, 1, 2, 2, 2]);
  });
});

describe('slowing down', () => {
  test('pauses after the first 429, longer after each further one', () => {
    expect([1, 2, 3].map((times) => pauseOf(repeat(PROVEN, responded(429), times)))).toEqual([1_000, 2_000, 4_000]);
  });

  test.each([502, 503, 504])('does not pause after a single %i', (status) => {
    expect(pauseOf(update(PROVEN, responded(status)).state)).toBe(0);
  });

  test.each([302, 401, 404, 500])('does not pause for Retry-After of %i, which concerns one event', (status) => {
    expect(pauseOf(update(PROVEN, responded(status, { retryAfter: DAY })).state)).toBe(0);
  });

  test('pauses for Retry-After of 429 and 503, at most an hour', () => {
    expect(pauseOf(update(PROVEN, responded(429, { retryAfter: 30_000 })).state)).toBe(30_000);
    expect(pauseOf(update(PROVEN, responded(503, { retryAfter: 30_000 })).state)).toBe(30_000);
    expect(pauseOf(update(PROVEN, responded(503, { retryAfter: DAY })).state)).toBe(3_600_000);
  });

  test('keeps its pause when an older attempt succeeds', () => {
    const paused = update(PROVEN, responded(429, { retryAfter: 30_000 })).state;
    expect(pauseOf(update(paused, responded(200)).state)).toBe(30_000);
  });

  test('does not shorten a pause', () => {
    const paused = update(PROVEN, responded(429, { retryAfter: 30_000 })).state;
    expect(pauseOf(update(paused, responded(429)).state)).toBe(30_000);
  });

  test('ignores a pause that only a wrong clock can have set', () => {
    expect(toPause({ ...PROVEN, pausedUntil: NOW + 1_000 }, NOW)).toBe(NOW + 1_000);
    for (const ahead of [2_000, 300 * DAY]) {
      const paused = { ...PROVEN, pausedUntil: NOW + ahead + 1_000, pausedAt: NOW + ahead };
      expect(toPause(paused, NOW)).toBeUndefined();
      expect(pauseOf(update(paused, responded(429)).state)).toBe(1_000);
    }
    const { state } = update(PROVEN, responded(429, { retryAfter: 30_000 }), { now: NOW + 500 });
    expect([toPause(state, NOW), toPause(state, NOW - 1_000)]).toEqual([NOW + 30_500, undefined]);
  });
});

describe('the streak of failures', () => {
  const streakOf = (state: LaneState, now = NOW) => toFailureStreak(state, ENDPOINT, now);
  const late = failed('timeout', { startedAt: NOW - 7, duration: 5, detail: 'no response in time' });

  test('counts failed attempts since the first, and knows the last one', () => {
    const state = update(repeat(PROVEN, responded(500), 2), late, { now: NOW + 9 }).state;
    const last = { at: NOW - 7, duration: 5, status: undefined, outcome: 'timeout', detail: 'no response in time' };
    expect(streakOf(state)).toEqual({ failures: 3, since: NOW, last, pausedUntil: undefined });
    expect(streakOf(update(state, responded(422)).state)).toMatchObject({ failures: 4, last: { status: 422 } });
  });

  test('has the end of a pause, while it lasts', () => {
    const state = repeat(PROVEN, failed('timeout'), 5);
    expect(streakOf(state)?.pausedUntil).toBe(NOW + 1_000);
    expect(streakOf(state, NOW + 6_000)?.pausedUntil).toBeUndefined();
  });

  test('ends with a success, does not count replays, and starts again when the endpoint is enabled', () => {
    const state = repeat(PROVEN, failed('timeout'), 2);
    expect(streakOf(update(state, responded(200)).state)).toBeUndefined();
    expect(update(state, responded(200)).state.lastFailure).toBeUndefined();
    expect(streakOf(update(PROVEN, failed('timeout'), { isReplay: true }).state)).toBeUndefined();
    expect(toFailureStreak(state, { ...ENDPOINT, enabledAt: NOW }, NOW)).toBeUndefined();
    expect(toFailureStreak(undefined, ENDPOINT, NOW)).toBeUndefined();
  });
});

describe('disabling', () => {
  const failing = (failures: number, days: number): LaneState => ({ ...PROVEN, failures, firstFailureAt: NOW - days * DAY });

  test('needs both five days and twenty attempts without a success', () => {
    expect(update(failing(19, 5), failed('timeout')).disable).toBe('failing');
    expect(update(failing(18, 9), failed('timeout')).disable).toBeUndefined();
    expect(update(failing(900, 4.9), failed('timeout')).disable).toBeUndefined();
  });

  test('counts from now on if the first failure is in the future, as the clock was ahead', () => {
    const { state } = update(failing(19, -365), failed('timeout'));
    expect(state.firstFailureAt).toBe(NOW);
    expect(update(state, failed('timeout'), { now: NOW + 5 * DAY }).disable).toBe('failing');
  });

  test('counts rejected events, as an endpoint that rejects everything for days is misconfigured', () => {
    expect(update(failing(19, 5), responded(404)).disable).toBe('failing');
  });

  test('starts over after any success', () => {
    expect(update(failing(900, 9), responded(204)).state).toMatchObject({ failures: 0, firstFailureAt: undefined });
    expect(update(failing(900, 9), responded(204), { isReplay: true }).state).toMatchObject({ failures: 0 });
  });

  test('does not count replays', () => {
    const ended = update(failing(900, 9), failed('timeout'), { isReplay: true });
    expect(ended.disable).toBeUndefined();
    expect(ended.state.failures).toBe(900);
  });

  test('happens at once after 410', () => {
    expect(update(NEW, responded(410)).disable).toBe('gone');
    expect(update(NEW, responded(410), { isReplay: true }).disable).toBe('gone');
  });

  test('can be switched off, except for 410', () => {
    const delivery = { type: 'invoice.paid', tries: 0, isReplay: false };
    const attempt = { delivery, now: NOW, random: 0.5, gaveWay: false, disable: 'off', maxPause: 60_000 } as const;
    const timeout = { ...attempt, result: failed('timeout'), decision: { kind: 'retry', due: NOW } as const };
    expect(applyAttempt(failing(900, 9), timeout).disable).toBeUndefined();
    const gone = { ...attempt, result: responded(410), decision: { kind: 'dead', reason: 'gone' } as const };
    expect(applyAttempt(failing(900, 9), gone).disable).toBe('gone');
  });
});

describe('any sequence of results', () => {
  test('leaves a state of small whole numbers, with a bounded pause', () => {
    const step = fc.record({
      result: fc.oneof(
        fc.constantFrom(200, 302, 400, 404, 429, 500, 502, 503, 504).map((status) => responded(status)),
        fc
          .constantFrom('timeout', 'dns', 'connect', 'tls', 'reset', 'protocol', 'blocked')
          .map((outcome) => failed(outcome as 'dns')),
        fc.double({ min: 0, max: DAY, noNaN: true }).map((retryAfter) => responded(503, { retryAfter })),
      ),
      type: fc.constantFrom('a', 'b', 'c'),
      tries: fc.nat(2),
      isReplay: fc.boolean(),
      passed: fc.integer({ min: -DAY, max: DAY }),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        let [state, now] = [NEW, NOW];
        for (const { passed, result, ...options } of steps) {
          now += passed;
          state = update(state, result, { ...options, now }).state;
          // NaN and infinite numbers become null.
          expect(JSON.stringify(state)).not.toContain('null');
          expect(Number.isSafeInteger(state.failures) && Number.isSafeInteger(state.streak ?? 0)).toBe(true);
          expect((toPause(state, now) ?? now) - now).toBeLessThanOrEqual(2 * 3_600_000);
          expect(Number.isSafeInteger(state.pausedUntil ?? 0)).toBe(true);
        }
      }),
    );
  });
});

describe('the rate limit', () => {
  /** Takes as many tokens as there are between two times, on one clock or on several that disagree. */
  function spend(rate: number, duration: number, skews: readonly number[]): number[] {
    const taken: number[] = [];
    let state = PROVEN;
    for (let at = 0; at <= duration; ) {
      const skew = skews[taken.length % skews.length] ?? 0;
      const { state: next, wait } = takeToken(state, rate, NOW + at + skew);
      state = next;
      if (wait === undefined) taken.push(at);
      else at += wait;
    }
    return taken;
  }

  function mostInASecond(times: readonly number[]): number {
    let [most, first] = [0, 0];
    for (const [last, at] of times.entries()) {
      while ((times[first] ?? at) <= at - 1_000) first++;
      most = Math.max(most, last - first + 1);
    }
    return most;
  }

  test.each([0.5, 1, 3, 10, 100, 1_000, 5_000])('allows %d attempts a second, and at most a tenth more in any second', (rate) => {
    const times = spend(rate, 4_000, [0]);
    expect(times.length).toBeGreaterThanOrEqual(Math.floor(0.97 * rate * 4));
    expect(mostInASecond(times)).toBeLessThanOrEqual(Math.max(1, Math.ceil(1.1 * rate)) + 1);
  });

  test('allows no flood if the time of the store goes back and forth', () => {
    expect(spend(10, 4_000, [0, 50]).length).toBeLessThanOrEqual(100);
    expect(spend(10, 4_000, [0, -3_600_000]).length).toBeLessThanOrEqual(90);
  });

  test('goes on after the clock was set back', () => {
    const ahead: LaneState = { ...PROVEN, tokens: 0, tokensAt: NOW + 3_600_000 };
    const { state, wait } = takeToken(ahead, 10, NOW);
    expect(wait).toBe(100);
    expect(takeToken(state, 10, NOW + 100).wait).toBeUndefined();
  });

  test('saves up no more than its burst', () => {
    const rested: LaneState = { ...PROVEN, tokens: 0, tokensAt: NOW - DAY };
    expect(takeToken(rested, 100, NOW).state.tokens).toBe(9);
  });
});
