/** Decides which trace a request is part of: the caller's as far as the caller is trusted, else one of its own. */

import type { HeaderFields } from '../../core/headers.ts';
import type { RequestTrace, SpanReference } from '../../core/request-trace.ts';
import { TraceIds } from './trace-ids.ts';
import { parseTraceparent, RANDOM, SAMPLED } from './traceparent.ts';
import { parseTracestate } from './tracestate.ts';

/** Whose trace is continued: nobody's; nobody's, but a verified caller's is linked to; everybody's who is let through. */
export type TraceTrust = 'none' | 'verified' | 'always';

/** What is known of the caller: the gates vouch for it; it was let through without; it was turned away. */
export type TrustLevel = 'verified' | 'stranger' | 'refused';

/** How a gate traces. */
export interface TracerOptions {
  /** `pass`: makes no trace of its own; `propagate`: makes them, and nobody records; `record`: spans are kept, too. */
  readonly part: 'pass' | 'propagate' | 'record';
  /** Share of the traces begun here that are sampled, 0 to 1. */
  readonly sampleRatio: number;
  /** For tests. */
  readonly ids?: TraceIds;
}

/** The last 7 bytes of a trace id are what samplers go by (W3C Trace Context level 2, §3.2.2.3): of these the first 6. */
const RANDOMNESS_FROM = 18;
const RANDOMNESS_TO = 30;
const RANDOMNESS_RANGE = 2 ** 48;

/** The tracer of all ports. */
export class Tracer {
  readonly #options: TracerOptions;
  readonly #ids: TraceIds;

  constructor(options: TracerOptions) {
    this.#options = options;
    this.#ids = options.ids ?? new TraceIds();
  }

  /** The request's trace; undefined where it has none. `headers` are left out where they were not understood. */
  begin(trust: TraceTrust, trustLevel: TrustLevel, headers?: HeaderFields): RequestTrace | undefined {
    const { part } = this.#options;
    const continues = trust === 'always' && trustLevel !== 'refused';
    if (part === 'pass') return continues ? this.#continue(readContext(headers)) : undefined;
    if (continues) return this.#continue(readContext(headers)) ?? this.#start(undefined);
    // Whoever was turned away shall not write into the trace of somebody else, but whoever is trusted may be named.
    const links = trust === 'always' || (trust === 'verified' && trustLevel === 'verified');
    return this.#start(links ? readContext(headers) : undefined);
  }

  #continue(context: SpanReference | undefined): RequestTrace | undefined {
    if (context === undefined) return undefined;
    const { traceId, spanId: parentId, flags, tracestate } = context;
    const isRecorded = this.#options.part === 'record' && (flags & SAMPLED) !== 0;
    // A span that nobody records would be a gap in the trace: who comes next hangs on the caller's own.
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

  /** By the id, so that everybody who goes by the same share decides the same. */
  #isSampled(traceId: string): boolean {
    const { sampleRatio } = this.#options;
    if (sampleRatio === 0 || sampleRatio === 1) return sampleRatio === 1;
    const randomness = Number.parseInt(traceId.slice(RANDOMNESS_FROM, RANDOMNESS_TO), 16);
    return randomness >= (1 - sampleRatio) * RANDOMNESS_RANGE;
  }
}

/** Without a valid traceparent nothing of tracestate is read (W3C Trace Context §3.3). */
function readContext(headers: HeaderFields | undefined): SpanReference | undefined {
  if (headers?.get('traceparent') === undefined) return undefined;
  const parsed = parseTraceparent(headers.all('traceparent'));
  if (parsed === undefined) return undefined;
  const { traceId, parentId, flags } = parsed;
  return { traceId, spanId: parentId, flags, tracestate: parseTracestate(headers.all('tracestate')) };
}
