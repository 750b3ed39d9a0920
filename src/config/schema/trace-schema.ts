/** The schema of tracing: which incoming traces are continued, and where spans are exported to. */
import * as z from 'zod';
import { textSource } from './key-schema.ts';
import { count, filePath, timeLimit } from './scalars.ts';

const TRUST_MEANING =
  'Which incoming trace contexts (traceparent) are used: `always` continues the trace of every allowed request; `verified` starts a new trace and links to the span of a verified caller; `none` ignores them.';
const FIELD_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

function trace(trust: 'verified' | 'always') {
  return z.strictObject({ trust: z.enum(['none', 'verified', 'always']).default(trust).describe(TRUST_MEANING) }).prefault({});
}

/** For a route: its callers are third parties, even after they are verified. */
export const routeTrace = trace('verified');

/** For the forward proxy: its clients are authenticated and belong to the operator. */
export const proxyTrace = trace('always');

const otlp = z.strictObject({
  url: z
    .string()
    .refine((text) => URL.canParse(text) && ['http:', 'https:'].includes(new URL(text).protocol), {
      error: (issue) => `"${issue.input}" is not an http or https URL; write for example http://127.0.0.1:4318`,
    })
    .refine((text) => !URL.canParse(text) || (new URL(text).username === '' && new URL(text).password === ''), {
      error: 'the URL must not contain a user or password; use headers',
    })
    .meta({ examples: ['http://127.0.0.1:4318'] })
    .optional()
    .describe(
      'URL of the collector, which must accept OTLP/HTTP with JSON; without a path, spans are sent to /v1/traces. Default: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, then OTEL_EXPORTER_OTLP_ENDPOINT.',
    ),
  headers: z
    .record(z.string().regex(FIELD_NAME, 'a header name must be a token (RFC 9110 §5.6.2)'), textSource)
    .optional()
    .describe(
      'Headers of each export request, for example Authorization; each value is { env: NAME } or { file: PATH }. Default: OTEL_EXPORTER_OTLP_TRACES_HEADERS, then OTEL_EXPORTER_OTLP_HEADERS.',
    ),
  caFile: filePath
    .optional()
    .describe('PEM file of the CAs that may issue the certificate of the collector. Default: the CAs of the system.'),
  timeout: timeLimit().prefault('10s').describe('Maximum time of one export request.'),
  interval: timeLimit().prefault('5s').describe('Maximum time that a span waits to be exported in a batch.'),
  maxQueued: count.default(2_048).describe('Maximum number of queued spans; further ones are dropped and counted.'),
});

/** Without this section the gate starts no traces. */
export const tracing = z.strictObject({
  sampleRatio: z
    .number()
    .min(0)
    .max(1)
    .default(1)
    .describe('Share of new traces that are sampled. A continued trace keeps the decision of its caller.'),
  serviceName: z
    .string()
    .min(1)
    .max(255)
    .optional()
    .describe('`service.name` of the spans. Default: OTEL_SERVICE_NAME, then `sidegate`.'),
  resource: z
    .record(z.string().min(1).max(255), z.string().max(1_000))
    .default({})
    .describe(
      'Resource attributes of all spans, for example deployment.environment.name, in addition to OTEL_RESOURCE_ATTRIBUTES.',
    ),
  otlp: otlp.optional().describe('Exports spans to a collector. Default: no spans; only traceparent is forwarded.'),
});
