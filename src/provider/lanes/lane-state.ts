/** How an endpoint's results change its lane: concurrency, pauses, breaker, disabling and rate limit. Pure functions. */
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import type { AttemptResult } from '../attempt/attempt.ts';
import type { DisabledReason, Endpoint } from '../endpoints/endpoint.ts';
import { type AttemptRecord, type LaneState, MAX_LANE_PAUSE_MS } from '../queue/delivery-queue.ts';
import { withJitter } from '../schedule/decide.ts';
import type { Decision } from '../schedule/schedule.ts';

/** When an endpoint with nothing but failures is disabled. */
export type DisablePolicy = 'off' | { readonly after: Milliseconds; readonly attempts: number };

/**
 * `proven`: may have its full concurrency. `unproven`: never had a success. `failing`: its last attempt failed. The last two have one attempt
 * at a time.
 */
export type Health = 'proven' | 'unproven' | 'failing';

/** So many failures in a row open the breaker. */
export const BREAKER_THRESHOLD = 5;
const BREAKER_PAUSE_MS = 5_000;
/** After a response that asks for less: 429, 502, 504, or any with `Retry-After`. */
const SLOW_DOWN_PAUSE_MS = 1_000;
/** Pauses double with each further failure, up to this. */
const MAX_BACKOFF_MS = 5 * 60_000;
/** `Retry-After` pauses the whole endpoint by at most this; the delivery itself waits as long as the schedule allows. */
const MAX_PAUSE_MS = 3_600_000;
const SLOWING_STATUSES: ReadonlySet<number> = new Set([429, 502, 504]);
/** The bucket holds the attempts of so many seconds, at least one. */
const BURST_SECONDS = 0.1;
/** A clock that was set back by less has soon caught up. */
const MAX_STEP_BACK_MS = 1_000;

/** The stored state, or a new one if the endpoint was enabled since. */
export function toCurrentState(stored: LaneState | undefined, { enabledAt }: Endpoint): LaneState {
  if (stored !== undefined && stored.since >= enabledAt)
    // The same object in most steps of a run: an engine does not store it again.
    return stored.absence === undefined ? stored : { ...stored, absence: undefined };
  return { failures: 0, isProven: false, since: enabledAt };
}

export function toHealth({ streak = 0, isProven }: LaneState): Health {
  if (streak > 0) return 'failing';
  return isProven ? 'proven' : 'unproven';
}

/** Whether the last attempts failed in a row, so that only single attempts are made, after pauses. */
export function isBreakerOpen({ streak = 0 }: LaneState): boolean {
  return streak >= BREAKER_THRESHOLD;
}

/** Attempts that may be in flight at once. */
export function toConcurrency(state: LaneState, endpoint: Endpoint): number {
  return toHealth(state) === 'proven' ? endpoint.concurrency : 1;
}

/** When the next attempt may start; undefined: now. A pause longer than any that is ever set is of a clock that was wrong, and ends now. */
export function toPause({ pausedUntil = 0 }: LaneState, now: EpochMilliseconds): EpochMilliseconds | undefined {
  return pausedUntil > now && pausedUntil <= now + MAX_LANE_PAUSE_MS ? pausedUntil : undefined;
}

/** An attempt that ended, and what decides what it means. */
export interface EndedAttempt {
  readonly result: AttemptResult;
  readonly decision: Decision;
  readonly isReplay: boolean;
  readonly now: EpochMilliseconds;
  /** 0 to 1, for the jitter of pauses. */
  readonly random: number;
  readonly disable: DisablePolicy;
}

/** The consequences of an attempt for its endpoint. */
export interface LaneUpdate {
  readonly state: LaneState;
  readonly breaker?: 'open' | 'closed' | undefined;
  readonly disable?: DisabledReason | undefined;
}

/** The state after an attempt. */
export function applyAttempt(state: LaneState, attempt: EndedAttempt): LaneUpdate {
  const { streak = 0 } = state;
  if (attempt.decision.kind === 'delivered') {
    // The same object, so that an engine need not store it again.
    if (state.isProven && state.failures === 0 && streak === 0) return { state };
    // The pause stays: a success of an attempt that began before a 429 must not end what the 429 asked for.
    const proven = { ...state, failures: 0, firstFailureAt: undefined, lastFailure: undefined, streak: 0, isProven: true };
    return { state: proven, breaker: streak >= BREAKER_THRESHOLD ? 'closed' : undefined };
  }
  const counted = attempt.isReplay ? state : countFailure(state, attempt);
  if (isReason(attempt.decision, 'gone')) return { state: counted, disable: 'gone' };
  const disable = attempt.isReplay ? undefined : findDisabling(counted, attempt);
  if (isReason(attempt.decision, 'rejected')) return { state: counted, disable };
  const failed = { ...counted, streak: streak + 1 };
  return {
    state: { ...failed, pausedUntil: extendPause(failed, attempt) },
    breaker: failed.streak === BREAKER_THRESHOLD ? 'open' : undefined,
    disable,
  };
}

