/** Decides which trace a request belongs to: the caller's if the caller is trusted, otherwise a new one. */
import { randomFillSync } from 'node:crypto';
import type { Registry } from '@prometheus-io/client';
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { HeaderFields } from '../../core/head.ts';
import { createFamilies } from '../metrics/series.ts';
import { parseTraceparent, parseTracestate, RANDOM, SAMPLED } from './trace-context.ts';

/** A span that another party recorded, as it is referenced in a message. */
export interface SpanReference {
  /** 32 lower-case hex digits. */
  readonly traceId: string;
  /** 16 lower-case hex digits. */
  readonly spanId: string;
  readonly flags: number;
  readonly tracestate: string | undefined;
}

/** The trace that a request is part of; IDs as in SpanReference. */
export interface RequestTrace {
  readonly traceId: string;
  /** The span ID in log lines: sidegate's own span or, if none is recorded, the parent of the app's span. */
  readonly spanId: string;
  /** The parent span ID that the app gets. */
  readonly appParentId: string;
  readonly flags: number;
  /** Whether spans of sidegate are recorded and exported. */
  readonly isRecorded: boolean;
  /** The caller's span, if its trace is continued. */
  readonly parentId: string | undefined;
  readonly tracestate: string | undefined;
  /** The caller's span, if it is only linked. */
  readonly link: SpanReference | undefined;
}

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

const POOL_BYTES = 6_144;
const TRACE_BYTES = 16;
const SPAN_BYTES = 8;
const ONLY_ZEROS = /^0+$/;

/** The callers whose traces are continued. `none`: no traces. `verified`: none, but the traces of verified callers are linked. `always`: those of all allowed callers. */
export type TraceTrust = 'none' | 'verified' | 'always';

/** How far the caller is trusted. `verified`: a gate verified it. `unverified`: allowed without verification. `rejected`: not allowed. */
export type TrustLevel = 'verified' | 'unverified' | 'rejected';

/** Samplers use the last 7 bytes of a trace ID (W3C Trace Context level 2, §3.2.2.3); this one uses the first 6 of them. */
const RANDOMNESS_FROM = 18;
const RANDOMNESS_TO = 30;
const RANDOMNESS_RANGE = 2 ** 48;

/** The tracer of all ports. */
export class Tracer {
  readonly #options;
  readonly #ids: TraceIds;

  constructor(options: {
    /** `pass`: starts no traces; `propagate`: starts traces without recording spans; `record`: also records spans. */
    readonly part: 'pass' | 'propagate' | 'record';
    /** Share of new traces that are sampled, 0 to 1. */
    readonly sampleRatio: number;
    /** For tests. */
    readonly ids?: TraceIds;
  }) {
    this.#options = options;
    this.#ids = options.ids ?? new TraceIds();
  }

  /** Returns the request's trace; undefined if it has none. `headers`: undefined if they could not be parsed. */
  begin(trust: TraceTrust, trustLevel: TrustLevel, headers?: HeaderFields): RequestTrace | undefined {
    const { part } = this.#options;
    const continues = trust === 'always' && trustLevel !== 'rejected';
    if (part === 'pass') return continues ? this.#continue(readContext(headers)) : undefined;
    if (continues) return this.#continue(readContext(headers)) ?? this.#start(undefined);
    // A rejected caller must not write into another party's trace, but a trusted one may be linked.
    const links = trust === 'always' || (trust === 'verified' && trustLevel === 'verified');
    return this.#start(links ? readContext(headers) : undefined);
  }

  #continue(context: SpanReference | undefined): RequestTrace | undefined {
    if (context === undefined) return undefined;
    const { traceId, spanId: parentId, flags, tracestate } = context;
    const isRecorded = this.#options.part === 'record' && (flags & SAMPLED) !== 0;
    // An unrecorded span would be a gap in the trace, so the app's span becomes a child of the caller's span.
    const own = isRecorded
      ? { spanId: this.#ids.span(), appParentId: this.#ids.span() }
      : { spanId: parentId, appParentId: parentId };
    return { traceId, ...own, flags, isRecorded, parentId, tracestate, link: undefined };
  }

  #start(link: SpanReference | undefined): RequestTrace {
    const traceId = this.#ids.trace();
    const isSampled = this.#isSampled(traceId);
    const isRecorded = this.#options.part === 'record' && isSampled;
    const spanId = this.#ids.span();
    const appParentId = isRecorded ? this.#ids.span() : spanId;
    const flags = isSampled ? RANDOM | SAMPLED : RANDOM;
    return { traceId, spanId, appParentId, flags, isRecorded, parentId: undefined, tracestate: undefined, link };
  }

  /** Decides by the ID, so that every sampler with the same ratio decides alike. */
  #isSampled(traceId: string): boolean {
    const { sampleRatio } = this.#options;
    if (sampleRatio === 0 || sampleRatio === 1) return sampleRatio === 1;
    const randomness = Number.parseInt(traceId.slice(RANDOMNESS_FROM, RANDOMNESS_TO), 16);
    return randomness >= (1 - sampleRatio) * RANDOMNESS_RANGE;
  }
}

/** Without a valid traceparent the tracestate is ignored (W3C Trace Context §3.3). */
function readContext(headers: HeaderFields | undefined): SpanReference | undefined {
  if (headers?.get('traceparent') === undefined) return undefined;
  const parsed = parseTraceparent(headers.all('traceparent'));
  if (parsed === undefined) return undefined;
  const { traceId, parentId, flags } = parsed;
  return { traceId, spanId: parentId, flags, tracestate: parseTracestate(headers.all('tracestate')) };
}

/** The pool. */
export class TraceIds {
  readonly #pool = Buffer.alloc(POOL_BYTES);
  readonly #fill: (pool: Buffer) => void;
  #at = POOL_BYTES;

  /** `fill`: the source of the bytes, for tests. */
  constructor(fill: (pool: Buffer) => void = randomFillSync) {
    this.#fill = fill;
  }

  /** 32 lower-case hex digits. */
  trace(): string {
    return this.#take(TRACE_BYTES);
  }

  /** 16 lower-case hex digits. */
  span(): string {
    return this.#take(SPAN_BYTES);
  }

  #take(bytes: number): string {
    for (;;) {
      if (this.#at + bytes > POOL_BYTES) {
        this.#fill(this.#pool);
        this.#at = 0;
      }
      const id = this.#pool.toString('hex', this.#at, this.#at + bytes);
      this.#at += bytes;
      // An ID of all zeros is invalid (W3C Trace Context §3.2.2.3); its probability is 2^-64.
      if (id.charCodeAt(0) !== 0x30 || !ONLY_ZEROS.test(id)) return id;
    }
  }
}

/** Outcomes of spans. `dropped`: the queue was full; `rejected`: by the collector; `failed`: the collector could not be reached. */
const SPAN_OUTCOMES = ['exported', 'dropped', 'rejected', 'failed'] as const;
export type SpanOutcome = (typeof SPAN_OUTCOMES)[number];

/** The metrics of tracing. */
export interface TracingMetrics {
  traceSpans(outcome: SpanOutcome, count: number): void;
}

/** Registers the metrics. */
export function createTracingMetrics(registers: Registry[]): TracingMetrics {
  const spans = createFamilies(registers).counter(
    'sidegate_trace_spans_total{outcome}',
    'Spans of sampled requests, by outcome.',
  );
  for (const outcome of SPAN_OUTCOMES) spans.series(outcome);
  return { traceSpans: (outcome, count) => spans.series(outcome).add(count) };
}
