/** Reports to the operational endpoints, as ordinary events in the queue, that an endpoint was disabled or a message will not be delivered. */
import { createHash } from 'node:crypto';
import { type Clock, toInstant } from '../../core/clock.ts';
import type { AttemptResult } from '../attempt/attempt.ts';
import type { DeadReason } from '../attempt/decide.ts';
import type { DisabledReason, Endpoint } from '../endpoints/endpoint.ts';
import type { EndpointRegistry } from '../endpoints/registry.ts';
import { OWN_METADATA, toBody } from '../events/event.ts';
import type { Delivery, DeliveryQueue, LaneState } from '../queue/delivery-queue.ts';
import type { LaneHooks } from '../telemetry/hooks.ts';

export type OperationalEventType = 'endpoint.disabled' | 'message.exhausted';

export interface OperationalParts {
  readonly clock: Clock;
  readonly queue: Pick<DeliveryQueue, 'append'>;
  readonly registry: Pick<EndpointRegistry, 'routeOperational'>;
  readonly hooks: Pick<LaneHooks, 'onOperationalEventLost'>;
}

/** The endpoint that a report is about. */
export interface EndpointIncident {
  readonly endpoint: Endpoint;
  /** The last attempt. */
  readonly result: AttemptResult;
}

export class OperationalEvents {
  readonly #parts: OperationalParts;

  constructor(parts: OperationalParts) {
    this.#parts = parts;
  }

  async disabled({ endpoint, result }: EndpointIncident, reason: DisabledReason, state: LaneState): Promise<void> {
    const { failures, firstFailureAt } = state;
    await this.#append('endpoint.disabled', endpoint, [String(endpoint.enabledAt)], {
      reason,
      failures,
      ...(firstFailureAt === undefined ? undefined : { failingSince: toInstant(firstFailureAt) }),
      lastAttempt: describeAttempt(result),
    });
  }

  async exhausted({ endpoint, result }: EndpointIncident, reason: DeadReason, delivery: Delivery): Promise<void> {
    const { event, type, tenant, attempt, tries } = delivery;
    await this.#append('message.exhausted', endpoint, [event, String(attempt)], {
      msgId: event,
      eventType: type,
      ...(tenant === undefined ? undefined : { tenant }),
      reason,
      attempts: tries + 1,
      lastAttempt: describeAttempt(result),
    });
  }

  /** An operational endpoint is never reported: its reports could fail in turn, without end. */
  async #append(
    type: OperationalEventType,
    endpoint: Endpoint,
    identity: readonly string[],
    facts: Readonly<Record<string, unknown>>,
  ): Promise<void> {
    const { queue, registry, clock, hooks } = this.#parts;
    // The tenant of the endpoint, not of its event: a tenant must not learn about the endpoints of the operator.
    const { tenant } = endpoint;
    const targets = endpoint.isOperational ? [] : registry.routeOperational(type, tenant);
    if (targets.length === 0) return;
    const now = clock.now();
    const id = toEventId([type, endpoint.id, ...identity]);
    const data = { endpointId: endpoint.id, url: toOrigin(endpoint.url), ...facts };
    const body = toBody({ type, id, created: Math.floor(now / 1_000), data });
    try {
      await queue.append([{ id, type, tenant, createdAt: now, body, metadata: OWN_METADATA, targets }]);
    } catch (error) {
      // The delivery itself must still be settled: a full queue empties only that way.
      hooks.onOperationalEventLost(type, error);
    }
  }
}

/** Derived from what happened: if the process dies before the delivery is settled, the repeated attempt does not report it twice. */
function toEventId(identity: readonly string[]): string {
  return `msg_${createHash('sha256').update(JSON.stringify(identity)).digest('base64url').slice(0, 22)}`;
}

/** The origin only: paths and queries of webhook URLs often contain secrets. */
function toOrigin(url: string): string {
  return URL.parse(url)?.origin ?? '';
}

function describeAttempt({ startedAt, duration, status, outcome, detail }: AttemptResult): Readonly<Record<string, unknown>> {
  return {
    timestamp: toInstant(startedAt),
    durationMs: Math.round(duration),
    outcome,
    ...(status === undefined ? undefined : { responseStatusCode: status }),
    ...(detail === undefined ? undefined : { detail }),
  };
}
