/** The operations of events: they are accepted once the queue has stored them durably, listed, shown, and erased. */
import { isUtf8 } from 'node:buffer';
import type { IncomingMessage } from 'node:http';
import { StringDecoder } from 'node:string_decoder';
import { toInstant } from '../../core/clock.ts';
import { findMember, type JsonSpan, listElements, toWholeSpan } from '../../core/json-scan.ts';
import { freeChunk } from '../../core/reading.ts';
import { type ApiRequest, type ApiResponse, toJson } from '../../http-api/operation.ts';
import { type FieldError, toInvalid, toProblem } from '../../http-api/problem.ts';
import { formatTraceparent, parseTraceparent, parseTracestate } from '../../telemetry/tracing/trace-context.ts';
import { createEventId, joinBody } from '../events/event.ts';
import type { AppendResult, EventRecord, NewEvent } from '../queue/delivery-queue.ts';
import { define, type OperationParts, toPage, toRouted, UNKNOWN_EVENT } from './api-parts.ts';
import * as schemas from './schemas.ts';

/** For the members of a request besides `data`, and whitespace. */
const ENVELOPE_BYTES = 2_048;
/** In one request: they are stored in one transaction, and the store does little else meanwhile. */
const MAX_DELIVERIES = 10_000;
const MIN_BATCH_BYTES = 1024 * 1024;
/** Of all payloads of a tenant: each keeps the store busy. */
const MAX_ERASURES = 4;
const PIECE_BYTES = 65_536;
const ACCEPT_PROBLEMS = ['conflict', 'too_large', 'queue_full', 'queue_unavailable', 'busy'] as const;

function toMaxBytes(maxEventSize: number): number {
  return maxEventSize + ENVELOPE_BYTES;
}

export function toMaxBatchBytes(maxEventSize: number): number {
  return Math.max(MIN_BATCH_BYTES, toMaxBytes(maxEventSize));
}

export const EVENT_OPERATIONS = [
  define({
    id: 'createEvent',
    method: 'POST',
    path: '/v1/events',
    summary: 'Accept an event',
    description:
      'Stores the event durably, and delivers it to all endpoints that select it. A `traceparent` of the request is continued by the deliveries.',
    body: { schema: schemas.newEvent, toMaxBytes },
    responses: { 202: { description: 'The event is stored.', schema: schemas.acceptedEvent } },
    problems: ACCEPT_PROBLEMS,
    handle({ body, content, incoming }, parts) {
      const events = toNewEvents([{ body, span: toWholeSpan(content), field: '' }], { content, incoming }, parts);
      return store(events, parts, ([accepted]) => accepted);
    },
  }),
  define({
    id: 'createEvents',
    method: 'POST',
    path: '/v1/events:batch',
    summary: 'Accept up to 100 events',
    description:
      'Stores all events durably, or none of them, except for those whose ID another event has: then the response is 409 and names them, and all others are stored.',
    body: { schema: schemas.newEvents, toMaxBytes: toMaxBatchBytes },
    responses: { 202: { description: 'All events are stored.', schema: schemas.acceptedEvents } },
    problems: ACCEPT_PROBLEMS,
    handle({ body, content, incoming }, parts) {
      const spans = [...listElements(content, findMember(content, toWholeSpan(content), 'events') as JsonSpan)];
      const posted = body.events.map((event, index) => ({
        body: event,
        span: spans[index] as JsonSpan,
        field: `events[${index}].`,
      }));
      const events = toNewEvents(posted, { content, incoming }, parts);
      return store(events, parts, (accepted) => ({ events: accepted }));
    },
  }),
  define({
    id: 'listEvents',
    method: 'GET',
    path: '/v1/events',
    summary: 'List events',
    query: schemas.eventQuery,
    responses: { 200: { description: 'A page of events.', schema: schemas.eventPage } },
    problems: ['queue_unavailable'],
    handle({ query: { limit, iterator, unrouted, state: states, ...filter } }, { queue }) {
      const isUnrouted = unrouted === 'true' ? true : undefined;
      return toPage(queue.findEvents({ ...filter, states, isUnrouted }, { limit, after: iterator }), toView);
    },
  }),
  define({
    id: 'getEvent',
    method: 'GET',
    path: '/v1/events/{event}',
    summary: 'Show a stored event',
    responses: { 200: { description: 'The event.', schema: schemas.storedEvent } },
    problems: ['not_found', 'busy', 'queue_unavailable'],
    async handle({ params: { event = '' } }, { queue }) {
      const { promise: written, resolve: onWritten } = Promise.withResolvers<void>();
      const found = await queue.getEvent(event, written);
      if (found === undefined) return UNKNOWN_EVENT;
      const { id, type, tenant, createdAt, body, isErased } = found;
      const view = { id, type, tenant, createdAt: toInstant(createdAt), erased: isErased };
      return isErased ? { ...toJson(200, view), onWritten } : { status: 200, lines: toPieces(view, body), onWritten };
    },
  }),
  define({
    id: 'erasePayload',
    method: 'DELETE',
    path: '/v1/events/{event}/payload',
    summary: 'Erase the payload of an event',
    description:
      'Deliveries that wait are skipped. The ID stays stored until the retention of the event is over, so that the event is not accepted again.',
    responses: { 204: { description: 'It is erased.' } },
    problems: ['not_found', 'queue_unavailable'],
    async handle({ params: { event = '' } }, { queue, clock }) {
      if ((await queue.erase({ event }, clock.now())) > 0 || (await queue.findEvent(event)) !== undefined) return { status: 204 };
      return UNKNOWN_EVENT;
    },
  }),
  define({
    id: 'eraseTenantPayloads',
    method: 'DELETE',
    path: '/v1/tenants/{tenant}/payloads',
    summary: 'Erase the payloads of all events of a tenant',
    description:
      'Of the events that are stored now. If the response does not arrive, the work may go on; repeating the request completes it.',
    responses: { 200: { description: 'They are erased.', schema: schemas.erasedPayloads } },
    problems: ['busy', 'queue_unavailable'],
    async handle({ params: { tenant = '' } }, { queue, clock, running }) {
      if (running.erasures >= MAX_ERASURES) return toProblem('busy', `there are ${MAX_ERASURES} such requests already`);
      running.erasures++;
      try {
        return toJson(200, { erased: await queue.erase({ tenant }, clock.now()) });
      } finally {
        running.erasures--;
      }
    },
  }),
];

