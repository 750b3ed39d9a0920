/** The operations on deliveries: list and show them, and repair what was not delivered: retry, cancel, purge and recover. */
import { toInstant, toOptionalInstant } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import { type ApiResponse, defineOperation, type Operation, toJson } from '../../http-api/operation.ts';
import { toInvalid, toProblem } from '../../http-api/problem.ts';
import { type Endpoint, isForTenant } from '../endpoints/endpoint.ts';
import { isInboxEndpoint, parseInboxMetadata } from '../events/inbox-request.ts';
import type {
  DeliveryFilter,
  DeliveryQueue,
  DeliveryRecord,
  Receiver,
  RepairProgress,
  StoredEvent,
} from '../queue/delivery-queue.ts';
import { MAX_SMALL_BODY, type OperationParts, toAttemptView } from './api-parts.ts';
import { toUnknownEndpoint } from './endpoint-operations.ts';
import { toUnknownEvent } from './event-operations.ts';
import { countMissing, recover } from './recover.ts';
import {
  DEFAULT_STATES,
  deliveryPage,
  deliveryQuery,
  deliveryWithAttempts,
  type RepairRequest,
  repairProgress,
  repairRequest,
  retriedDelivery,
} from './schemas.ts';

/** Of one delivery. */
const DELIVERY_PATH = '/v1/deliveries/{event}~{receiver}';

