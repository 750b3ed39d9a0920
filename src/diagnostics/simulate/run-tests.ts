/** Runs the tests of a fixture file, each with a new gate. */

import type { PreparedConfig } from '../../app/check.ts';
import { type Routing, toRouting } from '../../config/rules/gate-identity.ts';
import type { Config, KeyConfig, RouteConfig, WebhookConfig } from '../../config/schema/config.ts';
import { findNearest } from '../../config/schema/did-you-mean.ts';
import { readSecret, readUrlCredentials } from '../../config/sources/secrets.ts';
import { type EpochMilliseconds, type Milliseconds, systemClock } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import { HeaderFields, parseTarget, pickMediaType } from '../../core/head.ts';
import { Refusal } from '../../core/refusal.ts';
import { Secret } from '../../core/secret.ts';
import { RouteTable } from '../../gateway/pipeline/router.ts';
import { findPreset } from '../../verify/presets/catalogue.ts';
import { isBodyPlace } from '../../verify/schemes/body-values.ts';
import { compileScheme } from '../../verify/schemes/compile.ts';
import { readsQuery } from '../../verify/schemes/coverage.ts';
import type { SchemeDescription } from '../../verify/schemes/description.ts';
import type { Scheme } from '../../verify/schemes/scheme.ts';
import { addCredentials } from '../../verify/schemes/url.ts';
import { type AppBehavior, DEFAULT_BEHAVIOR } from './fake-app.ts';
import type { AppConfig, Expectation, FixtureStep, Fixtures, FixtureTest, MessageExpectation, SignConfig } from './fixtures.ts';
import { type SimulatedRequest, type SimulationResult, Simulator } from './simulator.ts';

/** Why a test failed, or could not be run. */
export interface TestFailure {
  /** Where in the file. */
  readonly position: FixtureStep['position'];
  /** The number of the step, from 1, its name, and the number of the repetition. */
  readonly step?: number;
  readonly stepName?: string;
  readonly time?: number;
  readonly mismatches: readonly Mismatch[];
  /** The decision of the gate, in one line. */
  readonly decision?: string;
  /** The step itself is invalid, so it was not run. */
  readonly problem?: StepProblem;
}

/** The result of a test. */
export interface TestResult {
  readonly name: string;
  readonly position: FixtureTest['position'];
  readonly seconds: number;
  readonly failure?: TestFailure;
}

/** The results of a file's tests. */
interface TestRun {
  readonly results: readonly TestResult[];
  /** The routes that matched a request. */
  readonly routes: ReadonlySet<string>;
}

/** Runs the tests in sequence. */
export async function runTests(
  { config: file, remote }: Fixtures,
  tests: readonly FixtureTest[],
  ready: PreparedConfig,
): Promise<TestRun> {
  const routes = new Set<string>();
  const results: TestResult[] = [];
  for (const [index, test] of tests.entries()) {
    const startedAt = systemClock.monotonic();
    const runner = new TestRunner(
      new Simulator(ready, { file, startsAt: test.startsAt, remote }),
      ready.loaded.config,
      `fixture-${index + 1}`,
    );
    const failure = await runner.run(test);
    for (const route of runner.routes) routes.add(route);
    const seconds = (systemClock.monotonic() - startedAt) / 1000;
    results.push({ name: test.name, position: test.position, seconds, ...(failure === undefined ? undefined : { failure }) });
  }
  return { results, routes };
}

/** Runs one test. */
class TestRunner {
  readonly routes = new Set<string>();
  readonly #simulator: Simulator;
  readonly #config: Config;
  readonly #idPrefix: string;
  readonly #table: RouteTable<Routing & { readonly name: string; readonly route: RouteConfig }>;

  constructor(simulator: Simulator, config: Config, idPrefix: string) {
    this.#simulator = simulator;
    this.#config = config;
    this.#idPrefix = idPrefix;
    this.#table = new RouteTable(config.routes.map((route) => ({ name: route.name, ...toRouting(route), route })));
  }

  /** Stops at the first failure, because it would make later steps fail. */
  async run({ steps }: FixtureTest): Promise<TestFailure | undefined> {
    try {
      for (const [index, step] of steps.entries()) {
        const failure = await this.#runStep(step, `${this.#idPrefix}-${index + 1}`);
        if (failure === undefined) continue;
        const which = steps.length === 1 ? undefined : { step: index + 1 };
        return {
          position: step.position,
          ...which,
          ...(step.name === undefined ? undefined : { stepName: step.name }),
          ...failure,
        };
      }
      return undefined;
    } finally {
      await this.#simulator.close();
    }
  }

