/** Turns the result of an attempt into the settlement of its delivery and the new state of its lane, and reports failures to operational endpoints. */
import { hash } from 'node:crypto';
import { type Clock, type ClockSteps, type Milliseconds, toInstant, toOptionalInstant } from '../../core/clock.ts';
import type { MemoryBudget } from '../../core/throttle.ts';
import { type AttemptOutcome, type AttemptResult, type Decision, decide, type Sender, withJitter } from '../attempt/attempt.ts';
import { type Endpoint, type EndpointRegistry, isSameEndpoint } from '../endpoints/endpoint.ts';
import { isInboxEndpoint, OWN_METADATA, toBody } from '../events/event.ts';
import type { AttemptRecord, Delivery, DeliveryQueue, LaneState, SettledDelivery, Settlement } from '../queue/delivery-queue.ts';
import type { LaneHooks } from '../telemetry/hooks.ts';
import {
  applyAttempt,
  type DisablePolicy,
  type EndedAttempt,
  isBreakerOpen,
  type LaneUpdate,
  MAX_BREAKER_PAUSE_MS,
  toPause,
  toRecord,
} from './lane-state.ts';
import type { SlotLimits, SlotPool } from './slot-pool.ts';

export interface LaneParts {
  readonly clock: Clock;
  readonly queue: Pick<DeliveryQueue, 'append'>;
  readonly registry: EndpointRegistry;
  readonly sender: Sender;
  readonly hooks: LaneHooks;
  readonly settings: SlotLimits & {
    readonly disable: DisablePolicy;
    /** Of deliveries that wait or have young attempts. */
    readonly maxWaitingBytes: number;
    /** How long attempts in flight may take when the queue stops; then they are aborted, and made again later. */
    readonly drainTimeout: Milliseconds;
  };
  readonly steps?: ClockSteps;
  /** 0 to 1; by default random. */
  readonly random?: () => number;
}

/** The same, with what all lanes of the process share. */
export interface LaneContext extends Required<LaneParts> {
  readonly budget: MemoryBudget;
  readonly slots: SlotPool;
  /** Inboxes whose app in this pod accepts no connections, while other replicas may have one that does: they get the lane. */
  readonly away: Set<string>;
}

interface MadeAttempt extends Pick<EndedAttempt, 'result' | 'gaveWay'> {
  readonly endpoint: Endpoint;
  readonly delivery: Delivery;
  readonly abort: AbortController;
  /** By `isAppAway`. */
  readonly isAway: boolean;
}

interface AttemptEnd {
  readonly state: LaneState;
  readonly settled: SettledDelivery;
  /** To be awaited before the delivery is settled: the endpoint is being disabled, or the end of the delivery is being reported. */
  readonly before?: Promise<void> | undefined;
  readonly isDisabling: boolean;
}

/** As after an attempt for which there was no slot. */
const NO_MEMORY_PAUSE_MS: Milliseconds = 2_000;
/** Without a byte sent, these mean that there was no connection to the app. */
const UNSENT_OUTCOMES: ReadonlySet<AttemptOutcome> = new Set(['connect', 'timeout', 'reset']);

export function isUnsentToApp({ id }: Endpoint, { outcome, isSent }: AttemptResult): boolean {
  return isInboxEndpoint(id) && !isSent && UNSENT_OUTCOMES.has(outcome);
}

export function endAttempt(context: LaneContext, state: LaneState, attempt: MadeAttempt): AttemptEnd {
  const { delivery, endpoint, result, gaveWay, isAway, abort } = attempt;
  const { hooks, random, settings } = context;
  const now = context.clock.now();
  const { event, attempt: made } = delivery;
  const settle = (settlement: Settlement, record?: AttemptRecord) => ({ event, attempt: made, at: now, settlement, record });
  const postpone = (kept: LaneState): AttemptEnd => {
    hooks.onAttempt(endpoint, delivery, result, undefined);
    return { state: kept, settled: settle({ kind: 'postponed', due: now }), isDisabling: false };
  };
  // The endpoint may have it. It gets it again, with the same ID.
  if (result.outcome === 'aborted') return postpone(noteAborted(state, abort, { now, random: random() }));
  const current = context.registry.get(endpoint.id) ?? endpoint;
  // The endpoint before says nothing about this one.
  const isOther = !isSameEndpoint(current, endpoint);
  if (isOther && result.outcome !== 'delivered') return postpone(state);
  const decision = decide({ result, tries: delivery.tries, endpoint: current, now, random: random() });
  const maxPause = MAX_BREAKER_PAUSE_MS[isInboxEndpoint(endpoint.id) ? 'app' : 'endpoint'];
  // Five days of failures can be a few seconds of a clock that is ahead.
  const disable = context.steps.isAhead() ? 'off' : settings.disable;
  const update: LaneUpdate = isOther
    ? { state }
    : applyAttempt(state, { delivery, result, gaveWay, decision, now, random: random(), disable, maxPause });
  // No reason for other replicas to pause.
  if (isAway) return postpone({ ...update.state, streak: 0, pausedUntil: state.pausedUntil, pausedAt: state.pausedAt });
  if (update.breaker !== undefined) hooks.onBreaker(endpoint, update.breaker);
  if (isBreakerOpen(update.state)) hooks.onFailing(endpoint, update.state.pausedUntil ?? now);
  // Waits for its app as long as that takes, and is due at once when the app is back. An event that kills the app was sent.
  if (isUnsentToApp(endpoint, result)) return postpone(update.state);
  hooks.onAttempt(endpoint, delivery, result, decision);
  // Most attempts need no further step: then there is no promise to wait for.
  const isOver = decision.kind === 'dead' || update.disable !== undefined;
  return {
    state: update.state,
    settled: settle(decision.kind === 'dead' ? { kind: 'dead' } : decision, toRecord(result)),
    before: isOver ? follow(context, attempt, decision, update) : undefined,
    isDisabling: update.disable !== undefined,
  };
}