/** As one text, the body would be in memory several times. */
function* toPieces(view: object, body: Buffer): Generator<string> {
  const isText = isUtf8(body);
  const decoder = new StringDecoder(isText ? 'utf8' : 'base64');
  yield `${JSON.stringify(view).slice(0, -1)},"${isText ? 'body' : 'bodyBase64'}":"`;
  try {
    for (let at = 0; at < body.length; at += PIECE_BYTES)
      yield JSON.stringify(decoder.write(body.subarray(at, at + PIECE_BYTES))).slice(1, -1);
    yield `${decoder.end()}"}`;
  } finally {
    freeChunk(body);
  }
}

function toView({ id, type, tenant, createdAt, deliveries, waiting, failed }: EventRecord): schemas.OutgoingEvent {
  return { id, type, tenant, createdAt: toInstant(createdAt), deliveries, waiting, failed };
}

interface PostedEvent {
  readonly body: schemas.NewEventBody;
  /** The event in the content of the request. */
  readonly span: JsonSpan;
  /** Prefix of its members in error messages. */
  readonly field: string;
}

/** Not together with `store`: a function that waits for the queue would keep the parsed data in memory, which needs up to 30 times the memory of the body. */
function toNewEvents(
  posted: readonly PostedEvent[],
  { content, incoming }: Pick<ApiRequest<unknown, unknown>, 'content' | 'incoming'>,
  { registry, clock, settings }: OperationParts,
): NewEvent[] | ApiResponse {
  const metadata = toMetadata(incoming);
  const createdAt = clock.now();
  const events: NewEvent[] = [];
  const ids = new Set<string>();
  let deliveries = 0;
  for (const { body, span, field } of posted) {
    const { type, tenant, id = createEventId(), created = Math.floor(createdAt / 1_000) } = body;
    if (ids.has(id)) return toInvalid([{ field: `${field}id`, message: 'another event of the request has the same ID' }]);
    ids.add(id);
    const data = findMember(content, span, 'data') as JsonSpan;
    // Copied, because the request's buffer is freed after the response.
    const bytes = joinBody({ type, id, created }, content.subarray(data.from, data.to));
    if (bytes.length > settings.maxEventSize) return toTooLarge(bytes.length, settings.maxEventSize, field);
    const targets = registry.route({ type, tenant, data: body.data as Readonly<Record<string, unknown>> });
    // An event that is posted again differs in the time that was filled in.
    const comparedFrom = body.created === undefined ? bytes.length - (data.to - data.from) - 1 : 0;
    events.push({ id, type, tenant, createdAt, body: bytes, comparedFrom, metadata, targets });
    deliveries += targets.length;
    if (deliveries > MAX_DELIVERIES && events.length > 1)
      return toProblem('too_large', `the request has more than ${MAX_DELIVERIES} deliveries: post fewer events at once`);
  }
  return events;
}

async function store(
  events: readonly NewEvent[] | ApiResponse,
  { queue, registry, hooks }: OperationParts,
  toBody: (accepted: readonly object[]) => unknown,
): Promise<ApiResponse> {
  if ('status' in events) return events;
  const results = await queue.append(events, (event) => registry.route(toRouted(event)));
  const stored = events.filter((_, index) => results[index] === 'stored');
  hooks.onAccepted(stored, results.filter((result) => result === 'duplicate').length);
  if (results.includes('conflict')) return toConflict(events, results);
  const accepted = events.map(({ id, targets }, index) => {
    const isStored = results[index] === 'stored';
    return { id, duplicate: !isStored, endpoints: isStored ? targets.length : 0 };
  });
  return toJson(202, toBody(accepted));
}

function toConflict(events: readonly NewEvent[], results: readonly AppendResult[]): ApiResponse {
  const indexes = results.flatMap((result, index) => (result === 'conflict' ? [index] : []));
  const message = 'another event with this ID is stored';
  const one = `another event with the ID ${events[0]?.id} is stored, with other content; nothing was changed`;
  const many = `${indexes.length} of these IDs are stored already, with other content; all other events of the request are stored`;
  const errors = indexes.map((index) => ({ field: events.length === 1 ? 'id' : `events[${index}].id`, message }));
  return toProblem('conflict', events.length === 1 ? one : many, { errors });
}

function toTooLarge(bytes: number, most: number, field: string): ApiResponse {
  const error: FieldError = { field: `${field}data`, message: `the event has ${bytes} bytes; provider.maxEventSize is ${most}` };
  return toProblem('too_large', error.message, { errors: [error] });
}

/** The trace context of the request, in the form that `readTraceHeaders` reads. */
function toMetadata({ headersDistinct }: IncomingMessage): string {
  const parent = parseTraceparent(headersDistinct['traceparent'] ?? []);
  if (parent === undefined) return '{}';
  const tracestate = parseTracestate(headersDistinct['tracestate'] ?? []);
  return JSON.stringify({ traceparent: formatTraceparent(parent), tracestate });
}
