/** The operations of events: they are accepted once the queue has stored them durably. */
import { isUtf8 } from 'node:buffer';
import type { IncomingMessage } from 'node:http';
import { toInstant } from '../../core/clock.ts';
import { findMember, type JsonSpan, listElements, toWholeSpan } from '../../core/json-scan.ts';
import { type ApiResponse, defineOperation, type Operation, toJson } from '../../http-api/operation.ts';
import { type FieldError, toInvalid, toProblem } from '../../http-api/problem.ts';
import { formatTraceparent, parseTraceparent } from '../../telemetry/tracing/traceparent.ts';
import { parseTracestate } from '../../telemetry/tracing/tracestate.ts';
import { createEventId, joinBody } from '../events/event.ts';
import type { NewEvent } from '../queue/delivery-queue.ts';
import type { OperationParts } from './api-parts.ts';
import { acceptedEvent, acceptedEvents, type NewEventBody, newEvent, newEvents, storedEvent } from './event-schemas.ts';

/** For the members of a request besides `data`, and whitespace. */
const ENVELOPE_BYTES = 2_048;
/** In one request: they are stored in one transaction, which takes Redis about 10 µs for each, and Redis does nothing else meanwhile. */
const MAX_DELIVERIES = 10_000;
const MIN_BATCH_BYTES = 1024 * 1024;
const ACCEPT_PROBLEMS = ['too_large', 'queue_full', 'queue_unavailable', 'busy'] as const;

/** The largest body of a request with one event. */
function toMaxBytes(maxEventSize: number): number {
  return maxEventSize + ENVELOPE_BYTES;
}

/** The largest body of a request with many events. */
export function toMaxBatchBytes(maxEventSize: number): number {
  return Math.max(MIN_BATCH_BYTES, toMaxBytes(maxEventSize));
}

/** Builds the operations. */
export function createEventOperations(parts: OperationParts): Operation[] {
  return [createAccept(parts), createAcceptBatch(parts), createGet(parts)];
}

function createAccept(parts: OperationParts): Operation {
  return defineOperation({
    id: 'createEvent',
    method: 'POST',
    path: '/v1/events',
    tag: 'Events',
    summary: 'Accept an event',
    description:
      'Stores the event durably, and delivers it to all endpoints that select it. A `traceparent` of the request is continued by the deliveries.',
    body: { schema: newEvent, maxBytes: toMaxBytes(parts.settings.maxEventSize) },
    responses: { 202: { description: 'The event is stored.', schema: acceptedEvent } },
    problems: ACCEPT_PROBLEMS,
    handle({ body, content, incoming }) {
      const events = toNewEvents([{ body, content, span: toWholeSpan(content), field: '' }], incoming, parts);
      return Array.isArray(events) ? store(events, parts).then(([accepted]) => toJson(202, accepted)) : (events as ApiResponse);
    },
  });
}

function createAcceptBatch(parts: OperationParts): Operation {
  return defineOperation({
    id: 'createEvents',
    method: 'POST',
    path: '/v1/events:batch',
    tag: 'Events',
    summary: 'Accept up to 100 events',
    description: 'Stores all events durably, or none of them.',
    body: { schema: newEvents, maxBytes: toMaxBatchBytes(parts.settings.maxEventSize) },
    responses: { 202: { description: 'All events are stored.', schema: acceptedEvents } },
    problems: ACCEPT_PROBLEMS,
    handle({ body, content, incoming }) {
      const list = findMember(content, toWholeSpan(content), 'events') as JsonSpan;
      const spans = [...listElements(content, list)];
      const posted = body.events.map((event, index) => ({
        body: event,
        content,
        span: spans[index] as JsonSpan,
        field: `events[${index}].`,
      }));
      const events = toNewEvents(posted, incoming, parts);
      return Array.isArray(events)
        ? store(events, parts).then((accepted) => toJson(202, { events: accepted }))
        : (events as ApiResponse);
    },
  });
}

