/** The header fields that carry a trace context: those of the standard, and those of older tracing systems. */

/** Whole names, folded (core/headers.ts). */
const NAMES = new Set([
  'traceparent',
  'tracestate',
  'baggage',
  'b3',
  'uber-trace-id',
  'jaeger-baggage',
  'jaeger-debug-id',
  'sentry-trace',
  'x-cloud-trace-context',
  'grpc-trace-bin',
  'x-amzn-trace-id',
  'newrelic',
  'elastic-apm-traceparent',
  'x-ot-span-context',
]);
const PREFIXES = ['x-b3-', 'x-datadog-', 'uberctx-', 'ot-tracer-', 'ot-baggage-'];

/** `name`: folded. */
export function isTraceField(name: string): boolean {
  return NAMES.has(name) || PREFIXES.some((prefix) => name.startsWith(prefix));
}