  async #runStep(step: FixtureStep, id: string): Promise<Omit<TestFailure, 'position'> | undefined> {
    if (step.at !== undefined) await this.#simulator.goTo(step.at);
    const request = await this.#toRequest(step, id);
    if ('problem' in request) return { mismatches: [], problem: request };
    for (let time = 1; time <= step.repeat; time++) {
      const result = await this.#simulator.send(request, toBehavior(step.app));
      if (result.line.route !== undefined) this.routes.add(result.line.route);
      const mismatches = findMismatches(step.expect, result);
      if (mismatches.length > 0)
        return { mismatches, decision: describeDecision(result), ...(step.repeat === 1 ? undefined : { time }) };
    }
    return undefined;
  }

  async #toRequest(step: FixtureStep, id: string): Promise<SimulatedRequest | StepProblem> {
    const { path, host, client, certificate, content, method: named } = step.request;
    const method = named ?? (content === undefined && step.sign === undefined ? 'GET' : 'POST');
    const isTls = step.request.tls ?? this.#config.listen.tls !== undefined;
    const problem = this.#findMisfit(method, isTls, certificate);
    if (problem !== undefined) return problem;
    const body = content ?? Buffer.alloc(0);
    const signed = await this.#sign(step, { method, path, host, isTls, body }, id);
    if (signed !== undefined && 'problem' in signed) return signed;
    const sent = signed?.body ?? body;
    const hasContent = content !== undefined || sent.length > 0 || method === 'POST';
    const headers = toHeaders(step.request, signed, hasContent ? sent.length : undefined);
    return { method, path, headers, body: sent, client, isTls, certificateNames: certificate };
  }

  #findMisfit(method: string, isTls: boolean, certificate: readonly string[] | undefined): StepProblem | undefined {
    if (method === 'CONNECT') return { problem: 'CONNECT is for the forward proxy, which cannot be simulated' };
    if (certificate === undefined) return undefined;
    if (!isTls) return { problem: 'a client certificate requires TLS', hint: 'add tls: true' };
    if (this.#config.listen.tls?.clientCaFile === undefined)
      return { problem: 'the config does not request client certificates', hint: 'set listen.tls.clientCaFile in the config' };
    return undefined;
  }

  async #sign(
    { sign, request }: FixtureStep,
    unsigned: Parameters<typeof signRequest>[1],
    id: string,
  ): Promise<Signed | undefined | StepProblem> {
    if (sign === undefined) return undefined;
    const route = this.#findRoute(sign.route, { ...unsigned, headers: new HeaderFields(toLines(request.headers).flat()) });
    return route === undefined
      ? { problem: 'no route matches this request, so the key is unknown', hint: 'name the route: sign: { route: NAME }' }
      : 'problem' in route
        ? route
        : signRequest(sign, unsigned, { route, now: this.#simulator.now(), id });
  }

  #findRoute(
    name: string | undefined,
    { method, host, path, headers }: Parameters<typeof signRequest>[1] & { readonly headers: HeaderFields },
  ): RouteConfig | StepProblem | undefined {
    if (name !== undefined) {
      const named = this.#config.routes.find((route) => route.name === name);
      const names = this.#config.routes.map((route) => route.name);
      return named ?? { problem: `the config has no route ${name}`, hint: `its routes are ${names.join(', ')}` };
    }
    const target = parseTarget(path);
    if ('problem' in target) return undefined;
    const found = this.#table.find({ method, host, target, headers });
    return found instanceof Refusal ? undefined : found.route;
  }
}

function toBehavior(app: AppConfig | undefined): AppBehavior {
  if (app === undefined) return DEFAULT_BEHAVIOR;
  if ('fails' in app) return app;
  const { status, ...rest } = app;
  if (!('headers' in rest)) return { ...DEFAULT_BEHAVIOR, status };
  return { status, headers: toLines(rest.headers).flat(), body: Buffer.from(rest.body), after: rest.after as Milliseconds };
}

type HeaderLine = readonly [string, string];

