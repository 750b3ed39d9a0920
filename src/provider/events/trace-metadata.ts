/** The trace context of an event in the metadata that the queue stores: JSON with `traceparent` and `tracestate`, both optional. */
import { formatTraceparent, parseTraceparent } from '../../telemetry/tracing/traceparent.ts';
import { parseTracestate } from '../../telemetry/tracing/tracestate.ts';

const NONE: readonly (readonly [string, string])[] = [];

/** The headers that continue the trace; none if the metadata has no valid trace context. Never throws. */
export function readTraceHeaders(metadata: string): readonly (readonly [name: string, value: string])[] {
  // Most events have no trace, and parsing costs more than this search.
  if (!metadata.includes('"traceparent"')) return NONE;
  const { traceparent, tracestate } = parseObject(metadata);
  const parent = typeof traceparent === 'string' ? parseTraceparent([traceparent]) : undefined;
  if (parent === undefined) return NONE;
  const state = typeof tracestate === 'string' ? parseTracestate([tracestate]) : undefined;
  const header = ['traceparent', formatTraceparent(parent)] as const;
  return state === undefined ? [header] : [header, ['tracestate', state]];
}

function parseObject(text: string): Readonly<Record<string, unknown>> {
  try {
    return Object(JSON.parse(text)) as Readonly<Record<string, unknown>>;
  } catch {
    return {};
  }
}
