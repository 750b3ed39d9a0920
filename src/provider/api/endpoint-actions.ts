/** The operations that act on an endpoint: rotate its secret, enable, disable, test, and its backlog. */

import { formatSigningSecret } from '../../auth/schemes/signing-keys.ts';
import { toInstant, toOptionalInstant } from '../../core/clock.ts';
import { type ApiResponse, defineOperation, type Operation, toJson } from '../../http-api/operation.ts';
import { toProblem } from '../../http-api/problem.ts';
import type { Endpoint, SigningKey } from '../endpoints/endpoint.ts';
import { createEventId, OWN_METADATA, toBody } from '../events/event.ts';
import { toFailureStreak } from '../lanes/lane-state.ts';
import { MAX_SMALL_BODY, type OperationParts, toAttemptView } from './api-parts.ts';
import {
  CHANGED,
  cancelWaiting,
  toChange,
  toChangeProblem,
  toEndpointResponse,
  toKey,
  toUnknownEndpoint,
} from './endpoint-operations.ts';
import { endpointStats, rotatedSecret, rotation, testEvent } from './endpoint-schemas.ts';
import { acceptedEvent } from './event-schemas.ts';

/** Of test events. */
const TEST_TYPE = 'sidegate.test';
const TEST_DATA = { message: 'This is a test event. You can ignore it.' };
/** Old secrets that sign during their grace period; receivers bound the number of signatures that they check. */
const MAX_OLD_KEYS = 4;

/** Builds the operations. */
export function createEndpointActions(parts: OperationParts): Operation[] {
  return [createRotate(parts), createEnable(parts), createDisable(parts), createTest(parts), createStats(parts)];
}

function createRotate(parts: OperationParts): Operation {
  const { registry, clock, hooks, settings } = parts;
  return defineOperation({
    id: 'rotateSecret',
    method: 'POST',
    path: '/v1/endpoints/{endpoint}/rotate-secret',
    tag: 'Endpoints',
    summary: 'Replace the secret of an endpoint',
    description: `Deliveries are signed with the new and the old secret until the grace period is over, with at most ${MAX_OLD_KEYS} old ones.`,
    acceptsIfMatch: true,
    body: { schema: rotation, maxBytes: MAX_SMALL_BODY, isOptional: true },
    responses: { 200: { description: 'The new secret.', schema: rotatedSecret } },
    problems: ['not_found', 'conflict', 'precondition_failed', 'queue_unavailable'],
    async handle(request) {
      const { secret, grace = settings.rotationGrace() } = request.body;
      const change = toChange(request, parts);
      if ('status' in change) return change;
      const { id, version } = change;
      const key = toKey(secret);
      if ('status' in key) return key;
      const now = clock.now();
      const result = await registry.update(
        id,
        (record) => ({ ...record, keys: [key, ...toOldKeys(record.keys, now, now + grace)], updatedAt: now }),
        version,
      );
      if (result !== 'changed') return toChangeProblem(result);
      hooks.onEndpointChanged(id, 'rotated');
      return toJson(200, { secret: formatSigningSecret(key) });
    },
  });
}

/** The keys before a rotation, newest first: none signs longer than before, or than `until`. */
function toOldKeys(keys: readonly SigningKey[], now: number, until: number): SigningKey[] {
  return keys
    .map((key) => ({ ...key, expiresAt: Math.min(key.expiresAt ?? until, until) }))
    .filter(({ expiresAt }) => expiresAt > now)
    .slice(0, MAX_OLD_KEYS);
}

function createEnable(parts: OperationParts): Operation {
  const { registry, queue, clock, hooks } = parts;
  return defineOperation({
    id: 'enableEndpoint',
    method: 'POST',
    path: '/v1/endpoints/{endpoint}/enable',
    tag: 'Endpoints',
    summary: 'Enable an endpoint',
    description: 'Also those of the config. Deliveries that were skipped meanwhile can be retried.',
    responses: { 200: CHANGED },
    problems: ['not_found', 'queue_unavailable'],
    async handle({ params: { endpoint: id = '' } }) {
      if (await registry.enable(id, clock.now())) {
        hooks.onEndpointChanged(id, 'enabled');
        await queue.wake(id);
      }
      return toCurrent(id, parts);
    },
  });
}