function isReason(decision: Decision, reason: 'gone' | 'rejected'): boolean {
  return decision.kind === 'dead' && decision.reason === reason;
}

function countFailure(state: LaneState, { result, now }: EndedAttempt): LaneState {
  return {
    ...state,
    failures: state.failures + 1,
    // Never in the future: a clock that was ahead would keep a dead endpoint enabled until then.
    firstFailureAt: Math.min(state.firstFailureAt ?? now, now),
    lastFailure: toRecord(result),
  };
}

/** The part of a result that is stored. */
export function toRecord({ startedAt, duration, status, outcome, detail }: AttemptResult): AttemptRecord {
  return { at: startedAt, duration, status, outcome, detail };
}

/** Failed attempts in a row. */
export interface FailureStreak {
  readonly failures: number;
  /** The first of them. */
  readonly since: EpochMilliseconds;
  /** Undefined if an older version counted it. */
  readonly last: AttemptRecord | undefined;
  /** When the next attempt may start; undefined: now. */
  readonly pausedUntil: EpochMilliseconds | undefined;
}

/** Undefined if the last attempt succeeded, or the endpoint was enabled since. */
export function toFailureStreak(
  stored: LaneState | undefined,
  endpoint: Endpoint,
  now: EpochMilliseconds,
): FailureStreak | undefined {
  const state = toCurrentState(stored, endpoint);
  const { failures, firstFailureAt, lastFailure } = state;
  if (failures === 0 || firstFailureAt === undefined) return undefined;
  return { failures, since: firstFailureAt, last: lastFailure, pausedUntil: toPause(state, now) };
}

function findDisabling({ failures, firstFailureAt }: LaneState, { disable, now }: EndedAttempt): DisabledReason | undefined {
  if (disable === 'off' || firstFailureAt === undefined || failures < disable.attempts) return undefined;
  return now - firstFailureAt >= disable.after ? 'failing' : undefined;
}

function extendPause(
  state: LaneState & { readonly streak: number },
  { result, now, random }: EndedAttempt,
): EpochMilliseconds | undefined {
  const { streak } = state;
  const { status = 0, retryAfter = 0 } = result;
  const isSlowing = retryAfter > 0 || SLOWING_STATUSES.has(status);
  const slowDown = isSlowing ? backOff(SLOW_DOWN_PAUSE_MS, streak - 1) : 0;
  const breaker = streak >= BREAKER_THRESHOLD ? backOff(BREAKER_PAUSE_MS, streak - BREAKER_THRESHOLD) : 0;
  const pause = Math.max(withJitter(Math.max(slowDown, breaker), random), Math.min(retryAfter, MAX_PAUSE_MS));
  const until = Math.max(toPause(state, now) ?? 0, Math.round(now + pause));
  return until > now ? until : undefined;
}

function backOff(first: Milliseconds, doublings: number): Milliseconds {
  return Math.min(MAX_BACKOFF_MS, first * 2 ** Math.min(doublings, 30));
}

/** The state after a token was taken; or without one, with the time until there will be one. */
export interface TokenResult {
  readonly state: LaneState;
  readonly wait?: Milliseconds | undefined;
}

/**
 * Takes one token of the endpoint's rate limit. Any second sees at most `rate` attempts plus a tenth, and at least one. The tokens are in the
 * state of the lane, which has one holder at a time: so the limit holds over all replicas. `now`: the time of the store. With the clocks of
 * two replicas, each change from the one behind to the one ahead would fill the bucket.
 */
export function takeToken(state: LaneState, rate: number, now: EpochMilliseconds): TokenResult {
  const burst = Math.max(1, rate * BURST_SECONDS);
  // The store may have failed over to a machine whose clock is behind.
  const elapsed = Math.max(0, now - (state.tokensAt ?? now));
  const tokens = Math.min(burst, (state.tokens ?? burst) + (elapsed / 1_000) * rate);
  if (tokens >= 1) return { state: { ...state, tokens: tokens - 1, tokensAt: now } };
  return { state: { ...state, tokens, tokensAt: now }, wait: Math.ceil(((1 - tokens) / rate) * 1_000) };
}

/** Whether the clock of the store was set back between two counts of tokens. Unless the new one is stored, no token comes until it has caught up. */
export function isSetBack({ tokensAt: before = 0 }: LaneState, { tokensAt: after = 0 }: LaneState): boolean {
  return before - after > MAX_STEP_BACK_MS;
}
