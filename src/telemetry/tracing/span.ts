/** What is told of one step of a request (OpenTelemetry's span), and who takes it. */
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { SpanReference } from '../../core/request-trace.ts';
import type { Tracer, TraceTrust } from './tracer.ts';

/** Plain values only, so that nothing large slips in. */
export type SpanAttributes = Readonly<Record<string, string | number>>;

/** A span that is over. */
export interface Span extends SpanReference {
  readonly parentId: string | undefined;
  /** The parent is somebody else's. */
  readonly isParentRemote: boolean;
  readonly kind: 'server' | 'client';
  readonly name: string;
  /** With a fraction. */
  readonly startedAt: EpochMilliseconds;
  readonly endedAt: EpochMilliseconds;
  readonly attributes: SpanAttributes;
  readonly isError: boolean;
  readonly link: SpanReference | undefined;
}

/** How spans of a route are told, and whose traces it continues. */
export interface RouteTrace {
  readonly trust: TraceTrust;
  /** The path that the route is configured for; undefined where it has none. */
  readonly template: string | undefined;
  /** Where its app is; undefined where that is the request's to say. */
  readonly app: { readonly host: string; readonly port: number } | undefined;
}

/** What the request pipelines trace by. */
export interface Tracing {
  readonly tracer: Tracer;
  /** Takes spans; neither waits nor throws. Left out: nobody records. */
  readonly onSpan?: ((span: Span) => void) | undefined;
}
