/** Loads a fixture file and the body files that it names; returns its tests, or all problems at once. */

import { isIP } from 'node:net';
import { dirname, resolve } from 'node:path';
import * as z from 'zod';
import { parseYaml, readText, type TextPosition, type YamlFile } from '../../config/load/document.ts';
import { findNearest } from '../../config/schema/did-you-mean.ts';
import { toProblems } from '../../config/schema/issues.ts';
import { type JsonSchema, keepExamples } from '../../config/schema/json-schema.ts';
import { duration, envName, filePath, instant, NAME } from '../../config/schema/scalars.ts';
import { MAX_CONTENT_BYTES, readRegularFile, toUnread } from '../../config/sources/bounded-read.ts';
import type { FakeSources } from '../../config/sources/fake-sources.ts';
import type { EpochMilliseconds } from '../../core/clock.ts';
import { error, type LocatedProblem, type Path, type Problem } from '../../core/problem.ts';
import { REFUSALS } from '../../core/refusal.ts';
import { PRESETS } from '../../verify/presets/catalogue.ts';
import { APP_FAILURES, type AppFailure } from './fake-app.ts';

/** A request and its expected result. */
export type FixtureStep = Omit<ParsedStep, 'request'> & {
  readonly name?: string | undefined;
  readonly request: Omit<ParsedStep['request'], 'body' | 'json' | 'bodyFile' | 'bodyBase64'> & {
    /** Undefined: no body, which differs from an empty body. */
    readonly content: Buffer | undefined;
    readonly isJson: boolean;
  };
  readonly position: TextPosition | undefined;
};
/** How to sign, and what to change afterwards. */
export type SignConfig = NonNullable<FixtureStep['sign']>;
/** How the app responds. */
export type AppConfig = NonNullable<FixtureStep['app']>;
/** One test. */
export interface FixtureTest {
  readonly name: string;
  readonly position: TextPosition | undefined;
  readonly startsAt: EpochMilliseconds;
  readonly steps: readonly FixtureStep[];
}

/** A valid fixture file. */
export interface Fixtures {
  readonly file: string;
  /** Absolute. */
  readonly config: string;
  readonly now: EpochMilliseconds;
  readonly fakeSources: FakeSources;
  readonly remote: ReadonlyMap<string, string>;
  readonly tests: readonly FixtureTest[];
  readonly locate: YamlFile['locate'];
}

/** The fixtures, or the problems. */
type FixturesRead = Fixtures | { readonly tests: undefined; readonly problems: readonly LocatedProblem[] };

/** Loads and validates `file`; never throws because of its contents. */
export async function loadFixtures(file: string): Promise<FixturesRead> {
  const text = await readText(file);
  if (typeof text !== 'string') return { tests: undefined, problems: [text] };
  const read = parseYaml(file, text, 'start with config: and tests:');
  if ('problems' in read) return { tests: undefined, problems: read.problems };
  const parsed = FixturesSchema.safeParse(read.value, { reportInput: true });
  if (!parsed.success) {
    const problems = toProblems(parsed.error.issues, toFixturesJsonSchema()).map(read.locate);
    return {
      tests: undefined,
      problems: problems.sort((a, b) => (a.line ?? 0) - (b.line ?? 0) || (a.column ?? 0) - (b.column ?? 0)),
    };
  }
  const problems: Problem[] = [];
  const contents = new Contents(dirname(resolve(file)), problems);
  const { config, now, secrets, remote, tests } = parsed.data;
  const found: FixtureTest[] = [];
  for (const [index, test] of tests.entries()) {
    const path = ['tests', index];
    problems.push(...checkOrder(test, path));
    const steps: FixtureStep[] = [];
    for (const [position, step] of test.steps.entries()) {
      const at = test.hasSteps ? [...path, 'steps', position] : path;
      steps.push({ ...step, request: await contents.fill(step.request, [...at, 'request']), position: read.toPosition(at) });
    }
    found.push({ name: test.name, position: read.toPosition(path), startsAt: test.now ?? now, steps });
  }
  if (problems.length > 0) return { tests: undefined, problems: problems.map(read.locate) };
  const target = resolve(dirname(file), config);
  const files = Object.entries(secrets.files).map(([name, secret]) => [resolve(dirname(target), name), secret] as const);
  const fakeSources = { env: new Map(Object.entries(secrets.env)), files: new Map(files) };
  return { file, config: target, now, fakeSources, remote: new Map(Object.entries(remote)), tests: found, locate: read.locate };
}

