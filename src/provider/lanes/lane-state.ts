/** How an endpoint's results change its lane: concurrency, pauses, breaker, disabling and rate limit. Pure functions. */
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { type AttemptResult, type Decision, withJitter } from '../attempt/attempt.ts';
import { type DisabledReason, type Endpoint, toIdentity } from '../endpoints/endpoint.ts';
import type { AttemptRecord, Delivery, LaneState, TakeOnly } from '../queue/delivery-queue.ts';

/** When an endpoint with nothing but failures is disabled. */
export type DisablePolicy = 'off' | { readonly after: Milliseconds; readonly attempts: number };

/**
 * `proven`: may have its full concurrency. `away`: it had a success, and the breaker is open. `unproven`: never had a success; one attempt at a
 * time. `failing`: neither, and the last response, or none, said that it is unreachable or asks for less.
 */
export type Health = 'proven' | 'away' | 'unproven' | 'failing';

/** So many signs in a row that the endpoint is unreachable, or asks for less, open the breaker. */
export const BREAKER_THRESHOLD = 5;
/** The first pause of the breaker, and the first after 429 or `Retry-After`. */
const FIRST_PAUSE_MS = 1_000;
/** Each further pause of the breaker is so much longer: an endpoint that is back waits for about a fifth of the time that it was away. */
const BREAKER_GROWTH = 1.25;
/** An endpoint that asks for less gets less soon. */
const SLOW_DOWN_GROWTH = 2;
/** The longest pause without `Retry-After`. `app`: of the inbox, which is in the same pod, so that its backlog starts within 2 s after it is back. */
export const MAX_BREAKER_PAUSE_MS = { endpoint: 60_000, app: 1_000 } as const;
/** `Retry-After` pauses the whole endpoint by at most this; the delivery itself waits as long as the schedule allows. */
const MAX_RETRY_AFTER_PAUSE_MS = 3_600_000;
/** The endpoint, a proxy before it, or the handler of this event is overloaded or away. */
const UNCLEAR_STATUSES: ReadonlySet<number> = new Set([502, 503, 504]);
/** If so many first attempts failed in a row, with events of several types or since the endpoint exists, almost everything fails. */
const ALL_FAILING_THRESHOLD = 20;
/** After a failed retry while almost everything fails. First attempts wait for it, too, so it is short. */
const RETRY_PAUSE_MS = 500;
/** A type with so many failures in a row is failing. */
const FAILING_TYPE_THRESHOLD = 3;
const MAX_LISTED_TYPES = 64;
/** For so long after an attempt timed out, others may do the same. */
const HANGING_MS = 120_000;
/** An endpoint that responded so recently is not away: what times out is the event. */
const RECENT_SUCCESS_MS = 15_000;
/** A success that took less says that an attempt which takes longer probably hangs. */
const QUICK_SUCCESS_MS = 1_000;
/** The part of the attempts for retries while events hang: they cannot give way. */
const HANGING_SHARE = 0.25;
/** For each type that is added, the queue may have to rank many deliveries again. */
const MIN_ADDING_GAP_MS = 1_000;
/** The bucket holds the attempts of so many seconds, at least one. */
const BURST_SECONDS = 0.1;
/** A clock that was set back by less has soon caught up. */
const MAX_STEP_BACK_MS = 1_000;

/** The stored state, or a new one if the endpoint was enabled since, or has another URL or tenant. */
export function toCurrentState(stored: LaneState | undefined, endpoint: Endpoint): LaneState {
  const { enabledAt } = endpoint;
  const identity = toIdentity(endpoint);
  if (stored !== undefined && stored.since >= enabledAt && (stored.identity ?? identity) === identity)
    // The same object in most steps of a run: an engine does not store it again.
    return stored.absence === undefined && stored.identity !== undefined ? stored : { ...stored, absence: undefined, identity };
  return { failures: 0, isProven: false, since: enabledAt, identity };
}

export function toHealth(state: LaneState): Health {
  if (state.isProven) return isUnreachable(state) ? 'away' : 'proven';
  return (state.streak ?? 0) > 0 ? 'failing' : 'unproven';
}

/** Whether the endpoint is unreachable, or asks for less: single attempts are made, after pauses. */
function isUnreachable({ streak = 0 }: LaneState): boolean {
  return streak >= BREAKER_THRESHOLD;
}

