/** Writes spans as OTLP in JSON (opentelemetry-proto, ExportTraceServiceRequest): ids in hex, 64-bit numbers as text. */
import type { SpanReference } from '../../../core/request-trace.ts';
import type { Span, SpanAttributes } from '../span.ts';

/** Who tells: the resource's attributes, and the version of the gate. */
export interface SpanSource {
  readonly resource: SpanAttributes;
  readonly version: string;
}

const KINDS = { server: 2, client: 3 } as const;
const STATUS_ERROR = 2;
/** Bits 8 and 9 of a span's flags: it is known whether the parent is remote, and it is. */
const KNOWS_REMOTE = 0x100;
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
    flags: flags | KNOWS_REMOTE | (isRemote ? IS_REMOTE : 0),
  };
}

function toAttributes(attributes: SpanAttributes): object[] {
  return Object.entries(attributes).map(([key, value]) => ({
    key,
    value: typeof value === 'string' ? { stringValue: value } : { intValue: String(value) },
  }));
}

/** Microseconds are what a number still holds exactly. */
function toNanoseconds(at: number): string {
  return `${Math.round(at * 1_000)}000`;
}
