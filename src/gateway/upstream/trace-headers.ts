/** Writes the trace that a request is part of, for whoever gets it next (W3C Trace Context §3.2, §3.3). */
import type { RequestTrace } from '../../core/request-trace.ts';
import { formatTraceparent } from '../../telemetry/tracing/traceparent.ts';

/** Adds the field lines as raw pairs; what the caller wrote there must be gone. */
export function addTrace(out: string[], trace: RequestTrace | undefined): void {
  if (trace === undefined) return;
  const { traceId, appParentId: parentId, flags, tracestate } = trace;
  out.push('traceparent', formatTraceparent({ traceId, parentId, flags }));
  if (tracestate !== undefined) out.push('tracestate', tracestate);
}