function toLines(headers: Readonly<Record<string, string | readonly string[]>>): HeaderLine[] {
  return Object.entries(headers).flatMap(([name, lines]) =>
    (typeof lines === 'string' ? [lines] : lines).map((line): HeaderLine => [name, line]),
  );
}

/** Headers of the fixture replace the generated ones. */
function toHeaders(request: FixtureStep['request'], signed: Signed | undefined, length: number | undefined): HeaderLine[] {
  const written = toLines(request.headers);
  const names = new Set(written.map(([name]) => name.toLowerCase()));
  const contentType = signed?.contentType ?? (request.isJson ? 'application/json' : undefined);
  const { user, password } = request;
  const ours: HeaderLine[] = [
    ['Host', request.host],
    ...(contentType === undefined ? [] : [['Content-Type', contentType] as const]),
    ...(signed?.headers ?? []),
    ...(user === undefined ? [] : [['Authorization', `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`] as const]),
    ...(length === undefined || names.has('transfer-encoding') ? [] : [['Content-Length', String(length)] as const]),
  ];
  return [...ours.filter(([name]) => !names.has(name.toLowerCase())), ...written];
}

function describeDecision({ line, response }: SimulationResult): string {
  const { code, reason, route, detail, observed } = line;
  const words = [`${response?.status ?? 'no response'} ${code}`];
  if (reason !== 'ok' && reason !== code) words.push(`(${reason})`);
  if (observed !== undefined) words.push(`observed ${observed}`);
  words.push(route === undefined ? 'on no route' : `on route ${route}`);
  return detail === undefined ? words.join(' ') : `${words.join(' ')}: ${detail}`;
}

// Compares the result with the expected one.

/** A difference; both values as text. */
interface Mismatch {
  readonly field: string;
  readonly expected: string;
  readonly actual: string;
}

const NOTHING = 'nothing';
const MAX_SHOWN_LENGTH = 300;

/** Returns all differences. */
function findMismatches(expected: Expectation, { line, response, app }: SimulationResult): Mismatch[] {
  const { decision, toApp, toSender, id, status, ...others } = expected;
  const found: Mismatch[] = [];
  const compare = (field: string, wanted: string | number | undefined, actual: string | number | undefined): void => {
    if (wanted !== undefined && wanted !== actual) found.push({ field, expected: show(wanted), actual: show(actual) });
  };
  compare('decision', decision, line.code);
  for (const [field, wanted] of Object.entries(others)) compare(field, wanted, line[field as keyof typeof others]);
  compare('id', id, line.webhookId);
  compare('status', status, response?.status);
  if (toApp !== undefined) found.push(...compareMessage('toApp', toApp, app, 'a request'));
  if (toSender !== undefined) found.push(...compareMessage('toSender', toSender, response, 'a response'));
  return found;
}

interface ActualMessage {
  readonly path?: string;
  readonly headers: HeaderFields;
  readonly body: Buffer;
}

function compareMessage(at: string, expected: MessageExpectation, message: ActualMessage | undefined, what: string): Mismatch[] {
  if (message === undefined) return [{ field: at, expected: what, actual: NOTHING }];
  const found: Mismatch[] = [];
  const { path, headers, body } = expected;
  if (path !== undefined && path !== message.path)
    found.push({ field: `${at}.path`, expected: show(path), actual: show(message.path) });
  for (const [name, wanted] of Object.entries(headers ?? {})) {
    const lines = message.headers.all(name.toLowerCase());
    if (!isAsExpected(wanted, lines))
      found.push({ field: `${at}.headers.${name}`, expected: showLines(wanted), actual: showLines(lines) });
  }
  const text = message.body.toString();
  if (body !== undefined && body !== text) found.push({ field: `${at}.body`, expected: show(body), actual: show(text) });
  return found;
}

function isAsExpected(wanted: string | readonly string[] | boolean, lines: readonly string[]): boolean {
  if (typeof wanted === 'boolean') return wanted === lines.length > 0;
  const all = typeof wanted === 'string' ? [wanted] : wanted;
  return all.length === lines.length && all.every((line, index) => line === lines[index]);
}

function showLines(lines: string | readonly string[] | boolean): string {
  if (lines === true) return 'any value';
  if (lines === false || lines.length === 0) return NOTHING;
  return typeof lines === 'string' ? show(lines) : lines.map(show).join(' and ');
}