/** Whether the endpoint responds, but with failures to almost everything: retries are made slowly, first attempts as ever. */
function isAllFailing({ failedFirsts = 0, isProven, failedTypes = [], failingTypes = [] }: LaneState): boolean {
  return failedFirsts >= ALL_FAILING_THRESHOLD && (!isProven || failedTypes.length + failingTypes.length > 1);
}

export function isBreakerOpen(state: LaneState): boolean {
  return isUnreachable(state) || isAllFailing(state);
}

/** Attempts that may be in flight at once. A failing event changes nothing: it must not hold up others. */
export function toConcurrency(state: LaneState, endpoint: Endpoint): number {
  return isUnreachable(state) || !state.isProven ? 1 : endpoint.concurrency;
}

/** Whether attempts may use their whole `timeout`, because one did of late. */
function isHanging({ timedOutAt }: LaneState, now: EpochMilliseconds): boolean {
  return timedOutAt !== undefined && Math.abs(now - timedOutAt) < HANGING_MS;
}

export interface Limits {
  readonly concurrency: number;
  /** Of these, for retries, and for failing types unless events hang: an event that comes meanwhile must not wait for them. */
  readonly suspects: number;
  /** What to take while these are in use. */
  readonly others: TakeOnly;
  /** Events hang: so many, if the next one is for a new event. A probe of the endpoint must not hold that up. */
  readonly fresh?: number | undefined;
}

export function toLimits(state: LaneState, endpoint: Endpoint, now: EpochMilliseconds): Limits {
  const concurrency = toConcurrency(state, endpoint);
  if (!isHanging(state, now)) return { concurrency, suspects: Math.max(1, concurrency - 1), others: 'first' };
  const fresh = state.isProven ? Math.max(concurrency, Math.min(2, endpoint.concurrency)) : concurrency;
  return { concurrency, suspects: Math.max(1, Math.floor(HANGING_SHARE * concurrency)), others: 'untried', fresh };
}

/** Whether a first attempt may be ended early for an event that was not tried yet: it is retried with the whole `timeout`. */
export function mayGiveWay({ isProven }: LaneState, { schedule }: Endpoint): boolean {
  return isProven && schedule.length > 0;
}

/** The part of a delivery that decides when it has its turn. */
type RankedDelivery = Pick<Delivery, 'type' | 'tries' | 'isReplay'>;

/** 0: first attempts. 1: first attempts of failing types. 2: retries and replays. Deliveries with a higher rank are made way for. */
export function toRank({ type, tries, isReplay }: RankedDelivery, { failingTypes }: LaneState): 0 | 1 | 2 {
  if (tries > 0 || isReplay) return 2;
  return failingTypes?.includes(type) === true ? 1 : 0;
}

/** When the next attempt may start; undefined: now. A pause that was set by a clock which was ahead ends now. */
export function toPause(
  { pausedUntil = 0, pausedAt = pausedUntil - MAX_RETRY_AFTER_PAUSE_MS }: LaneState,
  now: EpochMilliseconds,
): EpochMilliseconds | undefined {
  return pausedUntil > now && pausedAt <= now + MAX_STEP_BACK_MS ? pausedUntil : undefined;
}

export interface EndedAttempt {
  readonly delivery: RankedDelivery;
  readonly result: AttemptResult;
  /** It was ended early for another event. */
  readonly gaveWay: boolean;
  readonly decision: Decision;
  readonly now: EpochMilliseconds;
  /** 0 to 1, for the jitter of pauses. */
  readonly random: number;
  readonly disable: DisablePolicy;
  /** Of `MAX_BREAKER_PAUSE_MS`. */
  readonly maxPause: Milliseconds;
}

export interface LaneUpdate {
  readonly state: LaneState;
  readonly breaker?: 'open' | 'closed' | undefined;
  readonly disable?: DisabledReason | undefined;
}

export function applyAttempt(state: LaneState, attempt: EndedAttempt): LaneUpdate {
  const isDelivered = attempt.decision.kind === 'delivered';
  const update = isDelivered ? { state: countSuccess(state, attempt) } : applyFailure(state, attempt);
  const isOpen = isBreakerOpen(update.state);
  return isOpen === isBreakerOpen(state) ? update : { ...update, breaker: isOpen ? 'open' : 'closed' };
}

