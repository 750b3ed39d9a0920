/** Turns the result of an attempt into the settlement of its delivery and the new state of its lane. */
import type { Clock, EpochMilliseconds } from '../../core/clock.ts';
import type { AttemptOutcome, AttemptResult } from '../attempt/attempt.ts';
import type { Decision } from '../attempt/decide.ts';
import { decide } from '../attempt/decide.ts';
import type { Endpoint } from '../endpoints/endpoint.ts';
import type { EndpointRegistry } from '../endpoints/registry.ts';
import { isInboxEndpoint } from '../events/inbox-request.ts';
import type { AttemptRecord, Delivery, LaneState, SettledDelivery, Settlement } from '../queue/delivery-queue.ts';
import type { LaneHooks } from '../telemetry/hooks.ts';
import {
  applyAttempt,
  type DisablePolicy,
  isBreakerOpen,
  type LaneUpdate,
  MAX_BREAKER_PAUSE_MS,
  toRecord,
} from './lane-state.ts';
import type { OperationalEvents } from './operational-events.ts';

/** Without a byte sent, these mean that there was no connection to the app. */
const UNSENT_OUTCOMES: ReadonlySet<AttemptOutcome> = new Set(['connect', 'timeout', 'reset']);

export interface EndingParts {
  readonly clock: Clock;
  /** 0 to 1. */
  readonly random: () => number;
  readonly registry: Pick<EndpointRegistry, 'disable'>;
  readonly operational: OperationalEvents;
  readonly hooks: LaneHooks;
  readonly disable: DisablePolicy;
}

/** An attempt that was made. */
export interface MadeAttempt {
  readonly endpoint: Endpoint;
  readonly delivery: Delivery;
  readonly result: AttemptResult;
}

/** The consequences of an attempt. */
export interface AttemptEnd {
  readonly state: LaneState;
  readonly settled: SettledDelivery;
  /** To be awaited before the delivery is settled: the endpoint is being disabled, or the end of the delivery is being reported. */
  readonly before?: Promise<void> | undefined;
  readonly isDisabling: boolean;
}

export function endAttempt(parts: EndingParts, state: LaneState, attempt: MadeAttempt): AttemptEnd {
  const { delivery, endpoint, result } = attempt;
  const now = parts.clock.now();
  const settle = (settlement: Settlement, record?: AttemptRecord): SettledDelivery => ({
    event: delivery.event,
    attempt: delivery.attempt,
    at: now,
    settlement,
    record,
  });
  const postpone = (kept: LaneState): AttemptEnd => {
    parts.hooks.onAttempt(endpoint, delivery, result, undefined);
    return { state: kept, settled: settle({ kind: 'postponed', due: now }), isDisabling: false };
  };
  // The endpoint may have it. It gets it again, with the same ID.
  if (result.outcome === 'aborted') return postpone(state);
  const isApp = isInboxEndpoint(endpoint.id);
  const decision = decide({ result, tries: delivery.tries, endpoint, now, random: parts.random() });
  const maxPause = MAX_BREAKER_PAUSE_MS[isApp ? 'app' : 'endpoint'];
  const update = applyAttempt(state, {
    delivery,
    result,
    decision,
    now,
    random: parts.random(),
    disable: parts.disable,
    maxPause,
  });
  reportBreaker(parts, endpoint, update, now);
  // Waits for its app as long as that takes, and is due at once when the app is back. An event that kills the app was sent.
  if (isApp && UNSENT_OUTCOMES.has(result.outcome) && !result.isSent) return postpone(update.state);
  parts.hooks.onAttempt(endpoint, delivery, result, decision);
  return {
    state: update.state,
    settled: settle(toSettlement(decision), toRecord(result)),
    before: follow(parts, attempt, decision, update),
    isDisabling: update.disable !== undefined,
  };
}

function reportBreaker({ hooks }: EndingParts, endpoint: Endpoint, { breaker, state }: LaneUpdate, now: EpochMilliseconds): void {
  if (breaker !== undefined) hooks.onBreaker(endpoint, breaker);
  if (isBreakerOpen(state)) hooks.onFailing(endpoint, state.pausedUntil ?? now);
}

function toSettlement(decision: Decision): Settlement {
  return decision.kind === 'dead' ? { kind: 'dead' } : decision;
}

/** Most attempts need no further step: then there is no promise to wait for. */
function follow(parts: EndingParts, attempt: MadeAttempt, decision: Decision, update: LaneUpdate): Promise<void> | undefined {
  if (decision.kind !== 'dead' && update.disable === undefined) return undefined;
  return report(parts, attempt, decision, update);
}

async function report(parts: EndingParts, attempt: MadeAttempt, decision: Decision, update: LaneUpdate): Promise<void> {
  const { operational, hooks, registry, clock } = parts;
  const { endpoint, delivery } = attempt;
  if (decision.kind === 'dead') {
    hooks.onExhausted(endpoint, delivery, decision.reason);
    // `gone` is reported once for the endpoint, not for each delivery.
    if (decision.reason !== 'gone') await operational.exhausted(attempt, decision.reason, delivery);
  }
  if (update.disable === undefined) return;
  const isDisabledNow = await registry.disable(endpoint.id, update.disable, clock.now());
  if (!isDisabledNow) return;
  hooks.onDisabled(endpoint, update.disable);
  await operational.disabled(attempt, update.disable, update.state);
}