function show(value: string | number | undefined): string {
  if (value === undefined) return NOTHING;
  const text = typeof value === 'string' ? JSON.stringify(value) : String(value);
  return text.length > MAX_SHOWN_LENGTH ? `${text.slice(0, MAX_SHOWN_LENGTH)}… (${text.length} characters)` : text;
}

// Signs a fixture's request as its sender would, with the scheme and a key of the route, and tampers with it if requested.

/** Why a step cannot be run. */
interface StepProblem {
  readonly problem: string;
  readonly hint?: string;
}

/** A request before signing. */
interface Unsigned {
  readonly method: string;
  readonly path: string;
  readonly host: string;
  readonly isTls: boolean;
  readonly body: Buffer;
}

/** The headers that signing adds, and the body to send. */
interface Signed {
  readonly headers: readonly (readonly [string, string])[];
  readonly body: Buffer;
  /** The most common content type of this sender. */
  readonly contentType: string | undefined;
}

interface SignedOnce {
  readonly headers: RequestFields;
  readonly body: Buffer;
}

type SignOnce = (over: { id?: string; timestamp?: EpochMilliseconds; body?: Buffer }) => SignedOnce;

const LINE_END = Buffer.from('\n');
const SECOND_MS = 1_000;

/** Signs the request, or returns why it cannot. */
async function signRequest(
  config: SignConfig,
  unsigned: Unsigned,
  context: {
    readonly route: RouteConfig;
    readonly now: EpochMilliseconds;
    /** Used if the fixture has none. */
    readonly id: string;
  },
): Promise<Signed | StepProblem> {
  const { webhook } = context.route;
  if (webhook === undefined)
    return { problem: `route ${context.route.name} has no webhook section, so its requests are not signed`, hint: 'remove sign' };
  const description = config.scheme === undefined ? webhook.description : findPreset(config.scheme);
  if (description?.signature === undefined) return { problem: `senders of ${webhook.scheme} do not sign`, hint: 'remove sign' };
  const problem = findSignatureMisfit(config, description) ?? findMisfit(config, description);
  if (problem !== undefined) return problem;
  const key = findKey(config, webhook, context.route);
  if ('problem' in key) return key;
  const secret = await toSecret(config, key);
  if (!(secret instanceof Secret)) return secret;
  const scheme = compileScheme(description);
  const request = {
    ...unsigned,
    id: config.id ?? context.id,
    timestamp: context.now + (config.timestampOffset ?? 0),
    url: await toSignedUrl(scheme, webhook, unsigned),
  };
  const signOnce: SignOnce = (over) => {
    const { headers, body } = scheme.signRequest({ ...request, ...over }, secret, key.secret.encoding);
    return { headers: headers.map(([name, value]) => [name, value]), body };
  };
  const contentType = pickMediaType(config.scheme === undefined ? webhook.contentTypes : description.contentTypes, unsigned.body);
  try {
    return { contentType, ...tamper(config.tamper, scheme, request, signOnce) };
  } catch (thrown) {
    if (!(thrown instanceof SidegateError)) throw thrown;
    const hint = thrown.message.includes('private') ? { hint: 'put the private key into sign: { secret: … }' } : undefined;
    return { problem: `key ${key.name} cannot sign: ${thrown.message}`, ...hint };
  }
}

/** Where the signature is, a fixture may not reach it. */
function findSignatureMisfit({ tamper: what }: SignConfig, { name, signature }: SchemeDescription): StepProblem | undefined {
  if (signature?.query !== undefined) return { problem: `${name} has its signature in the query, which a fixture cannot sign` };
  if (signature?.header !== '' || what === undefined) return undefined;
  return { problem: `${name} has its signature in the body`, hint: 'use a body with another signature, without sign' };
}

function findMisfit({ id, timestampOffset, tamper: what }: SignConfig, description: SchemeDescription): StepProblem | undefined {
  const { name, id: idSource, timestamp } = description;
  if ((id !== undefined || what === 'id') && (idSource === undefined || 'json' in idSource))
    return idSource === undefined
      ? { problem: `${name} has no ID` }
      : { problem: `${name} has its ID in the body`, hint: `set it there, at ${idSource.json}` };
  if ((timestampOffset !== undefined || what === 'timestamp') && (timestamp === undefined || isBodyPlace(timestamp.from)))
    return timestamp === undefined
      ? { problem: `${name} signs no timestamp` }
      : { problem: `${name} has its timestamp in the body`, hint: 'set it there' };
  return undefined;
}

