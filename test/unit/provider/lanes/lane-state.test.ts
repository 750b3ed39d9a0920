import { describe, expect, test } from 'vitest';
import type { AttemptResult } from '../../../../src/provider/attempt/attempt.ts';
import {
  applyAttempt,
  takeToken,
  toConcurrency,
  toCurrentState,
  toFailureStreak,
  toPause,
} from '../../../../src/provider/lanes/lane-state.ts';
import type { LaneState } from '../../../../src/provider/queue/delivery-queue.ts';
import { decide } from '../../../../src/provider/schedule/decide.ts';
import { fc } from '../../../support/property.ts';
import { anEndpoint, failed, responded } from '../../../support/provider/endpoint.ts';

const NOW = 1_800_000_000_000;
const DAY = 24 * 3_600_000;
const ENDPOINT = anEndpoint('acme');
const NEW = toCurrentState(undefined, ENDPOINT);
const PROVEN: LaneState = { ...NEW, isProven: true };

interface Options {
  readonly isReplay?: boolean;
  readonly now?: number;
}

function update(state: LaneState, result: AttemptResult, { isReplay = false, now = NOW }: Options = {}) {
  const decision = decide({ result, tries: 0, endpoint: ENDPOINT, now, random: 0.5 });
  return applyAttempt(state, { result, decision, isReplay, now, random: 0.5, disable: { after: 5 * DAY, attempts: 20 } });
}

/** The state after so many equal results, one after the other. */
function repeat(state: LaneState, result: AttemptResult, times: number, options?: Options): LaneState {
  return times === 0 ? state : repeat(update(state, result, options).state, result, times - 1, options);
}

const pauseOf = (state: LaneState): number => (state.pausedUntil ?? NOW) - NOW;

describe('concurrency', () => {
  test('starts at one, is full after a success, and back to one after a failure', () => {
    expect(toConcurrency(NEW, ENDPOINT)).toBe(1);
    const proven = update(NEW, responded(200)).state;
    expect(toConcurrency(proven, ENDPOINT)).toBe(4);
    const failing = update(proven, responded(500)).state;
    expect(toConcurrency(failing, ENDPOINT)).toBe(1);
    expect(toConcurrency(update(failing, responded(200)).state, ENDPOINT)).toBe(4);
  });

  test('stays full if the endpoint rejects an event, as that says nothing about its health', () => {
    expect(toConcurrency(repeat(PROVEN, responded(422), 50), ENDPOINT)).toBe(4);
  });

  test('is one after a failed replay', () => {
    expect(toConcurrency(update(PROVEN, failed('timeout'), { isReplay: true }).state, ENDPOINT)).toBe(1);
  });

  test('starts again at one when the endpoint was enabled again', () => {
    const failing = repeat(PROVEN, failed('timeout'), 30);
    expect(toCurrentState(failing, ENDPOINT)).toBe(failing);
    expect(toCurrentState(failing, { ...ENDPOINT, enabledAt: NOW })).toEqual({ failures: 0, isProven: false, since: NOW });
  });
});

test('leaves the state of a healthy endpoint as it is, so that it need not be stored again', () => {
  expect(update(PROVEN, responded(200)).state).toBe(PROVEN);
});

describe('the breaker', () => {
  test('opens at the fifth failure in a row, closes at the first success', () => {
    const four = repeat(PROVEN, failed('timeout'), 4);
    expect(four.pausedUntil).toBeUndefined();
    const fifth = update(four, failed('timeout'));
    expect(fifth.breaker).toBe('open');
    expect(pauseOf(fifth.state)).toBe(5_000);
    expect(update(fifth.state, failed('timeout')).breaker).toBeUndefined();
    expect(update(fifth.state, responded(200)).breaker).toBe('closed');
    expect(update(four, responded(200)).breaker).toBeUndefined();
  });

  test('opens for replays, too, which do not count towards disabling', () => {
    const state = repeat(PROVEN, failed('timeout'), 5, { isReplay: true });
    expect(pauseOf(state)).toBe(5_000);
    expect(state.failures).toBe(0);
  });

  test('pauses twice as long after each further failure, up to five minutes', () => {
    expect([6, 7, 8, 20, 2_000].map((times) => pauseOf(repeat(PROVEN, failed('timeout'), times)))).toEqual([
      10_000, 20_000, 40_000, 300_000, 300_000,
    ]);
  });

  test('does not open for rejected events', () => {
    expect(repeat(PROVEN, responded(400), 30).pausedUntil).toBeUndefined();
  });
});

describe('slowing down', () => {
  test.each([429, 502, 504])('pauses after the first %i, longer after each further one', (status) => {
    expect([1, 2, 3].map((times) => pauseOf(repeat(PROVEN, responded(status), times)))).toEqual([1_000, 2_000, 4_000]);
  });

  test('pauses for Retry-After of any failure, at most an hour', () => {
    expect(pauseOf(update(PROVEN, responded(503, { retryAfter: 30_000 })).state)).toBe(30_000);
    expect(pauseOf(update(PROVEN, responded(503, { retryAfter: DAY })).state)).toBe(3_600_000);
  });

  test('keeps its pause when an older attempt succeeds', () => {
    const paused = update(PROVEN, responded(429, { retryAfter: 30_000 })).state;
    expect(pauseOf(update(paused, responded(200)).state)).toBe(30_000);
  });

  test('does not shorten a pause', () => {
    const paused = update(PROVEN, responded(429, { retryAfter: 30_000 })).state;
    expect(pauseOf(update(paused, responded(502)).state)).toBe(30_000);
  });

  test('ignores a pause that only a wrong clock can have set', () => {
    expect(toPause({ ...PROVEN, pausedUntil: NOW + 1_000 }, NOW)).toBe(NOW + 1_000);
    expect(toPause({ ...PROVEN, pausedUntil: NOW + 300 * DAY }, NOW)).toBeUndefined();
    expect(pauseOf(update({ ...PROVEN, pausedUntil: NOW + 300 * DAY }, responded(502)).state)).toBe(1_000);
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
    expect(streakOf(state)?.pausedUntil).toBe(NOW + 5_000);
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
    const attempt = { isReplay: false, now: NOW, random: 0.5, disable: 'off' } as const;
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
      isReplay: fc.boolean(),
      passed: fc.integer({ min: -DAY, max: DAY }),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        let [state, now] = [NEW, NOW];
        for (const { result, isReplay, passed } of steps) {
          now += passed;
          state = update(state, result, { isReplay, now }).state;
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