function countSuccess(state: LaneState, { delivery: { type }, result, now }: EndedAttempt): LaneState {
  const { failures, streak = 0, failedFirsts = 0, isProven, failedTypes = [], failingTypes = [] } = state;
  const isListed = failingTypes.includes(type) || failedTypes.some(([each]) => each === type);
  const hanging = noteSuccess(state, result, now);
  // The same object, so that an engine need not store it again.
  if (hanging === undefined && isProven && failures + streak + failedFirsts === 0 && !isListed) return state;
  // The pause stays: a success of an attempt that began before a 429 must not end what the 429 asked for.
  return {
    ...state,
    ...hanging,
    failures: 0,
    firstFailureAt: undefined,
    lastFailure: undefined,
    streak: 0,
    failedFirsts: 0,
    isProven: true,
    failedTypes: failedTypes.filter(([each]) => each !== type),
    failingTypes: isListed ? failingTypes.filter((each) => each !== type) : failingTypes,
  };
}

/** The change, if there is one. */
function noteSuccess(state: LaneState, { duration }: AttemptResult, now: EpochMilliseconds): Partial<LaneState> | undefined {
  const hangs = isHanging(state, now);
  // In seconds, so that it seldom changes.
  const slow = duration < QUICK_SUCCESS_MS ? 0 : Math.ceil(duration / 1_000) * 1_000;
  const slowMs = Math.max(slow, hangs ? (state.slowMs ?? 0) : 0) || undefined;
  const timedOutAt = hangs ? state.timedOutAt : undefined;
  const succeededAt = hangs ? Math.floor(now / 1_000) * 1_000 : undefined;
  const isSame = slowMs === state.slowMs && timedOutAt === state.timedOutAt && succeededAt === state.succeededAt;
  return isSame ? undefined : { slowMs, timedOutAt, succeededAt };
}

function applyFailure(state: LaneState, attempt: EndedAttempt): LaneUpdate {
  const { delivery, result, decision } = attempt;
  const counted = delivery.isReplay ? state : countFailure(state, attempt);
  const reason = decision.kind === 'dead' ? decision.reason : undefined;
  if (reason === 'gone') return { state: counted, disable: 'gone' };
  const disable = delivery.isReplay ? undefined : findDisabling(counted, attempt);
  const sign = reason === 'rejected' || isOfEvent(state, attempt) ? 'event' : toSign(result);
  const streak = toStreak(state, sign, toRank(delivery, state));
  const isTimeout = result.outcome === 'timeout' && result.isSent && !attempt.gaveWay;
  const failed = { ...countEventFailure(counted, sign, attempt), streak, ...(isTimeout && { timedOutAt: attempt.now }) };
  const pausedUntil = extendPause(failed, attempt);
  const pausedAt = pausedUntil === undefined ? undefined : attempt.now;
  return { state: { ...failed, pausedUntil, pausedAt }, disable };
}

/**
 * The meaning of a failure. `endpoint`: it is unreachable or asks for less, which cannot depend on the event. `event`: it responded, so only
 * this event, or its type, fails. `unclear`: either of them.
 */
type Sign = 'endpoint' | 'event' | 'unclear';

/** It timed out, but the endpoint responded meanwhile. */
function isOfEvent({ succeededAt }: LaneState, { result: { outcome, isSent, duration }, now }: EndedAttempt): boolean {
  if (outcome !== 'timeout' || !isSent || succeededAt === undefined) return false;
  return Math.abs(now - succeededAt) <= Math.max(RECENT_SUCCESS_MS, duration);
}

function toSign(result: AttemptResult): Sign {
  const { outcome, status = 0, isSent } = result;
  // An event that cannot be sent at all is damaged.
  if (!isSent) return outcome === 'protocol' ? 'event' : 'endpoint';
  if (outcome === 'tls' || toAskedPause(result) !== undefined) return 'endpoint';
  return outcome === 'timeout' || UNCLEAR_STATUSES.has(status) ? 'unclear' : 'event';
}

/** How long the endpoint asks for less, 0 if it does not say. With another status, `Retry-After` is about the one event (RFC 9110 §10.2.3). */
function toAskedPause({ outcome, status, retryAfter = 0 }: AttemptResult): Milliseconds | undefined {
  return outcome === 'throttled' || (status === 503 && retryAfter > 0) ? retryAfter : undefined;
}

