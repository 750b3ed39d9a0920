/** The schema of fixture files: requests, and what a config is expected to make of them (`sidegate test`). */
import { isIP } from 'node:net';
import * as z from 'zod';
import { PRESETS } from '../../auth/schemes/catalogue.ts';
import { findNearest } from '../../config/schema/did-you-mean.ts';
import { duration, envName, filePath, instant, NAME } from '../../config/schema/scalars.ts';
import { REFUSALS } from '../../core/refusal-catalogue.ts';
import { UPSTREAM_FAILURES, type UpstreamFailureKind } from '../../gateway/upstream/upstream.ts';

/** Header fields and methods are tokens (RFC 9110 §5.6.2). */
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const CERTIFICATE_NAME = /^(?:CN|DNS|URI|email|IP Address):[^\r\n]+$/;
const SIGNED_DURATION = /^[+-]/;
const VERDICTS = ['forwarded', ...Object.keys(REFUSALS)];

/** One of a list that is too long to be told in an error. */
function oneOf(values: readonly string[], what: string, known: string) {
  return z
    .string()
    .meta({ enum: values })
    .superRefine((text, context) => {
      if (values.includes(text)) return;
      const nearest = findNearest(text, values);
      const hint = nearest === undefined ? `it is ${known}` : `did you mean "${nearest}"?`;
      context.addIssue({ code: 'custom', message: `"${text}" is no ${what}; ${hint}` });
    });
}

const verdict = oneOf(VERDICTS, 'verdict', 'forwarded, or the code of a refusal (docs/refusals.md)');
const headerName = z.string().regex(TOKEN, 'a header name is a token');
/** Whatever fits on one line of a head, as latin1: that a value is odd may be what is tested. */
const headerValue = z
  .string({ error: () => 'expected text; put numbers in quotes' })
  .regex(/^[\t\x20-\x7e\x80-\xff]*$/, 'a header value is one line of latin1 text');
const headerLines = z.union([headerValue, z.array(headerValue).min(1)], {
  error: 'expected text, or a list of it for several lines; put numbers in quotes',
});
const sentHeaders = z.record(headerName, headerLines);
const seenHeaders = z
  .record(headerName, z.union([headerLines, z.boolean()], { error: 'expected text, true (whatever it says) or false (absent)' }))
  .describe('By name: the text, a list where it has several lines, `true` where any will do, `false` where it must be absent.');

const status = z.int().min(200, 'a status is 200 to 599').max(599, 'a status is 200 to 599');

const app = z
  .union(
    [
      status.transform((code) => ({ status: code })),
      z.strictObject({
        fails: oneOf(UPSTREAM_FAILURES, 'failure', UPSTREAM_FAILURES.join(', '))
          .transform((kind) => kind as UpstreamFailureKind)
          .describe('How it fails instead of answering.'),
      }),
      z.strictObject({
        status: status.default(200).describe('Of its answer; anything but 2xx makes the gate let a retry through.'),
        headers: sentHeaders.default({}).describe('Of its answer.'),
        body: z.string().default('').describe('Of its answer.'),
        after: duration().prefault('0s').describe('How long it takes to answer; longer than the route waits is a timeout.'),
      }),
    ],
    { error: 'expected a status such as 503, { status: 503, after: 2s } or { fails: timeout }' },
  )
  .describe('How the app deals with the request, should it get there. Left out: 200 at once.');

