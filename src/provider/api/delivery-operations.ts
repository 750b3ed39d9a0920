/** The operations that list and show deliveries. */
import { toInstant, toOptionalInstant } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import { type ApiResponse, defineOperation, type Operation, toJson } from '../../http-api/operation.ts';
import { toInvalid, toProblem } from '../../http-api/problem.ts';
import type { DeliveryRecord } from '../queue/delivery-queue.ts';
import { type OperationParts, toAttemptView } from './api-parts.ts';
import { deliveryPage, deliveryQuery, deliveryWithAttempts } from './delivery-schemas.ts';

/** Of one delivery. */
export const DELIVERY_PATH = '/v1/deliveries/{event}~{receiver}';

/** Builds the operations. */
export function createDeliveryOperations(parts: OperationParts): Operation[] {
  return [createList(parts), createGet(parts)];
}

function createList({ queue }: OperationParts): Operation {
  return defineOperation({
    id: 'listDeliveries',
    method: 'GET',
    path: '/v1/deliveries',
    tag: 'Deliveries',
    summary: 'List deliveries',
    query: deliveryQuery,
    responses: { 200: { description: 'A page of deliveries.', schema: deliveryPage } },
    problems: ['queue_unavailable'],
    async handle({ query: { limit, iterator, state: states, ...filter } }) {
      return toPage(async () => {
        const { deliveries, next } = await queue.find({ ...filter, states }, { limit, after: iterator });
        return { data: deliveries.map(toView), next };
      });
    },
  });
}

/** A page of a list of the queue. */
export async function toPage(
  find: () => Promise<{ readonly data: readonly object[]; readonly next: string | undefined }>,
): Promise<ApiResponse> {
  try {
    const { data, next } = await find();
    return toJson(200, { data, iterator: next ?? null, done: next === undefined });
  } catch (thrown) {
    if (!(thrown instanceof SidegateError) || thrown.code !== 'invalid_position') throw thrown;
    return toInvalid([{ field: 'iterator', message: 'not the iterator of a page' }]);
  }
}

function createGet({ queue }: OperationParts): Operation {
  return defineOperation({
    id: 'getDelivery',
    method: 'GET',
    path: DELIVERY_PATH,
    tag: 'Deliveries',
    summary: 'Show a delivery and its attempts',
    responses: { 200: { description: 'The delivery.', schema: deliveryWithAttempts } },
    problems: ['not_found', 'queue_unavailable'],
    async handle({ params: { event = '', receiver: endpoint = '' } }) {
      const { deliveries } = await queue.find({ event, endpoint }, { limit: 1 });
      const [found] = deliveries;
      const attempts = await queue.findAttempts(event, endpoint);
      if (found === undefined || attempts === undefined) return toProblem('not_found', 'no such delivery is stored');
      return toJson(200, { ...toView(found), history: attempts.map(toAttemptView) });
    },
  });
}

/** The ID of a delivery. */
export function toDeliveryId(event: string, endpoint: string): string {
  return `${event}~${endpoint}`;
}

function toView(record: DeliveryRecord): object {
  const { event, endpoint, type, tenant, state, createdAt, attempts, due, settledAt, lastAttempt } = record;
  return {
    id: toDeliveryId(event, endpoint),
    event,
    endpoint,
    type,
    tenant,
    state,
    createdAt: toInstant(createdAt),
    attempts,
    due: toOptionalInstant(due),
    settledAt: toOptionalInstant(settledAt),
    lastAttempt: lastAttempt && toAttemptView(lastAttempt),
  };
}
