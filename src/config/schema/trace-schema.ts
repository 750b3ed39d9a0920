/** The schema of tracing: whose traces are continued, and where the gate's own spans go. */
import * as z from 'zod';
import { tokenSource } from './key-schema.ts';
import { count, duration, filePath } from './scalars.ts';

const TRUST_MEANING =
  "Whose trace (traceparent) is continued: `always` that of everybody who is let through; `verified` nobody's, but the span of a verified caller is linked to; `none` nobody's.";
const FIELD_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

function trace(usual: 'verified' | 'always') {
  return z.strictObject({ trust: z.enum(['none', 'verified', 'always']).default(usual).describe(TRUST_MEANING) }).prefault({});
}

/** Of a route: its callers are strangers until they are verified, and third parties then. */
export const routeTrace = trace('verified');

/** Of the forward proxy: its clients have shown a password, and are one's own. */
export const proxyTrace = trace('always');

const otlp = z.strictObject({
  url: z
    .string()
    .refine((text) => URL.canParse(text) && ['http:', 'https:'].includes(new URL(text).protocol), {
      error: (issue) => `"${issue.input}" is no http or https URL; write for example http://127.0.0.1:4318`,
    })
    .refine((text) => !URL.canParse(text) || (new URL(text).username === '' && new URL(text).password === ''), {
      error: 'no user or password stands in the URL; use headers',
    })
    .meta({ examples: ['http://127.0.0.1:4318'] })
    .optional()
    .describe(
      'Where spans are sent, as OTLP/HTTP in JSON; without a path, to /v1/traces. Left out: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, or OTEL_EXPORTER_OTLP_ENDPOINT.',
    ),
  headers: z
    .record(z.string().regex(FIELD_NAME, 'a header name is a token'), tokenSource)
    .optional()
    .describe(
      'Header fields of each export, for example Authorization, by { env: NAME } or { file: PATH }. Left out: OTEL_EXPORTER_OTLP_TRACES_HEADERS, or OTEL_EXPORTER_OTLP_HEADERS.',
    ),
  caFile: filePath.optional().describe('Authorities (PEM) of an https collector. Left out: those of the system.'),
  timeout: duration().prefault('10s').describe('How long one export may take.'),
  interval: duration().prefault('5s').describe('How long a span waits at most for others to be sent with.'),
  maxQueued: count.default(2_048).describe('Spans that may wait; further ones are dropped and counted.'),
});

/** Left out: the gate makes no traces of its own. */
export const tracing = z.strictObject({
  sampleRatio: z
    .number()
    .min(0)
    .max(1)
    .default(1)
    .describe('Share of the traces begun here that are recorded; a continued one is as its caller has it.'),
  serviceName: z
    .string()
    .min(1)
    .max(255)
    .optional()
    .describe('`service.name` of the spans. Left out: OTEL_SERVICE_NAME, or sidegate.'),
  resource: z
    .record(z.string().min(1).max(255), z.string().max(1_000))
    .default({})
    .describe('Further attributes of all spans, for example deployment.environment.name; beside OTEL_RESOURCE_ATTRIBUTES.'),
  otlp: otlp.optional().describe('Send spans to a collector. Left out: none are made, but traceparent is.'),
});