/** Reports steps that start before the previous step. */
function checkOrder({ steps }: ParsedFixtures['tests'][number], path: Path): Problem[] {
  let latest = 0;
  return steps.flatMap(({ at }, index) => {
    const isEarlier = at !== undefined && at < latest;
    latest = Math.max(latest, at ?? 0);
    return isEarlier
      ? [
          error(
            [...path, 'steps', index, 'at'],
            'this is before the previous step',
            '`at` is relative to `now`, not to the previous step',
          ),
        ]
      : [];
  });
}

class Contents {
  readonly #folder: string;
  readonly #problems: Problem[];

  constructor(folder: string, problems: Problem[]) {
    this.#folder = folder;
    this.#problems = problems;
  }

  async fill(request: ParsedStep['request'], path: Path): Promise<FixtureStep['request']> {
    const { body, json, bodyFile, bodyBase64, ...rest } = request;
    if (bodyFile !== undefined) return { ...rest, isJson: false, content: await this.#read(bodyFile, [...path, 'bodyFile']) };
    if (json !== undefined) return { ...rest, isJson: true, content: Buffer.from(JSON.stringify(json)) };
    const content = bodyBase64 === undefined ? body && Buffer.from(body) : Buffer.from(bodyBase64, 'base64');
    return { ...rest, isJson: false, content: content === '' ? Buffer.alloc(0) : content };
  }

  async #read(name: string, path: Path): Promise<Buffer | undefined> {
    try {
      return await readRegularFile(resolve(this.#folder, name), MAX_CONTENT_BYTES);
    } catch (thrown) {
      this.#problems.push(error(path, toUnread(name, thrown).problem));
      return undefined;
    }
  }
}

// The schema of fixture files for `sidegate test`: requests, and the expected decisions of a config.

/** Header fields and methods are tokens (RFC 9110 §5.6.2). */
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const CERTIFICATE_NAME = /^(?:CN|DNS|URI|email|IP Address):[^\r\n]+$/;
const SIGNED_DURATION = /^[+-]/;
const DECISIONS = ['forwarded', ...Object.keys(REFUSALS)];
const FAILURES = Object.keys(APP_FAILURES);

/** A string from a list that is too long for an error message. */
function oneOf(values: readonly string[], what: string, known: string) {
  return z
    .string()
    .meta({ enum: values })
    .superRefine((text, context) => {
      if (values.includes(text)) return;
      const nearest = findNearest(text, values);
      const hint = nearest === undefined ? `use ${known}` : `did you mean "${nearest}"?`;
      context.addIssue({ code: 'custom', message: `unknown ${what} "${text}"; ${hint}` });
    });
}

const decision = oneOf(DECISIONS, 'decision', 'forwarded or the code of a refusal (docs/refusals.md)');
const headerName = z.string().regex(TOKEN, 'a header name must be a token (RFC 9110)');
/** Any single line of latin1, because a test may check unusual values. */
const headerValue = z
  .string({ error: () => 'expected a string; put numbers in quotes' })
  .regex(/^[\t\x20-\x7e\x80-\xff]*$/, 'a header value must be one line of latin1 characters');
const headerLines = z.union([headerValue, z.array(headerValue).min(1)], {
  error: 'expected a string, or a list of strings for several lines; put numbers in quotes',
});
const sentHeaders = z.record(headerName, headerLines);
const seenHeaders = z
  .record(headerName, z.union([headerLines, z.boolean()], { error: 'expected a string, true (any value) or false (absent)' }))
  .describe('By name: the value, a list if it has several lines, `true` for any value, `false` if it must be absent.');

const status = z.int().min(200, 'a status must be 200 to 599').max(599, 'a status must be 200 to 599');

const app = z
  .union(
    [
      status.transform((code) => ({ status: code })),
      z.strictObject({
        fails: oneOf(FAILURES, 'failure', FAILURES.join(', '))
          .transform((kind) => kind as AppFailure)
          .describe('How it fails instead of responding.'),
      }),
      z.strictObject({
        status: status.default(200).describe('Status of the response; after anything but 2xx, sidegate forwards a retry.'),
        headers: sentHeaders.default({}).describe('Headers of the response.'),
        body: z.string().default('').describe('Body of the response.'),
        after: duration()
          .prefault('0s')
          .describe('How long it takes to respond; longer than the timeout of the route is a timeout.'),
      }),
    ],
    { error: 'expected a status such as 503, { status: 503, after: 2s } or { fails: timeout }' },
  )
  .describe('How the app responds to the request if it is forwarded. Default: 200 immediately.');

const request = z
  .strictObject({
    method: z
      .string()
      .regex(TOKEN, 'a method must be a token such as POST')
      .optional()
      .describe('Default: POST if there is a body, otherwise GET.'),
    path: z
      .string()
      .regex(/^[\x21-\x7e]+$/, 'a path must be printable ASCII without spaces')
      .describe('Including the query, sent byte for byte.'),
    host: z
      .string()
      .regex(/^[\x21-\x7e]+$/, 'a host must be printable ASCII without spaces')
      .default('sidegate.test')
      .describe('The Host header.'),
    headers: sentHeaders
      .default({})
      .describe(
        'Other headers; a list for several lines. Host, Content-Length and Content-Type are only needed here to override the defaults.',
      ),
    body: z.string().optional().describe('The body as text.'),
    json: z.unknown().optional().describe('The body as YAML; sent as compact JSON.'),
    bodyFile: filePath.optional().describe('File with the body, byte for byte. Paths are relative to the fixture file.'),
    bodyBase64: z.base64('not valid base64').optional().describe('The body in base64.'),
    client: z
      .string()
      .refine((text) => isIP(text) !== 0, { error: (issue) => `"${issue.input}" is not an IP address` })
      .default('192.0.2.1')
      .describe('Address of the peer: the client, or the proxy in front of sidegate.'),
    tls: z.boolean().optional().describe('Whether the connection uses TLS. Default: true if the config has listen.tls.'),
    certificate: z
      .array(
        z.string().regex(CERTIFICATE_NAME, 'a name must start with its kind, such as URI:spiffe://prod/billing or CN:client'),
      )
      .min(1)
      .optional()
      .describe('Names in the client certificate, as in `clientCertificate.names`.'),
    user: z.string().optional().describe('Sent as HTTP Basic, with `password`.'),
    password: z.string().optional().describe('A test password, in plain text.'),
  })
  .superRefine(({ body, json, bodyFile, bodyBase64, user, password, headers }, context) => {
    const addIssue = (key: string, message: string): void => context.addIssue({ code: 'custom', path: [key], message });
    const given = Object.entries({ body, json, bodyFile, bodyBase64 }).filter(([, value]) => value !== undefined);
    const [, second] = given;
    if (second !== undefined) addIssue(second[0], `the body is given more than once: ${given.map(([key]) => key).join(' and ')}`);
    if ((user === undefined) !== (password === undefined))
      addIssue(user === undefined ? 'password' : 'user', 'user and password require each other');
    if (user !== undefined && Object.keys(headers).some((name) => name.toLowerCase() === 'authorization'))
      addIssue('user', 'Authorization is given twice: by user and in headers');
  });

const sign = z.strictObject({
  route: z.string().optional().describe('The route whose scheme and keys to use. Default: the route that matches the request.'),
  key: z
    .string()
    .regex(NAME, 'a key name must be one of the config')
    .optional()
    .describe("Name of one of the route's keys. Default: the first."),
  secret: z
    .string()
    .min(1)
    .optional()
    .describe('Another secret than that of a key, for example that of an attacker, or the private key of a public key.'),
  scheme: oneOf(
    PRESETS.map(({ name }) => name),
    'preset',
    'one of docs/config.md',
  )
    .optional()
    .describe("Another preset than the route's scheme, to simulate another sender."),
  id: z
    .string()
    .optional()
    .describe('ID of the event, if a header holds it. Default: a different one in each step, the same in each run.'),
  timestampOffset: z
    .string({ error: () => 'expected a string such as -10m' })
    .meta({ examples: ['-10m'] })
    .transform((text, context) => {
      const parsed = duration().safeParse(text.replace(SIGNED_DURATION, ''));
      if (parsed.success) return text.startsWith('-') ? -parsed.data : parsed.data;
      context.addIssue({ code: 'custom', message: `"${text}" is not an offset; example: -10m or +10m` });
      return z.NEVER;
    })
    .optional()
    .describe('Offset of the signed timestamp from the time of the request.'),
  tamper: z.enum(['body', 'id', 'timestamp', 'signature']).optional().describe('What to change after signing.'),
});

const seen = z.strictObject({
  path: z.string().optional().describe('Including the query.'),
  headers: seenHeaders.optional(),
  body: z.string().optional().describe('The body as text.'),
});

const expectation = z
  .strictObject({
    decision: decision.describe('`forwarded`, or the code of a refusal (docs/refusals.md).'),
    reason: z.string().optional().describe('The finer reason in the log, such as `timestamp_old`.'),
    status: z
      .int()
      .min(100, 'a status must be 100 to 599')
      .max(599, 'a status must be 100 to 599')
      .optional()
      .describe('Status of the response to the sender.'),
    route: z.string().optional().describe('Name of the matching route.'),
    key: z.string().optional().describe('Name of the key that verified it.'),
    id: z.string().optional().describe('ID of the delivery, as in the log.'),
    user: z.string().optional().describe('The user whose password was verified.'),
    certificate: z.string().optional().describe('The name in the accepted client certificate.'),
    observed: decision.optional().describe('The refusal that a route with `mode: observe` did not enforce.'),
    toApp: seen.optional().describe('The request that the app receives.'),
    toSender: seen.omit({ path: true }).optional().describe('The response that the sender receives.'),
  })
  .describe('The expected result; omitted fields are not checked.');

/** The expected result; omitted fields are not checked. */
export type Expectation = z.output<typeof expectation>;
/** The expected request to the app, or response to the sender. */
export type MessageExpectation = z.output<typeof seen>;

const STEP_FIELDS = {
  at: duration().optional().describe('Time since `now`. Default: immediately after the previous step.'),
  request: request.meta({ examples: [{ method: 'POST', path: '/hooks/orders' }] }).describe('The request.'),
  sign: z
    .union([z.literal(true).transform((): z.output<typeof sign> => ({})), sign], {
      error: 'expected true, or an object such as { key: current }',
    })
    .optional()
    .describe('Signs the request with the scheme and a key of the route; `true`: with its first key.'),
  app: app.optional(),
  expect: z
    .union([decision.transform((text): Expectation => ({ decision: text })), expectation], {
      error: 'expected forwarded, the code of a refusal, or an object with decision',
    })
    .describe('The decision, or an object with the key `decision`.'),
  repeat: z
    .int()
    .min(1, 'at least once')
    .max(10_000, 'at most 10000 times')
    .default(1)
    .describe('How often to send the same request; each response must be as expected.'),
};

const step = z.strictObject({ name: z.string().optional().describe('Name of the step in the report.'), ...STEP_FIELDS });

const test = z
  .strictObject({
    name: z.string().min(1, 'a test needs a name').describe('A sentence that says what the test expects.'),
    now: instant().optional().describe('Start time, instead of that of the file: for captured deliveries.'),
    steps: z.array(step).min(1).optional().describe('Requests in sequence to the same gate.'),
    ...STEP_FIELDS,
    request: STEP_FIELDS.request.optional(),
    expect: STEP_FIELDS.expect.optional(),
  })
  .describe(
    'Either one request, with `request` and `expect`, or several `steps`. Each test starts a new gate that remembers no IDs.',
  )
  .transform(({ name, now, steps, request: sent, expect, ...rest }, context) => {
    const reject = (key: string, message: string): never => {
      context.addIssue({ code: 'custom', path: [key], message });
      return z.NEVER;
    };
    if (steps !== undefined) {
      if (sent !== undefined) return reject('request', 'a test with steps must not have a request');
      if (expect !== undefined) return reject('expect', 'a test with steps must not have expect: each step has its own');
      return { name, now, hasSteps: true, steps };
    }
    if (sent === undefined) return reject('request', 'missing: a test needs a request, or steps');
    if (expect === undefined) return reject('expect', 'missing: the expected decision, such as forwarded');
    return { name, now, hasSteps: false, steps: [{ ...rest, request: sent, expect }] };
  });

/** The whole file. */
const FixturesSchema = z.strictObject({
  config: filePath.describe('The config to test. Paths are relative to the fixture file.'),
  now: instant().prefault('2026-01-01T00:00:00Z').describe('Start time of each test.'),
  secrets: z
    .strictObject({
      env: z.record(envName, z.string()).default({}).describe('By the name of the environment variable.'),
      files: z.record(filePath, z.string()).default({}).describe('By path, as written in the config; includes users files.'),
    })
    .prefault({})
    .describe('Test secrets that replace those of the config. Do not put real secrets into this file.'),
  remote: z
    .record(z.string().regex(/^https:\/\//, 'a URL must start with https://'), z.string())
    .default({})
    .describe(
      'Responses to requests that sidegate would make, by URL, for example the certificate of Amazon SNS in PEM. Nothing is fetched.',
    ),
  tests: z.array(test).min(1, 'a file needs at least one test'),
});

type ParsedFixtures = z.output<typeof FixturesSchema>;
type ParsedStep = ParsedFixtures['tests'][number]['steps'][number];

/** JSON Schema draft-07, for editors. */
export function toFixturesJsonSchema(): JsonSchema {
  const schema = z.toJSONSchema(FixturesSchema, {
    io: 'input',
    target: 'draft-07',
    unrepresentable: 'any',
    override: keepExamples,
  });
  return { ...(schema as JsonSchema), title: 'sidegate fixtures' };
}
