/** The span of a delivery attempt, by OpenTelemetry's conventions: part of the trace in which the app created the event. */
import { randomBytes } from 'node:crypto';
import type { Span } from '../../telemetry/tracing/span.ts';
import { parseTraceparent, SAMPLED } from '../../telemetry/tracing/traceparent.ts';
import type { AttemptResult } from '../attempt/attempt.ts';
import type { Endpoint } from '../endpoints/endpoint.ts';
import { readTraceHeaders } from '../events/trace-metadata.ts';
import type { Delivery } from '../queue/delivery-queue.ts';

const SPAN_ID_BYTES = 8;

/** Returns undefined if the event has no trace, or one that the app did not record. */
export function toAttemptSpan(delivery: Delivery, endpoint: Endpoint, result: AttemptResult): Span | undefined {
  const headers = new Map(readTraceHeaders(delivery.metadata));
  const traceparent = headers.get('traceparent');
  const parent = traceparent === undefined ? undefined : parseTraceparent([traceparent]);
  if (parent === undefined || (parent.flags & SAMPLED) === 0) return undefined;
  const isDelivered = result.outcome === 'delivered';
  return {
    traceId: parent.traceId,
    spanId: randomBytes(SPAN_ID_BYTES).toString('hex'),
    flags: parent.flags,
    tracestate: headers.get('tracestate'),
    parentId: parent.parentId,
    isParentRemote: true,
    kind: 'client',
    name: 'POST',
    startedAt: result.startedAt,
    endedAt: result.startedAt + result.duration,
    attributes: {
      'http.request.method': 'POST',
      ...(result.status === undefined ? undefined : { 'http.response.status_code': result.status }),
      ...(isDelivered ? undefined : { 'error.type': result.status === undefined ? result.outcome : String(result.status) }),
      'http.request.resend_count': delivery.attempt,
      'messaging.message.id': delivery.event,
      'sidegate.endpoint': endpoint.id,
    },
    isError: !isDelivered,
    link: undefined,
  };
}