function createDisable(parts: OperationParts): Operation {
  const { registry, clock, hooks } = parts;
  return defineOperation({
    id: 'disableEndpoint',
    method: 'POST',
    path: '/v1/endpoints/{endpoint}/disable',
    tag: 'Endpoints',
    summary: 'Disable an endpoint',
    description:
      'Also those of the config. Its waiting deliveries are canceled at once, and new ones are skipped until it is enabled again; all of them can be retried then.',
    responses: { 200: CHANGED },
    problems: ['not_found', 'queue_unavailable'],
    async handle({ params: { endpoint: id = '' } }) {
      if (await registry.disable(id, 'manual', clock.now())) hooks.onEndpointChanged(id, 'disabled');
      // Also if it was disabled already: an earlier request may have failed here.
      if (registry.get(id)?.disabled !== undefined) await cancelWaiting(id, parts);
      return toCurrent(id, parts);
    },
  });
}

function createTest({ registry, queue, clock }: OperationParts): Operation {
  return defineOperation({
    id: 'testEndpoint',
    method: 'POST',
    path: '/v1/endpoints/{endpoint}/test',
    tag: 'Endpoints',
    summary: 'Send a test event to an endpoint',
    description: `Delivers an event of type ${TEST_TYPE} to this endpoint only, even if it does not select this type.`,
    body: { schema: testEvent, maxBytes: MAX_SMALL_BODY, isOptional: true },
    responses: { 202: { description: 'The event is stored.', schema: acceptedEvent } },
    problems: ['not_found', 'conflict', 'queue_full', 'queue_unavailable'],
    async handle({ params: { endpoint = '' }, body: { data = TEST_DATA } }) {
      const found = registry.get(endpoint);
      if (found === undefined) return toUnknownEndpoint();
      if (found.disabled !== undefined) return toProblem('conflict', 'the endpoint is disabled: enable it first');
      const id = createEventId();
      const now = clock.now();
      const body = toBody({ type: TEST_TYPE, id, created: Math.floor(now / 1_000), data });
      await queue.append([
        { id, type: TEST_TYPE, tenant: found.tenant, createdAt: now, body, metadata: OWN_METADATA, targets: [{ endpoint }] },
      ]);
      return toJson(202, { id, duplicate: false, endpoints: 1 });
    },
  });
}

function createStats({ registry, queue, clock }: OperationParts): Operation {
  return defineOperation({
    id: 'getEndpointStats',
    method: 'GET',
    path: '/v1/endpoints/{endpoint}/stats',
    tag: 'Endpoints',
    summary: 'Show the backlog of an endpoint, and whether it is failing',
    responses: { 200: { description: 'The figures.', schema: endpointStats } },
    problems: ['not_found', 'queue_unavailable'],
    async handle({ params: { endpoint = '' } }) {
      const found = registry.get(endpoint);
      if (found === undefined) return toUnknownEndpoint();
      const now = clock.now();
      const [[backlog], [state]] = await Promise.all([queue.backlogs([endpoint], now), queue.laneStates([endpoint])]);
      const { waiting = 0, oldestDue } = backlog ?? {};
      const streak = toFailureStreak(state, found, now);
      const failing = streak && {
        failures: streak.failures,
        since: toInstant(streak.since),
        lastAttempt: streak.last && toAttemptView(streak.last),
        pausedUntil: toOptionalInstant(streak.pausedUntil),
      };
      return toJson(200, { waiting, oldestDue: toOptionalInstant(oldestDue), failing });
    },
  });
}

function toCurrent(id: string, parts: OperationParts): ApiResponse {
  const endpoint: Endpoint | undefined = parts.registry.get(id);
  return endpoint === undefined ? toUnknownEndpoint() : toEndpointResponse(200, endpoint, parts);
}