function createGet({ queue }: OperationParts): Operation {
  return defineOperation({
    id: 'getEvent',
    method: 'GET',
    path: '/v1/events/{event}',
    tag: 'Events',
    summary: 'Show a stored event',
    responses: { 200: { description: 'The event.', schema: storedEvent } },
    problems: ['not_found', 'queue_unavailable'],
    async handle({ params: { event = '' } }) {
      const found = await queue.getEvent(event);
      if (found === undefined) return toProblem('not_found', 'there is no event with this ID, or it is no longer stored');
      const { id, type, channel, createdAt, body } = found;
      const text = isUtf8(body) ? { body: body.toString('utf8') } : { bodyBase64: body.toString('base64') };
      return toJson(200, { id, type, channel, createdAt: toInstant(createdAt), ...text });
    },
  });
}

/** An event in a request. */
interface PostedEvent {
  readonly body: NewEventBody;
  readonly content: Buffer;
  /** The event in `content`. */
  readonly span: JsonSpan;
  /** Prefix of its members in error messages. */
  readonly field: string;
}

interface Accepted {
  readonly id: string;
  readonly duplicate: boolean;
  readonly endpoints: number;
}

/**
 * Not together with `store`: a function that waits for the queue would keep the parsed data in memory, which needs up to 30 times the
 * memory of the body.
 */
function toNewEvents(
  posted: readonly PostedEvent[],
  incoming: IncomingMessage,
  { registry, clock, settings }: OperationParts,
): NewEvent[] | ApiResponse {
  const metadata = toMetadata(incoming);
  const createdAt = clock.now();
  const events: NewEvent[] = [];
  const ids = new Set<string>();
  let deliveries = 0;
  for (const { body, content, span, field } of posted) {
    const { type, channel, id = createEventId(), created = Math.floor(createdAt / 1_000) } = body;
    if (ids.has(id)) return toInvalid([{ field: `${field}id`, message: 'another event of the request has the same ID' }]);
    ids.add(id);
    const data = findMember(content, span, 'data') as JsonSpan;
    // Copied, because the request's buffer is freed after the response.
    const bytes = joinBody({ type, id, created }, content.subarray(data.from, data.to));
    if (bytes.length > settings.maxEventSize) return toTooLarge(bytes.length, settings.maxEventSize, field);
    const targets = registry.route({ type, channel, data: body.data as Readonly<Record<string, unknown>> });
    events.push({ id, type, channel, createdAt, body: bytes, metadata, targets });
    deliveries += targets.length;
    if (deliveries > MAX_DELIVERIES && events.length > 1)
      return toProblem('too_large', `the request has more than ${MAX_DELIVERIES} deliveries: post fewer events at once`);
  }
  return events;
}

async function store(events: readonly NewEvent[], { queue, hooks }: OperationParts): Promise<Accepted[]> {
  const results = await queue.append(events);
  const duplicates = results.filter((result) => result === 'duplicate').length;
  if (duplicates < results.length) hooks.onAccepted('stored', results.length - duplicates);
  if (duplicates > 0) hooks.onAccepted('duplicate', duplicates);
  return events.map(({ id, targets }, index) => ({
    id,
    duplicate: results[index] === 'duplicate',
    endpoints: targets.length,
  }));
}

function toTooLarge(bytes: number, most: number, field: string): ApiResponse {
  const error: FieldError = { field: `${field}data`, message: `the event has ${bytes} bytes; provider.maxEventSize is ${most}` };
  return toProblem('too_large', error.message, { errors: [error] });
}

/** The trace context of the request, in the form that events/trace-metadata.ts reads. */
function toMetadata({ headersDistinct }: IncomingMessage): string {
  const parent = parseTraceparent(headersDistinct['traceparent'] ?? []);
  if (parent === undefined) return '{}';
  const tracestate = parseTracestate(headersDistinct['tracestate'] ?? []);
  return JSON.stringify({ traceparent: formatTraceparent(parent), tracestate });
}