/** If the lane did not abort it, this process had no memory for it, and the next ones may have none either. */
function noteAborted(state: LaneState, { signal }: AbortController, { now, random }: Pick<EndedAttempt, 'now' | 'random'>) {
  const pausedUntil = Math.max(toPause(state, now) ?? 0, Math.round(now + withJitter(NO_MEMORY_PAUSE_MS, random)));
  return signal.aborted ? state : { ...state, pausedUntil, pausedAt: now };
}

async function follow(context: LaneContext, attempt: MadeAttempt, decision: Decision, { disable, state }: LaneUpdate) {
  const { hooks, registry, clock } = context;
  const { endpoint, delivery } = attempt;
  if (decision.kind === 'dead') {
    const { event, type, tenant, tries } = delivery;
    const { reason } = decision;
    hooks.onExhausted(endpoint, delivery, reason);
    const facts = { msgId: event, eventType: type, tenant, reason, attempts: tries + 1 };
    // `gone` is reported once for the endpoint, not for each delivery.
    if (reason !== 'gone')
      await append(context, 'message.exhausted', attempt, [[event, String(delivery.attempt), String(delivery.due)], facts]);
  }
  if (disable === undefined || !(await registry.disable(endpoint.id, disable, clock.now(), endpoint))) return;
  hooks.onDisabled(endpoint, disable);
  const { failures, firstFailureAt } = state;
  const facts = { reason: disable, failures, failingSince: toOptionalInstant(firstFailureAt) };
  await append(context, 'endpoint.disabled', attempt, [[String(endpoint.enabledAt)], facts]);
}

/** Reports to the operational endpoints, by an ordinary event in the queue. An operational endpoint is never reported: its reports could fail in turn, without end. */
async function append(
  { queue, registry, clock, hooks }: LaneContext,
  type: 'endpoint.disabled' | 'message.exhausted',
  { endpoint, result }: MadeAttempt,
  [identity, facts]: readonly [identity: readonly string[], facts: Readonly<Record<string, unknown>>],
): Promise<void> {
  // The tenant of the endpoint, not of its event: a tenant must not learn about the endpoints of the operator.
  const { id: endpointId, tenant, url } = endpoint;
  const targets = endpoint.isOperational ? [] : registry.routeOperational(type, tenant);
  if (targets.length === 0) return;
  const createdAt = clock.now();
  // Derived from what happened: if the process dies before the delivery is settled, the repeated attempt does not report it twice.
  const digest = hash('sha256', JSON.stringify([type, endpointId, ...identity]), 'base64url');
  const id = `msg_${digest.slice(0, 22)}`;
  const { startedAt, duration, status: responseStatusCode, isSent } = result;
  const timing = { timestamp: toInstant(startedAt), durationMs: Math.round(duration) };
  // A tenant must learn neither addresses of the operator's network, nor which names exist there.
  const outcome = result.outcome === 'dns' ? 'blocked' : result.outcome;
  const lastAttempt = { ...timing, outcome, responseStatusCode, detail: isSent ? result.detail : 'no request was sent' };
  // The origin only: paths and queries of webhook URLs often contain secrets.
  const data = { endpointId, url: URL.parse(url)?.origin ?? '', ...facts, lastAttempt };
  const body = toBody({ type, id, created: Math.floor(createdAt / 1_000), data });
  try {
    await queue.append([{ id, type, tenant, createdAt, body, metadata: OWN_METADATA, targets }]);
  } catch (error) {
    // The delivery itself must still be settled: a full queue empties only that way.
    hooks.onOperationalEventLost(type, error);
  }
}
