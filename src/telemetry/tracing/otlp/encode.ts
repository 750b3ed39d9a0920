/** Encodes spans as OTLP JSON (opentelemetry-proto, ExportTraceServiceRequest): IDs in hex, 64-bit integers as strings. */
import type { SpanReference } from '../../../core/request-trace.ts';
import type { Span, SpanAttributes } from '../span.ts';

/** The source of the spans: the attributes of its resource, and its version. */
export interface SpanSource {
  readonly resource: SpanAttributes;
  readonly version: string;
}

const KINDS = { server: 2, client: 3 } as const;
const STATUS_ERROR = 2;
/** Bits 8 and 9 of a span's flags: whether it is known that the parent is remote, and whether it is. */
const HAS_IS_REMOTE = 0x100;
const IS_REMOTE = 0x200;

/** The body of one export. */
export function toExport(spans: readonly Span[], { resource, version }: SpanSource): string {
  return JSON.stringify({
    resourceSpans: [
      {
        resource: { attributes: toAttributes(resource) },
        scopeSpans: [{ scope: { name: 'sidegate', version }, spans: spans.map(toSpan) }],
      },
    ],
  });
}

function toSpan(span: Span): object {
  const { parentId, kind, name, startedAt, endedAt, attributes, isError, link } = span;
  return {
    ...toReference(span, span.isParentRemote),
    ...(parentId === undefined ? undefined : { parentSpanId: parentId }),
    name,
    kind: KINDS[kind],
    startTimeUnixNano: toNanoseconds(startedAt),
    endTimeUnixNano: toNanoseconds(endedAt),
    attributes: toAttributes(attributes),
    ...(link === undefined ? undefined : { links: [toReference(link, true)] }),
    status: isError ? { code: STATUS_ERROR } : {},
  };
}

function toReference({ traceId, spanId, flags, tracestate }: SpanReference, isRemote: boolean): object {
  return {
    traceId,
    spanId,
    ...(tracestate === undefined ? undefined : { traceState: tracestate }),
    flags: flags | HAS_IS_REMOTE | (isRemote ? IS_REMOTE : 0),
  };
}

function toAttributes(attributes: SpanAttributes): object[] {
  return Object.entries(attributes).map(([key, value]) => ({
    key,
    value: typeof value === 'string' ? { stringValue: value } : { intValue: String(value) },
  }));
}

/** With microsecond precision, the finest that a number represents exactly. */
function toNanoseconds(at: number): string {
  return `${Math.round(at * 1_000)}000`;
}