const request = z
  .strictObject({
    method: z
      .string()
      .regex(TOKEN, 'a method is a token such as POST')
      .optional()
      .describe('Left out: POST with content, else GET.'),
    path: z
      .string()
      .regex(/^[\x21-\x7e]+$/, 'a path is visible ASCII without spaces')
      .describe('With the query, byte for byte as it is sent.'),
    host: z
      .string()
      .regex(/^[\x21-\x7e]+$/, 'a host is visible ASCII without spaces')
      .default('sidegate.test')
      .describe('The Host field.'),
    headers: sentHeaders
      .default({})
      .describe('Further fields; a list for several lines. Host, Content-Length and Content-Type stand here only to differ.'),
    body: z.string().optional().describe('The content as text.'),
    json: z.unknown().optional().describe('The content as YAML; sent as compact JSON.'),
    bodyFile: filePath.optional().describe('File with the content, byte for byte. Relative paths count from the fixture file.'),
    bodyBase64: z.base64('this is not base64').optional().describe('The content in base64.'),
    client: z
      .string()
      .refine((text) => isIP(text) !== 0, { error: (issue) => `"${issue.input}" is no IP address` })
      .default('192.0.2.1')
      .describe('Address of the other end of the connection: the client, or the proxy before the gate.'),
    tls: z.boolean().optional().describe('It came by https. Left out: where the config has listen.tls.'),
    certificate: z
      .array(z.string().regex(CERTIFICATE_NAME, 'a name has its kind before it, such as URI:spiffe://prod/billing or CN:client'))
      .min(1)
      .optional()
      .describe('Names in the certificate that the client showed, as in `clientCertificate.names`.'),
    user: z.string().optional().describe('Sent as HTTP Basic, with `password`.'),
    password: z.string().optional().describe('A test password; it stands here as it is.'),
  })
  .superRefine(({ body, json, bodyFile, bodyBase64, user, password, headers }, context) => {
    const complain = (key: string, message: string): void => context.addIssue({ code: 'custom', path: [key], message });
    const given = Object.entries({ body, json, bodyFile, bodyBase64 }).filter(([, value]) => value !== undefined);
    const [, second] = given;
    if (second !== undefined) complain(second[0], `the content is given twice, as ${given.map(([key]) => key).join(' and ')}`);
    if ((user === undefined) !== (password === undefined))
      complain(user === undefined ? 'password' : 'user', 'user and password go together');
    if (user !== undefined && Object.keys(headers).some((name) => name.toLowerCase() === 'authorization'))
      complain('user', 'Authorization is given twice, here and in headers');
  });

const sign = z.strictObject({
  route: z.string().optional().describe('Whose scheme and keys. Left out: the route that takes the request.'),
  key: z
    .string()
    .regex(NAME, 'a key is named as in the config')
    .optional()
    .describe("Name of one of the route's keys. Left out: its first."),
  secret: z
    .string()
    .min(1)
    .optional()
    .describe('Another secret than a key of the route: that of a stranger, or the private half of a public key.'),
  scheme: oneOf(
    PRESETS.map(({ name }) => name),
    'preset',
    'one of docs/config.md',
  )
    .optional()
    .describe("Another preset than the route's scheme, for what a sender of that kind would send."),
  id: z
    .string()
    .optional()
    .describe('Where a header holds the id. Left out: one that is the same each time, and another in each step.'),
  timestampOffset: z
    .string({ error: () => 'expected text such as -10m' })
    .meta({ examples: ['-10m'] })
    .transform((text, context) => {
      const parsed = duration().safeParse(text.replace(SIGNED_DURATION, ''));
      if (parsed.success) return text.startsWith('-') ? -parsed.data : parsed.data;
      context.addIssue({ code: 'custom', message: `"${text}" is no offset; write for example -10m or +10m` });
      return z.NEVER;
    })
    .optional()
    .describe('How far the signed time lies from that of the request.'),
  tamper: z.enum(['body', 'id', 'timestamp', 'signature']).optional().describe('What is changed once it is signed.'),
});

const seen = z.strictObject({
  path: z.string().optional().describe('With the query.'),
  headers: seenHeaders.optional(),
  body: z.string().optional().describe('The content as text.'),
});

const expectation = z
  .strictObject({
    verdict: verdict.describe('`forwarded`, or the code of a refusal (docs/refusals.md).'),
    reason: z.string().optional().describe('The finer reason in the log, such as `timestamp_old`.'),
    status: z
      .int()
      .min(100, 'a status is 100 to 599')
      .max(599, 'a status is 100 to 599')
      .optional()
      .describe('What the sender is answered.'),
    route: z.string().optional().describe('Name of the route that took it.'),
    key: z.string().optional().describe('Name of the key that verified it.'),
    id: z.string().optional().describe('Id of the delivery, as the log has it.'),
    user: z.string().optional().describe('Who a password proved it to be.'),
    certificate: z.string().optional().describe('The name in the certificate that was let in.'),
    observed: verdict.optional().describe('What a route with `mode: observe` would have refused it with.'),
    toApp: seen.optional().describe('What the app gets.'),
    toSender: seen.omit({ path: true }).optional().describe('What the sender gets.'),
  })
  .describe('What must be so; what is left out may be anything.');

