/** A span: one step of a request, as OpenTelemetry defines it. */
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { SpanReference } from '../../core/request-trace.ts';
import type { Tracer, TraceTrust } from './tracer.ts';

/** Plain values only, so that nothing large can get in. */
export type SpanAttributes = Readonly<Record<string, string | number>>;

/** A finished span. */
export interface Span extends SpanReference {
  readonly parentId: string | undefined;
  /** The parent span was created by another process. */
  readonly isParentRemote: boolean;
  readonly kind: 'server' | 'client';
  readonly name: string;
  /** May have a fractional part. */
  readonly startedAt: EpochMilliseconds;
  readonly endedAt: EpochMilliseconds;
  readonly attributes: SpanAttributes;
  readonly isError: boolean;
  readonly link: SpanReference | undefined;
}

/** How a route is traced. */
export interface RouteTrace {
  readonly trust: TraceTrust;
  /** The configured path of the route; undefined if it has none. */
  readonly template: string | undefined;
  /** Address of its app; undefined if each request names its own destination. */
  readonly app: { readonly host: string; readonly port: number } | undefined;
}

/** The tracing dependencies of the request pipelines. */
export interface Tracing {
  readonly tracer: Tracer;
  /** Receives spans; neither blocks nor throws. Undefined: no spans are recorded. */
  readonly onSpan?: ((span: Span) => void) | undefined;
}