/** Builds the operations. */
export function createDeliveryOperations(parts: OperationParts): Operation[] {
  return [createList(parts), createGet(parts), createRetry(parts), createRepair(parts)];
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
function toDeliveryId(event: string, endpoint: string): string {
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

const OTHER_SIDE =
  'an event that a webhook route received can only be repeated for the app of that route, and this app gets no other events';
const DISABLED = 'the endpoint is disabled: enable it first';
const ERASED = 'the payload of this event was erased, so there is nothing left to send';
const ONLY_EVENTS = 'only endpoints that select events of the app can recover them';
/** Each keeps the store busy. */
const MAX_REPAIRS = 4;

function createRetry({ queue, receivers, clock }: OperationParts): Operation {
  return defineOperation({
    id: 'retryDelivery',
    method: 'POST',
    path: `${DELIVERY_PATH}/retry`,
    tag: 'Deliveries',
    summary: 'Retry a delivery now',
    description:
      'In every state, and also if the event was not for this endpoint, unless it belongs to another tenant or to the inbox of a route. A delivery that waits keeps its place in the schedule; any other starts the schedule again, and its failures do not count towards disabling the endpoint. While attempts to the endpoint are paused, it is made when the pause ends.',
    responses: { 202: { description: 'It is due now.', schema: retriedDelivery } },
    problems: ['not_found', 'conflict', 'queue_full', 'queue_unavailable'],
    async handle({ params: { event = '', receiver: endpoint = '' } }) {
      const found = receivers.get(endpoint);
      if (found === undefined) return toUnknownEndpoint();
      if (found.disabled !== undefined) return toProblem('conflict', DISABLED);
      const stored = await queue.getEvent(event);
      if (stored === undefined) return toUnknownEvent();
      const conflict = await findConflict(found, stored, queue);
      if (conflict !== undefined) return toProblem('conflict', conflict);
      const now = clock.now();
      let changed = 0;
      for await (const progress of queue.repair('retry', { event, endpoint }, now)) ({ changed } = progress);
      if (changed === 0 && !(await queue.addDelivery(event, endpoint, now)))
        return toProblem('conflict', 'the delivery was changed at this moment: look at it, and repeat the request if necessary');
      return toJson(202, { id: toDeliveryId(event, endpoint) });
    },
  });
}

/** Why the endpoint cannot get the event. */
async function findConflict(
  endpoint: Endpoint,
  event: StoredEvent,
  queue: Pick<DeliveryQueue, 'find'>,
): Promise<string | undefined> {
  if (!isForTenant(endpoint, event.tenant)) return describeTenants(endpoint, event);
  if (!(await canReceive(endpoint.id, event, queue))) return OTHER_SIDE;
  return event.isErased ? ERASED : undefined;
}

function describeTenants(endpoint: Endpoint, event: StoredEvent): string {
  const [ofEvent, ofEndpoint] = [event, endpoint].map(({ tenant }) =>
    tenant === undefined ? 'no tenant' : `the tenant ${tenant}`,
  );
  return `the event has ${ofEvent} and the endpoint ${ofEndpoint}: an event can only go to endpoints of its tenant and to those for all tenants`;
}

/**
 * An event of an inbox is the request of another sender to one app. Endpoints of customers must not get it, and that app cannot interpret
 * an event of the API. So where an inbox is involved, only a delivery that exists can be repeated.
 */
async function canReceive(endpoint: string, event: StoredEvent, queue: Pick<DeliveryQueue, 'find'>): Promise<boolean> {
  if (!isInboxEndpoint(endpoint) && parseInboxMetadata(event.metadata) === undefined) return true;
  const { deliveries } = await queue.find({ event: event.id, endpoint }, { limit: 1 });
  return deliveries.length > 0;
}

function createRepair(parts: OperationParts): Operation {
  let running = 0;
  return defineOperation({
    id: 'repairDeliveries',
    method: 'POST',
    path: '/v1/repairs',
    tag: 'Deliveries',
    summary: 'Retry, cancel, purge or recover many deliveries',
    description:
      'Without `endpoint`, `retry` changes only deliveries whose endpoint exists, is enabled, and may get the event. The response is a stream of JSON lines. The last one has `done: true`; if it is missing, the connection or the repair broke off. Repeating the request continues it. With `dryRun`, nothing is changed, and the last line has the number of deliveries that match.',
    body: { schema: repairRequest, maxBytes: MAX_SMALL_BODY },
    responses: {
      200: {
        description: 'The progress, one JSON object per line.',
        schema: repairProgress,
        contentType: 'application/x-ndjson',
      },
    },
    problems: ['not_found', 'conflict', 'busy', 'queue_unavailable'],
    handle({ body }): ApiResponse {
      const rejection = findRejection(body, parts);
      if (rejection !== undefined) return rejection;
      if (running >= MAX_REPAIRS) return toProblem('busy', `there are ${MAX_REPAIRS} repairs already`);
      running++;
      const lines = repair(body, parts, () => {
        running--;
      });
      return { status: 200, contentType: 'application/x-ndjson', lines };
    },
  });
}

/** Deliveries to an endpoint that was deleted can still be canceled and purged. */
function findRejection({ action, endpoint }: RepairRequest, { receivers }: OperationParts): ApiResponse | undefined {
  if (endpoint === undefined || (action !== 'retry' && action !== 'recover')) return undefined;
  const found = receivers.get(endpoint);
  if (found === undefined) return toUnknownEndpoint();
  if (found.disabled !== undefined) return toProblem('conflict', DISABLED);
  const getsEvents = !found.isOperational && !isInboxEndpoint(endpoint);
  return action === 'recover' && !getsEvents ? toProblem('conflict', ONLY_EVENTS) : undefined;
}

interface Line extends RepairProgress {
  readonly excluded?: number | undefined;
}

async function* repair(request: RepairRequest, parts: OperationParts, onEnd: () => void): AsyncGenerator<object> {
  let last: Line = { changed: 0, total: 0 };
  try {
    for await (const line of request.action === 'recover' ? recoverAll(request, parts) : repairAll(request, parts)) {
      last = line;
      yield { ...last, done: false };
    }
    yield { ...last, done: true };
  } catch (thrown) {
    if (!(thrown instanceof SidegateError)) throw thrown;
    yield { ...last, done: false, error: thrown.message };
  } finally {
    onEnd();
  }
}

function recoverAll(
  { endpoint = '', type, tenant, from, to, dryRun }: RepairRequest,
  parts: OperationParts,
): AsyncIterable<Line> {
  return (dryRun ? countMissing : recover)(endpoint, { type, tenant, from, to }, parts);
}

async function* repairAll(request: RepairRequest, { queue, receivers, clock }: OperationParts): AsyncGenerator<Line> {
  const { action, dryRun, states, ...selected } = request;
  if (action === 'recover') return;
  const now = clock.now();
  const all: DeliveryFilter = { ...selected, states: states ?? DEFAULT_STATES[action] };
  const filter = action === 'retry' ? { ...all, receivers: toReceivers(selected.endpoint, receivers) } : all;
  const total = await queue.count(action, filter, now);
  const excluded = action === 'retry' ? Math.max(0, (await queue.count(action, all, now)) - total) : undefined;
  if (dryRun) yield { changed: 0, total, excluded };
  else for await (const progress of queue.repair(action, filter, now)) yield { ...progress, excluded };
}

/** Endpoints that can be sent to. */
function toReceivers(endpoint: string | undefined, receivers: OperationParts['receivers']): Receiver[] {
  const given = endpoint === undefined ? receivers.list() : [receivers.get(endpoint)];
  return given.flatMap((each) =>
    each === undefined || each.disabled !== undefined
      ? []
      : [{ endpoint: each.id, allTenants: each.allTenants, tenant: each.tenant }],
  );
}