/** What must be so; of what is left out nothing is asked. */
export type Expectation = z.output<typeof expectation>;
/** The same of what the app or the sender gets. */
export type SightExpectation = z.output<typeof seen>;

const STEP_FIELDS = {
  at: duration().optional().describe('When, counted from `now`. Left out: as soon as the step before is done.'),
  request: request.meta({ examples: [{ method: 'POST', path: '/hooks/orders' }] }).describe('What is sent.'),
  sign: z
    .union([z.literal(true).transform((): z.output<typeof sign> => ({})), sign], {
      error: 'expected true, or a mapping such as { key: current }',
    })
    .optional()
    .describe("Signs the request by the route's own scheme and key; `true`: by its first key."),
  app: app.optional(),
  expect: z
    .union([verdict.transform((text): Expectation => ({ verdict: text })), expectation], {
      error: 'expected forwarded, the code of a refusal, or a mapping with verdict',
    })
    .describe('The verdict alone, or a mapping.'),
  repeat: z
    .int()
    .min(1, 'at least once')
    .max(10_000, 'at most 10000 times')
    .default(1)
    .describe('How often the very same is sent; each time it must come out so.'),
};

const step = z.strictObject({ name: z.string().optional().describe('Shown where it fails.'), ...STEP_FIELDS });

const test = z
  .strictObject({
    name: z.string().min(1, 'a test needs a name').describe('What must be so, in a sentence.'),
    now: instant()
      .optional()
      .describe('The time at which it starts, where that is not the one of the file: for captured deliveries.'),
    steps: z.array(step).min(1).optional().describe('Requests one after the other, to the same gate.'),
    ...STEP_FIELDS,
    request: STEP_FIELDS.request.optional(),
    expect: STEP_FIELDS.expect.optional(),
  })
  .describe(
    'Either one request, with `request` and `expect`, or several `steps`. Each test has a gate of its own, with no ids remembered.',
  )
  .transform(({ name, now, steps, request: sent, expect, ...rest }, context) => {
    const complain = (key: string, message: string): never => {
      context.addIssue({ code: 'custom', path: [key], message });
      return z.NEVER;
    };
    if (steps !== undefined) {
      if (sent !== undefined) return complain('request', 'a test with steps has no request of its own');
      if (expect !== undefined) return complain('expect', 'each of the steps has its own expect');
      return { name, now, hasSteps: true, steps };
    }
    if (sent === undefined) return complain('request', 'missing: a test has a request, or steps');
    if (expect === undefined) return complain('expect', 'missing: what should become of the request?');
    return { name, now, hasSteps: false, steps: [{ ...rest, request: sent, expect }] };
  });

/** The whole file. */
export const FixturesSchema = z.strictObject({
  config: filePath.describe('The config that is tested. Relative paths count from the fixture file.'),
  now: instant().prefault('2026-01-01T00:00:00Z').describe('The time at which each test starts.'),
  secrets: z
    .strictObject({
      env: z.record(envName, z.string()).default({}).describe('By the name of the environment variable.'),
      files: z.record(filePath, z.string()).default({}).describe('By the path as the config has it; users files, too.'),
    })
    .prefault({})
    .describe('Test secrets, in the place of those that the config refers to. Not for real ones: this file is no safe place.'),
  remote: z
    .record(z.string().regex(/^https:\/\//, 'a URL begins with https://'), z.string())
    .default({})
    .describe('What the gate would fetch, by URL: the certificate of Amazon SNS, say, in PEM. Nothing else is reached.'),
  tests: z.array(test).min(1, 'a file without tests proves nothing'),
});
