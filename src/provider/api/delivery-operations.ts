/** The operations on deliveries: list and show them, and repair what was not delivered: retry, cancel, purge and recover. */
import { toInstant, toOptionalInstant } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import { type ApiResponse, toJson } from '../../http-api/operation.ts';
import { toProblem } from '../../http-api/problem.ts';
import { type Endpoint, isForTenant, type RoutedEvent } from '../endpoints/endpoint.ts';
import { findOrderKey } from '../endpoints/endpoint-index.ts';
import { isInboxEndpoint, parseInboxMetadata } from '../events/event.ts';
import type {
  DeliveryFilter,
  DeliveryQueue,
  DeliveryRecord,
  EventFilter,
  EventHead,
  Receiver,
  RepairProgress,
} from '../queue/delivery-queue.ts';
import { isQueueBusy } from '../queue/store-client.ts';
import { define, findEnabled, type OperationParts, toAttemptView, toPage, toRouted, UNKNOWN_EVENT } from './api-parts.ts';
import * as schemas from './schemas.ts';

const DELIVERY_PATH = '/v1/deliveries/{event}~{receiver}';
/** Each keeps the store busy. */
const MAX_REPAIRS = 4;

export const DELIVERY_OPERATIONS = [
  define({
    id: 'listDeliveries',
    method: 'GET',
    path: '/v1/deliveries',
    summary: 'List deliveries',
    query: schemas.deliveryQuery,
    responses: { 200: { description: 'A page of deliveries.', schema: schemas.deliveryPage } },
    problems: ['queue_unavailable'],
    handle({ query: { limit, iterator, state: states, ...filter } }, { queue }) {
      return toPage(queue.find({ ...filter, states }, { limit, after: iterator }), toView);
    },
  }),
  define({
    id: 'getDelivery',
    method: 'GET',
    path: DELIVERY_PATH,
    summary: 'Show a delivery and its attempts',
    responses: { 200: { description: 'The delivery.', schema: schemas.deliveryWithAttempts } },
    problems: ['not_found', 'queue_unavailable'],
    async handle({ params: { event = '', receiver: endpoint = '' } }, { queue }) {
      const [found] = (await queue.find({ event, endpoint }, { limit: 1 })).found;
      const attempts = await queue.findAttempts(event, endpoint);
      if (found === undefined || attempts === undefined) return toProblem('not_found', 'no such delivery is stored');
      const stored = isInboxEndpoint(endpoint) ? await queue.getEvent(event) : undefined;
      const sourceEvent = stored && parseInboxMetadata(stored.metadata)?.event;
      return toJson(200, { ...toView(found), sourceEvent, history: attempts.map(toAttemptView) });
    },
  }),
  define({
    id: 'retryDelivery',
    method: 'POST',
    path: `${DELIVERY_PATH}/retry`,
    summary: 'Retry a delivery now',
    description:
      'In every state, and also if the event was not for this endpoint, unless it belongs to another tenant or to the inbox of a route. A delivery that waits keeps its place in the schedule; any other starts the schedule again, and its failures do not count towards disabling the endpoint. While attempts to the endpoint are paused, it is made when the pause ends.',
    responses: { 202: { description: 'It is due now.', schema: schemas.retriedDelivery } },
    problems: ['not_found', 'conflict', 'queue_full', 'queue_unavailable'],
    async handle({ params: { event = '', receiver: endpoint = '' } }, { queue, receivers, clock }) {
      const found = findEnabled(receivers, endpoint);
      if ('status' in found) return found;
      const head = await queue.findEvent(event);
      if (head === undefined) return UNKNOWN_EVENT;
      const conflict = await findConflict(found, event, head, queue);
      if (conflict !== undefined) return toProblem('conflict', conflict);
      const now = clock.now();
      let changed = 0;
      for await (const progress of queue.repair('retry', { event, endpoint }, now)) ({ changed } = progress);
      const routed = changed === 0 && found.orderBy !== undefined ? await findRouted(event, queue) : undefined;
      const orderKey = routed && findOrderKey(found, routed);
      if (changed === 0 && !(await queue.addDelivery(event, endpoint, now, orderKey)))
        return toProblem('conflict', 'the delivery was changed at this moment: look at it, and repeat the request if necessary');
      return toJson(202, { id: toDeliveryId(event, endpoint) });
    },
  }),
  define({
    id: 'repairDeliveries',
    method: 'POST',
    path: '/v1/repairs',
    summary: 'Retry, cancel, purge or recover many deliveries',
    description:
      'Without `endpoint`, `retry` changes only deliveries whose endpoint exists, is enabled, and may get the event. The response is a stream of JSON lines. The last one has `done: true`; if it is missing, the connection or the repair broke off. Repeating the request continues it. With `dryRun`, nothing is changed, and the last line has the number of deliveries that match.',
    body: { schema: schemas.repairRequest },
    responses: {
      200: {
        description: 'The progress, one JSON object per line.',
        schema: schemas.repairProgress,
        contentType: 'application/x-ndjson',
      },
    },
    problems: ['not_found', 'conflict', 'busy', 'queue_unavailable'],
    async handle({ body }, parts): Promise<ApiResponse> {
      const { action, endpoint } = body;
      const { registry } = parts;
      // Another replica may have changed what can be sent. While the store is down, the repair itself fails.
      if (action === 'retry' || action === 'recover')
        await (endpoint === undefined ? registry.reload() : registry.catchUp(endpoint)).catch(() => undefined);
      const rejection = findRejection(body, parts);
      if (rejection !== undefined) return rejection;
      if (parts.running.repairs >= MAX_REPAIRS) return toProblem('busy', `there are ${MAX_REPAIRS} repairs already`);
      parts.running.repairs++;
      return { status: 200, contentType: 'application/x-ndjson', lines: repair(body, parts) };
    },
  }),
];