function findKey({ key: wanted }: SignConfig, { keys }: WebhookConfig, route: RouteConfig): KeyConfig | StepProblem {
  const names = keys.map(({ name }) => name);
  const found = wanted === undefined ? keys[0] : keys.find(({ name }) => name === wanted);
  if (found !== undefined) return found;
  const nearest = findNearest(wanted ?? '', names);
  const hint = nearest === undefined ? `its keys are ${names.join(', ')}` : `did you mean ${nearest}?`;
  return { problem: `route ${route.name} has no key ${wanted}`, hint };
}

async function toSecret({ secret }: SignConfig, key: KeyConfig): Promise<Secret | StepProblem> {
  if (secret !== undefined) return new Secret(Buffer.from(secret));
  const read = await readSecret(key.secret);
  return 'secret' in read ? read.secret : { problem: read.problem, hint: read.hint };
}

/** The URL that the sender calls; empty if nothing of it is signed. */
async function toSignedUrl(
  { signsUrl, description }: Scheme,
  { publicUrl, urlCredentials }: WebhookConfig,
  { isTls, host, path }: Unsigned,
): Promise<string> {
  if (!signsUrl && !readsQuery(description)) return '';
  const read = urlCredentials && (await readUrlCredentials(urlCredentials));
  const credentials = read !== undefined && 'secret' in read ? read.secret : undefined;
  return `${addCredentials(publicUrl ?? `${isTls ? 'https' : 'http'}://${host}`, credentials)}${path}`;
}

/** Signs the request, and changes one part of it afterwards. */
function tamper(
  what: SignConfig['tamper'],
  { description }: Scheme,
  { id, timestamp, body }: { readonly id: string; readonly timestamp: EpochMilliseconds; readonly body: Buffer },
  signOnce: SignOnce,
): Pick<Signed, 'headers' | 'body'> {
  const { headers: valid, body: sent } = signOnce({});
  const longer = Buffer.concat([body, LINE_END]);
  switch (what) {
    case undefined:
      return { headers: valid, body: sent };
    case 'body':
      return { headers: valid, body: longer };
    case 'id':
      return { headers: replace(valid, signOnce({ id: `${id}x` }).headers, description.id), body };
    case 'timestamp':
      return { headers: swapTimestamp(valid, signOnce({ timestamp: timestamp + SECOND_MS }).headers, description), body };
    case 'signature':
      return { headers: toForged(valid, signOnce({ body: longer }).headers), body };
  }
}

type RequestFields = [string, string][];

/** Takes the field that `source` names from `other`. */
function replace(fields: RequestFields, other: RequestFields, source: object | undefined): RequestFields {
  const name = source !== undefined && 'header' in source ? source.header : undefined;
  return fields.map((field, index) => (field[0] === name ? (other[index] ?? field) : field));
}

/** Takes the timestamp from `later`: its header, or its entry in the signature header. */
function swapTimestamp(fields: RequestFields, later: RequestFields, { timestamp, signature }: SchemeDescription): RequestFields {
  if (timestamp === undefined || signature === undefined || !('entry' in timestamp.from))
    return replace(fields, later, timestamp?.from);
  const { entry, first } = timestamp.from;
  const list = signature.list ?? ',';
  const isTime = (part: string, index: number): boolean => (first === true ? index === 0 : part.startsWith(entry));
  const laterEntry = later
    .find(([name]) => name === signature.header)?.[1]
    .split(list)
    .find(isTime);
  return fields.map(([name, value]) => {
    if (name !== signature.header) return [name, value];
    const parts = value.split(list).map((part, index) => (isTime(part, index) ? (laterEntry ?? part) : part));
    return [name, parts.join(list)];
  });
}

/** A well-formed signature of another body; a token does not depend on the body, so it gets a suffix. */
function toForged(valid: RequestFields, other: RequestFields): RequestFields {
  const isSame = valid.every(([, value], index) => other[index]?.[1] === value);
  const last = valid.length - 1;
  return isSame ? valid.map(([name, value], index) => [name, index === last ? `${value}x` : value]) : other;
}
