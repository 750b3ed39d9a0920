/** Turns the result of an attempt into the settlement of its delivery and the new state of its lane. */
import type { Clock } from '../../core/clock.ts';
import type { AttemptResult } from '../attempt/attempt.ts';
import type { Endpoint } from '../endpoints/endpoint.ts';
import type { EndpointRegistry } from '../endpoints/registry.ts';
import type { AttemptRecord, Delivery, LaneState, SettledDelivery, Settlement } from '../queue/delivery-queue.ts';
import { decide } from '../schedule/decide.ts';
import type { Decision } from '../schedule/schedule.ts';
import type { LaneHooks } from './lane-hooks.ts';
import { applyAttempt, type DisablePolicy, isBreakerOpen, type LaneUpdate, toRecord } from './lane-state.ts';
import type { OperationalEvents } from './operational-events.ts';

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
  if (result.outcome === 'aborted') {
    // The endpoint may have it. It gets it again, with the same ID.
    parts.hooks.onAttempt(endpoint, delivery, result, undefined);
    return { state, settled: settle({ kind: 'postponed', due: now }), isDisabling: false };
  }
  const decision = decide({ result, tries: delivery.tries, endpoint, now, random: parts.random() });
  const update = applyAttempt(state, {
    result,
    decision,
    isReplay: delivery.isReplay,
    now,
    random: parts.random(),
    disable: parts.disable,
  });
  parts.hooks.onAttempt(endpoint, delivery, result, decision);
  if (update.breaker !== undefined) parts.hooks.onBreaker(endpoint, update.breaker);
  if (isBreakerOpen(update.state)) parts.hooks.onFailing(endpoint, update.state.pausedUntil ?? now);
  return {
    state: update.state,
    settled: settle(toSettlement(decision), toRecord(result)),
    before: follow(parts, attempt, decision, update),
    isDisabling: update.disable !== undefined,
  };
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