function toDeliveryId(event: string, endpoint: string): string {
  return `${event}~${endpoint}`;
}

function toView(record: DeliveryRecord): schemas.OutgoingDelivery {
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

async function findConflict(endpoint: Endpoint, id: string, event: EventHead, queue: Pick<DeliveryQueue, 'find'>) {
  if (!isForTenant(endpoint, event.tenant)) return describeTenants(endpoint, event);
  // An event of an inbox is the request of another sender to one app. Endpoints of customers must not get it, and that app cannot interpret
  // an event of the API. So where an inbox is involved, only a delivery that exists can be repeated.
  const isOfInbox = isInboxEndpoint(endpoint.id) || event.source === 'inbox';
  if (isOfInbox && (await queue.find({ event: id, endpoint: endpoint.id }, { limit: 1 })).found.length === 0) return OTHER_SIDE;
  return event.isErased ? 'the payload of this event was erased, so there is nothing left to send' : undefined;
}

function describeTenants(endpoint: Endpoint, event: EventHead): string {
  const [ofEvent, ofEndpoint] = [event, endpoint].map(({ tenant }) =>
    tenant === undefined ? 'no tenant' : `the tenant ${tenant}`,
  );
  return `the event has ${ofEvent} and the endpoint ${ofEndpoint}: an event can only go to endpoints of its tenant and to those for all tenants`;
}

/** Deliveries to an endpoint that was deleted can still be canceled and purged. */
function findRejection({ action, endpoint }: schemas.RepairRequest, { receivers }: OperationParts): ApiResponse | undefined {
  if (endpoint === undefined || (action !== 'retry' && action !== 'recover')) return undefined;
  const found = findEnabled(receivers, endpoint);
  if ('status' in found) return found;
  const getsEvents = !found.isOperational && !isInboxEndpoint(endpoint);
  if (action === 'retry' || getsEvents) return undefined;
  return toProblem('conflict', 'only endpoints that select events of the app can recover them');
}

type Line = RepairProgress & { readonly excluded?: number | undefined };

async function* repair(request: schemas.RepairRequest, parts: OperationParts): AsyncGenerator<object> {
  let last: Line = { changed: 0, total: 0 };
  try {
    for await (const line of request.action === 'recover' ? recover(request, parts) : repairAll(request, parts)) {
      last = line;
      yield { ...last, done: false };
    }
    yield { ...last, done: true };
  } catch (thrown) {
    if (!(thrown instanceof SidegateError)) throw thrown;
    yield { ...last, done: false, error: thrown.message };
  } finally {
    parts.running.repairs--;
  }
}

async function* repairAll(request: schemas.RepairRequest, { queue, receivers, clock }: OperationParts): AsyncGenerator<Line> {
  const { action, dryRun, states, ...selected } = request;
  if (action === 'recover') return;
  const now = clock.now();
  const all: DeliveryFilter = { ...selected, states: states ?? schemas.DEFAULT_STATES[action] };
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

const EVENTS_PER_PAGE = 250;
/** A minute, in which nothing is read. */
const MAX_TRIES = 12;

/** Creates deliveries, after they were counted. Ends with `changed` equal to `total`, or rejects when a bound of the queue is reached. */
async function* recover(request: schemas.RepairRequest, parts: OperationParts): AsyncGenerator<RepairProgress> {
  const { queue, clock } = parts;
  const { endpoint = '', type, tenant, from, to, dryRun } = request;
  const filter = { type, tenant: tenant ?? parts.registry.get(endpoint)?.tenant, from, to };
  let [changed, total] = [0, 0];
  for await (const missing of findMissing(endpoint, filter, parts)) {
    total += missing.length;
    yield { changed, total };
  }
  if (dryRun) return;
  for await (const missing of findMissing(endpoint, filter, parts)) {
    const now = clock.now();
    const added = await Promise.allSettled(
      missing.map(({ event, orderKey }) => queue.addDelivery(event, endpoint, now, orderKey)),
    );
    changed += added.filter((result) => result.status === 'fulfilled' && result.value).length;
    total = Math.max(changed, total);
    yield { changed, total };
    for (const result of added) if (result.status === 'rejected') throw toEnd(result.reason, total - changed);
  }
  yield { changed, total: changed };
}

/** The error of a delivery that was not created, with the number of all that were not if they exceed a bound of the queue. */
function toEnd(thrown: unknown, rest: number): unknown {
  if (!(thrown instanceof SidegateError) || thrown.code !== 'queue_full') return thrown;
  const count = rest === 1 ? '1 delivery was' : `${rest} deliveries were`;
  return new SidegateError('system', 'queue_full', `${count} not created: ${thrown.message}`, { cause: thrown });
}

/** With its data; undefined if it was erased or removed meanwhile. */
async function findRouted(id: string, queue: Pick<DeliveryQueue, 'getEvent'>): Promise<RoutedEvent | undefined> {
  const stored = await queue.getEvent(id);
  return stored?.isErased === false ? toRouted(stored) : undefined;
}

/** The missing deliveries of each page of events, the oldest first: a page is sent while the next one is read. One operation waits for the store at a time. */
async function* findMissing(endpoint: string, filter: EventFilter, parts: OperationParts) {
  const { queue, registry } = parts;
  let after: string | undefined;
  do {
    const page = { limit: EVENTS_PER_PAGE, after, first: 'oldest' } as const;
    const { found, next } = await insist(() => queue.findEvents({ ...filter, lacks: endpoint }, page));
    const missing: { readonly event: string; readonly orderKey: string | undefined }[] = [];
    for (const { id, type, tenant } of found) {
      let target = registry.match(endpoint, { type, tenant, data: {} });
      if (target?.isSkipped === true) throw new SidegateError('user', 'endpoint_disabled', 'the endpoint was disabled meanwhile');
      // Only the order key needs the data.
      if (target !== undefined && registry.get(endpoint)?.orderBy !== undefined) {
        const event = await insist(() => findRouted(id, queue));
        target = event && registry.match(endpoint, event);
      }
      if (target !== undefined) missing.push({ event: id, orderKey: target.orderKey });
    }
    yield missing;
    after = next;
  } while (after !== undefined);
}

/** Waits again while the store is busy: the next request would start with the first page. */
async function insist<T>(read: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++)
    try {
      return await read();
    } catch (thrown) {
      if (tries === MAX_TRIES || !isQueueBusy(thrown)) throw thrown;
    }
}
