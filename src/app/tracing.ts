/** Builds the tracing that a config asks for. */
import type { TracingConfig } from '../config/config.ts';
import type { Tracing } from '../trace/span.ts';
import { Tracer } from '../trace/tracer.ts';

/** Builds it; left out, contexts of trusted callers are passed on and none are made. */
export function buildTracing(config: TracingConfig | undefined): Tracing {
  if (config === undefined) return { tracer: new Tracer({ part: 'pass', sampleRatio: 0 }) };
  return { tracer: new Tracer({ part: 'propagate', sampleRatio: config.sampleRatio }) };
}