/** Retries and failing types open the breaker, but do not make its pauses longer: an endpoint that only they cannot reach works for others. */
function toStreak({ streak = 0 }: LaneState, sign: Sign, rank: number): number {
  if (sign === 'event') return 0;
  return sign === 'unclear' && rank > 0 ? Math.max(streak, Math.min(streak + 1, BREAKER_THRESHOLD)) : streak + 1;
}

/** Says nothing about events if the endpoint is away. */
function countEventFailure(state: LaneState, sign: Sign, { delivery, now }: EndedAttempt): LaneState {
  if (sign === 'endpoint') return state;
  const { failedFirsts = 0, failedTypes = [], failingTypes = [], failingTypeAt = 0 } = state;
  const isFirst = delivery.tries === 0 && !delivery.isReplay;
  const counted = isFirst ? { ...state, failedFirsts: Math.min(failedFirsts + 1, ALL_FAILING_THRESHOLD) } : state;
  const { type } = delivery;
  if (failingTypes.includes(type)) return counted;
  const failures = (failedTypes.find(([each]) => each === type)?.[1] ?? 0) + 1;
  const others = failedTypes.filter(([each]) => each !== type);
  const mayAdd = isUnreachable(state) || Math.abs(now - failingTypeAt) >= MIN_ADDING_GAP_MS;
  return failures >= FAILING_TYPE_THRESHOLD && mayAdd
    ? { ...counted, failedTypes: others, failingTypes: [...failingTypes, type].slice(-MAX_LISTED_TYPES), failingTypeAt: now }
    : { ...counted, failedTypes: [...others, [type, failures] as const].slice(-MAX_LISTED_TYPES) };
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

export function toRecord({ startedAt, duration, status, outcome, detail }: AttemptResult): AttemptRecord {
  return { at: startedAt, duration, status, outcome, detail };
}

/**
 * Failed attempts in a row, since the first of them. Undefined if the last attempt succeeded, or the endpoint was enabled since. `last`: undefined if an
 * older version counted it; `pausedUntil`: the next attempt may start now.
 */
export function toFailureStreak(stored: LaneState | undefined, endpoint: Endpoint, now: EpochMilliseconds) {
  const state = toCurrentState(stored, endpoint);
  const { failures, firstFailureAt: since, lastFailure: last } = state;
  return failures === 0 || since === undefined ? undefined : { failures, since, last, pausedUntil: toPause(state, now) };
}

function findDisabling({ failures, firstFailureAt }: LaneState, { disable, now }: EndedAttempt): DisabledReason | undefined {
  if (disable === 'off' || firstFailureAt === undefined || failures < disable.attempts) return undefined;
  return now - firstFailureAt >= disable.after ? 'failing' : undefined;
}

function extendPause(state: LaneState & { readonly streak: number }, attempt: EndedAttempt): EpochMilliseconds | undefined {
  const { result, now, random, maxPause } = attempt;
  const asked = Math.min(toAskedPause(result) ?? 0, MAX_RETRY_AFTER_PAUSE_MS);
  const pause = Math.max(withJitter(Math.min(findPause(state, attempt), maxPause), random), asked);
  const until = Math.max(toPause(state, now) ?? 0, Math.round(now + pause));
  return until > now ? until : undefined;
}

function findPause(state: LaneState & { readonly streak: number }, { delivery, result }: EndedAttempt): Milliseconds {
  const { streak } = state;
  if (toAskedPause(result) !== undefined) return backOff(SLOW_DOWN_GROWTH, streak - 1);
  if (isUnreachable(state)) return backOff(BREAKER_GROWTH, streak - BREAKER_THRESHOLD);
  return isAllFailing(state) && toRank(delivery, state) === 2 ? RETRY_PAUSE_MS : 0;
}

function backOff(growth: number, steps: number): Milliseconds {
  return FIRST_PAUSE_MS * growth ** Math.min(steps, 30);
}

/**
 * Takes one token of the endpoint's rate limit. Any second sees at most `rate` attempts plus a tenth, and at least one. The tokens are in the
 * state of the lane, which has one holder at a time: so the limit holds over all replicas. `now`: the time of the store. With the clocks of
 * two replicas, each change from the one behind to the one ahead would fill the bucket. `wait`: there is no token yet.
 */
export function takeToken(state: LaneState, rate: number, now: EpochMilliseconds) {
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
