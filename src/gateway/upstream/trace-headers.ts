/** Writes the trace context of a request for the next hop (W3C Trace Context §3.2, §3.3). */

import { formatTraceparent } from '../../telemetry/tracing/traceparent.ts';
import type { RequestTrace } from '../../telemetry/tracing/tracer.ts';

/** Adds the field lines as raw pairs. The caller must have removed the client's own fields. */
export function addTrace(out: string[], trace: RequestTrace | undefined): void {
  if (trace === undefined) return;
  const { traceId, appParentId: parentId, flags, tracestate } = trace;
  out.push('traceparent', formatTraceparent({ traceId, parentId, flags }));
  if (tracestate !== undefined) out.push('tracestate', tracestate);
}
