/** The operations that list and repeat deliveries. */
import { toInstant } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import { type ApiResponse, defineOperation, type Operation, toJson } from '../../http-api/operation.ts';
import { toInvalid, toProblem } from '../../http-api/problem.ts';
import { INBOX_PREFIX, parseInboxMetadata } from '../events/inbox-request.ts';
import type { DeliveryFilter, DeliveryQueue, DeliveryRecord, StoredEvent } from '../queue/delivery-queue.ts';
import { MAX_SMALL_BODY, type OperationParts } from './api-parts.ts';
import { toAttemptView, toOptionalInstant } from './attempt-view.ts';
import {
  deliveryPage,
  deliveryQuery,
  deliveryWithAttempts,
  replayedDelivery,
  replayProgress,
  replayRequest,
} from './delivery-schemas.ts';
import { toUnknownEndpoint } from './endpoint-operations.ts';

const PATH = '/v1/deliveries/{event}~{receiver}';
const OTHER_SIDE =
  'an event that a webhook route received can only be repeated for the app of that route, and this app gets no other events';
/** Replays of many deliveries at once: each keeps the store busy. */
const MAX_REPLAYS = 4;

/** Builds the operations. */
export function createDeliveryOperations(parts: OperationParts): Operation[] {
  return [createList(parts), createGet(parts), createReplay(parts), createReplayMany(parts)];
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
      try {
        const { deliveries, next } = await queue.find({ ...filter, states }, { limit, after: iterator });
        return toJson(200, { data: deliveries.map(toView), iterator: next ?? null, done: next === undefined });
      } catch (thrown) {
        if (!(thrown instanceof SidegateError) || thrown.code !== 'invalid_position') throw thrown;
        return toInvalid([{ field: 'iterator', message: 'not the iterator of a page' }]);
      }
    },
  });
}

function createGet({ queue }: OperationParts): Operation {
  return defineOperation({
    id: 'getDelivery',
    method: 'GET',
    path: PATH,
    tag: 'Deliveries',
    summary: 'Show a delivery and its attempts',
    responses: { 200: { description: 'The delivery.', schema: deliveryWithAttempts } },
    problems: ['not_found', 'queue_unavailable'],
    async handle({ params: { event = '', receiver: endpoint = '' } }) {
      const { deliveries } = await queue.find({ event, endpoint }, { limit: 1 });
      const [found] = deliveries;
      const attempts = await queue.findAttempts(event, endpoint);
      if (found === undefined || attempts === undefined)
        return toProblem('not_found', 'there is no such delivery, or it is no longer stored');
      return toJson(200, { ...toView(found), history: attempts.map(toAttemptView) });
    },
  });
}

function createReplay({ queue, receivers, clock }: OperationParts): Operation {
  return defineOperation({
    id: 'replayDelivery',
    method: 'POST',
    path: `${PATH}/replay`,
    tag: 'Deliveries',
    summary: 'Repeat a delivery',
    description:
      'Also if the event was not for this endpoint, except that the deliveries of an inbox belong to its route. Failures of a replay do not count towards disabling the endpoint.',
    responses: { 202: { description: 'It is due again.', schema: replayedDelivery } },
    problems: ['not_found', 'conflict', 'queue_unavailable'],
    async handle({ params: { event = '', receiver: endpoint = '' } }) {
      const found = receivers.get(endpoint);
      if (found === undefined) return toUnknownEndpoint();
      if (found.disabled !== undefined) return toProblem('conflict', 'the endpoint is disabled: enable it first');
      const stored = await queue.getEvent(event);
      if (stored === undefined) return toProblem('not_found', 'there is no event with this ID, or it is no longer stored');
      if (!(await canReceive(endpoint, stored, queue))) return toProblem('conflict', OTHER_SIDE);
      let replayed = 0;
      for await (const progress of queue.replay({ event, endpoint }, clock.now())) replayed = progress.replayed;
      await queue.wake(endpoint);
      return toJson(202, { id: toDeliveryId(event, endpoint), replayed: replayed > 0 });
    },
  });
}

/**
 * An event of an inbox is the request of another sender to one app. Endpoints of customers must not get it, and that app cannot interpret
 * an event of the API. So where an inbox is involved, only a delivery that exists can be repeated.
 */
async function canReceive(endpoint: string, event: StoredEvent, queue: Pick<DeliveryQueue, 'find'>): Promise<boolean> {
  if (!endpoint.startsWith(INBOX_PREFIX) && parseInboxMetadata(event.metadata) === undefined) return true;
  const { deliveries } = await queue.find({ event: event.id, endpoint }, { limit: 1 });
  return deliveries.length > 0;
}

function createReplayMany({ queue, receivers, clock }: OperationParts): Operation {
  let running = 0;
  return defineOperation({
    id: 'replayDeliveries',
    method: 'POST',
    path: '/v1/replays',
    tag: 'Deliveries',
    summary: 'Repeat many deliveries',
    description:
      'The response is a stream of JSON lines. The last one has `done: true`; if it is missing, the connection or the replay broke off. Repeating the request continues it.',
    body: { schema: replayRequest, maxBytes: MAX_SMALL_BODY },
    responses: {
      200: {
        description: 'The progress, one JSON object per line.',
        schema: replayProgress,
        contentType: 'application/x-ndjson',
      },
    },
    problems: ['not_found', 'busy', 'queue_unavailable'],
    handle({ body }): ApiResponse {
      const { endpoint } = body;
      if (endpoint !== undefined && receivers.get(endpoint) === undefined) return toUnknownEndpoint();
      if (running >= MAX_REPLAYS) return toProblem('busy', `there are ${MAX_REPLAYS} replays already`);
      running++;
      const lines = replay(body, clock.now(), { queue }, () => {
        running--;
      });
      return { status: 200, contentType: 'application/x-ndjson', lines };
    },
  });
}

async function* replay(
  filter: DeliveryFilter,
  now: number,
  { queue }: Pick<OperationParts, 'queue'>,
  onEnd: () => void,
): AsyncGenerator<object> {
  let last = { replayed: 0, total: 0 };
  try {
    for await (const progress of queue.replay(filter, now)) {
      last = progress;
      yield { ...progress, done: false };
    }
    if (filter.endpoint !== undefined && last.replayed > 0) await queue.wake(filter.endpoint);
    yield { ...last, done: true };
  } catch (thrown) {
    if (!(thrown instanceof SidegateError)) throw thrown;
    yield { ...last, done: false, error: thrown.message };
  } finally {
    onEnd();
  }
}

function toDeliveryId(event: string, endpoint: string): string {
  return `${event}~${endpoint}`;
}

function toView(record: DeliveryRecord): object {
  const { event, endpoint, type, channel, state, createdAt, attempts, due, settledAt, lastAttempt } = record;
  return {
    id: toDeliveryId(event, endpoint),
    event,
    endpoint,
    type,
    channel,
    state,
    createdAt: toInstant(createdAt),
    attempts,
    due: toOptionalInstant(due),
    settledAt: toOptionalInstant(settledAt),
    lastAttempt: lastAttempt === undefined ? undefined : toAttemptView(lastAttempt),
  };
}
