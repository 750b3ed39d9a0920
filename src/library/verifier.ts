/** The library `@sidegate/sidegate/verify`: the gates of a webhook route, for apps that cannot run a sidecar. */
import type { Admitted } from '../core/admitted.ts';
import { systemClock } from '../core/clock.ts';
import { toErrorText } from '../core/errors.ts';
import type { Claim } from '../core/event.ts';
import { parseJsonText } from '../core/json-scan.ts';
import { REFUSALS, Refusal, refuse } from '../core/refusal.ts';
import { isPromise } from '../core/safe-events.ts';
import { type Secret, toSecret } from '../core/secret.ts';
import { createContentGate } from '../gateway/pipeline/gates/content.ts';
import type { EventGate, RouteGates, VerifiedEventGate } from '../gateway/pipeline/gates/gate.ts';
import { createSignatureGate } from '../gateway/pipeline/gates/signature.ts';
import { GuardedRequest, type GuardedRoute } from '../gateway/pipeline/guarded-request.ts';
import { settleByStatus } from '../gateway/upstream/outcome.ts';
import { createMemorySeenIds } from '../state/memory.ts';
import { compileScheme } from '../verify/schemes/compile.ts';
import {
  coversBody,
  coversQuery,
  coversQueryOf,
  mayBeEmpty,
  readsQuery,
  signsUrl,
  toSenderMethods,
} from '../verify/schemes/coverage.ts';
import { type SchemeDescription, type Tolerance, withReceiverId } from '../verify/schemes/description.ts';
import { KeyRing } from '../verify/schemes/keys.ts';
import type { Scheme, VerifyKey } from '../verify/schemes/scheme.ts';
import type { Claims, NamedSecret } from './claims.ts';
import { compute } from './compute.ts';
import type { CompiledScheme, HandshakeGates } from './handshake.ts';
import { toHead } from './request.ts';
import {
  COUNT,
  checkSettings,
  fail,
  HANDSHAKE,
  readNow,
  report,
  SECRET,
  toTolerance,
  VERIFIER,
  VerifierError,
} from './settings.ts';
import type {
  EventStore,
  RawRequest,
  RejectedDelivery,
  VerifiedDelivery,
  Verifier,
  VerifierOptions,
  VerifyResult,
} from './types.ts';

const DEFAULT_MAX_BODY = 1_048_576;
const DEFAULT_MAX_IDS = 100_000;
const CERTIFICATE = '-----BEGIN CERTIFICATE-----';

export { VerifierError };

/**
 * Remembers events in the memory of this process: for one long-running process, and for tests. `maxIds`: entries, of about 300 bytes each; an event has one,
 * or two if its sender does not sign the ID. Events of one secret get at most three times the entries that are free. While it is full, new events get 503,
 * and `onStoreError` gets the error. Throws VerifierError.
 */
export function memoryStore(settings: { readonly maxIds?: number | undefined } = {}): EventStore {
  checkSettings(settings, { maxIds: COUNT }, 'memoryStore');
  const { maxIds = DEFAULT_MAX_IDS } = settings;
  // Without a timer, which workers do not allow before the first request: new events remove the expired ones.
  return createMemorySeenIds({ ...systemClock, every: () => () => undefined }, { maxIds });
}

/**
 * Creates the verifier of one sender. Wrong settings are reported by `ready`, `verify` and `handle`, because the preset is loaded and keys
 * are prepared asynchronously.
 *
 * @example
 * const verifier = createVerifier({ scheme: 'stripe', secrets: [secret], dedup: memoryStore() });
 * const result = await verifier.verify(request);
 * if (!result.ok) return result.response;
 */
export function createVerifier(options: VerifierOptions): Verifier {
  let prepared: Promise<PreparedRoute> | undefined;
  const prepare = (): Promise<PreparedRoute> => {
    // Wrong settings stay wrong; what could not be loaded, as with too many open files, may be there for the next request.
    prepared ??= prepareRoute(options).catch((thrown: unknown) => {
      if (!(thrown instanceof VerifierError)) prepared = undefined;
      throw thrown;
    });
    return prepared;
  };
  const verify = async (request: Request | RawRequest): Promise<VerifyResult> => {
    const ready = await prepare();
    return check(ready, request, ready.now());
  };
  return {
    ready: async () => (await prepare()).warnings,
    verify,
    async handle(request, handler) {
      const result = await verify(request);
      const { onStoreError, onRejected } = (await prepare()).callbacks;
      if (!result.ok) {
        const { response: rejection, ...rejected } = result;
        onRejected(rejected);
        return rejection;
      }
      let response: Response;
      try {
        response = toResponse(await handler(result));
      } catch (thrown) {
        await result.release().catch(onStoreError);
        throw thrown;
      }
      const { settle } = result as SettleableDelivery;
      await settle(response.status).catch(onStoreError);
      return response;
    },
  };
}

/** The callbacks of the app. Nothing waits for one, and an error of it changes nothing: the sender gets its response in any case. */
function toCallbacks(options: VerifierOptions) {
  const { handshake } = options;
  const toCallback =
    <Value>(call: (value: Value) => unknown) =>
    (value: Value): void => {
      // An async callback rejects, which would end a process of Node.
      (async () => call(value))().catch(() => undefined);
    };
  return {
    onStoreError: toCallback((error: unknown) => options.onStoreError?.(error)),
    onRejected: toCallback((rejected: Omit<RejectedDelivery, 'response'>) => options.onRejected?.(rejected)),
    onOfferedToken: toCallback((token: string) =>
      typeof handshake === 'object' ? handshake.onOfferedToken?.(token) : undefined,
    ),
  };
}

/**
 * The response that a handler returned. It can be of another class than the global one: Node's adapters replace that, `fetch` keeps its own, and
 * packages bring theirs. Any other value may say that the event was not handled, so it is an error.
 */
function toResponse(handled: unknown): Response {
  if (handled === undefined || handled === null) return new Response(null, { status: 204 });
  const { status, arrayBuffer } = handled as Partial<Response>;
  if (Number.isInteger(status) && typeof arrayBuffer === 'function') return handled as Response;
  throw new TypeError(`the handler returned ${describe(handled)}; return a Response, or nothing if the event was handled`);
}

function describe(value: unknown): string {
  return typeof value === 'object' ? 'an object that is not a Response' : `a ${typeof value}`;
}

/** A delivery as `handle` settles it. */
interface SettleableDelivery extends VerifiedDelivery {
  settle(status: number): Promise<void>;
}

/** A compiled verifier. */
interface PreparedRoute {
  readonly route: GuardedRoute;
  readonly methods: readonly string[];
  readonly claims: Claims | undefined;
  readonly statuses: ReadonlyMap<string, number> | undefined;
  readonly acknowledgement: string | undefined;
  readonly warnings: readonly string[];
  readonly callbacks: ReturnType<typeof toCallbacks>;
  now(): number;
}

async function check(prepared: PreparedRoute, request: Request | RawRequest, now: number): Promise<VerifyResult> {
  const { route, methods } = prepared;
  const head = toHead(request, now, crypto.randomUUID());
  if (head instanceof Refusal) return toRejected(prepared, head, request.method);
  // A route of the gate has its methods in the router.
  if (!methods.includes(head.method))
    return toRejected(prepared, refuse('method_not_allowed', 'method_not_allowed', { allow: methods }), head.method);
  const decision = await new LibraryRequest(route, head).run();
  return decision instanceof Refusal ? toRejected(prepared, decision, head.method) : toVerified(prepared, decision);
}

/** A request that only needs the decision of the gates. */
class LibraryRequest extends GuardedRequest<GuardedRoute> {
  readonly #decision = Promise.withResolvers<Admitted | Refusal>();

  run(): Promise<Admitted | Refusal> {
    this.decide();
    return this.#decision.promise;
  }

  protected decided(decision: Admitted | Refusal): void {
    this.#decision.resolve(decision);
  }

  protected failed(thrown: unknown): void {
    this.#decision.reject(thrown);
  }
}

function toVerified({ claims }: PreparedRoute, { claimed }: Admitted): SettleableDelivery {
  if (claimed === undefined) throw new Error('the delivery was admitted without a verified event');
  const { claim, event } = claimed;
  const { id, kind, timestamp, keyName, body } = event;
  // A store that failed is not asked again, and the next call must not say that it succeeded.
  let settled: Promise<void> | undefined;
  const settle = async (run: (claim: Claim) => void): Promise<void> => {
    if (claim !== undefined) settled ??= claims?.settle(() => run(claim));
    await settled;
  };
  const delivery = {
    ok: true as const,
    eventId: id,
    kind,
    body: body as Uint8Array<ArrayBuffer>,
    timestamp,
    keyName,
    text: () => body.toString('utf8'),
    json: () => parseJsonText(body),
    confirm: () => settle((each) => each.confirm()),
    release: () => settle((each) => each.release()),
  };
  return Object.defineProperty(delivery as unknown as SettleableDelivery, 'settle', {
    value: (status: number) => settle((each) => settleByStatus(each, status)),
  });
}

function toRejected(prepared: PreparedRoute, refusal: Refusal, method: string | undefined): RejectedDelivery {
  const { code, reason, detail, reply, allow } = refusal;
  const entry = REFUSALS[code];
  const status = reply?.status ?? prepared.statuses?.get(code) ?? entry.status;
  const text = status < 300 || prepared.acknowledgement === '' ? prepared.acknowledgement : undefined;
  const problem = JSON.stringify({ type: `urn:sidegate:refusal:${code}`, title: entry.title, status, code });
  const contentType = reply?.contentType ?? (text === undefined ? 'application/problem+json' : 'text/plain');
  const headers = new Headers({ 'Cache-Control': 'no-store' });
  const retryAfter = refusal.retryAfterSeconds ?? entry.retryAfterSeconds;
  if (retryAfter !== undefined) headers.set('Retry-After', String(retryAfter));
  if (allow !== undefined) headers.set('Allow', allow.join(', '));
  for (const [name, value] of reply?.headers ?? []) headers.append(name, value);
  const isEmpty = status === 204 || method === 'HEAD';
  if (!isEmpty || method === 'HEAD') headers.set('Content-Type', contentType);
  const body = isEmpty ? null : (Buffer.from(reply?.body ?? text ?? problem, 'latin1') as Uint8Array<ArrayBuffer>);
  return { ok: false, status, code, reason, detail, response: new Response(body, { status, headers }) };
}

async function prepareRoute(options: VerifierOptions): Promise<PreparedRoute> {
  if (Promise.withResolvers === undefined)
    fail('Promise.withResolvers is missing: use Node 22.15 or newer, or another platform that has it');
  checkSettings(options, VERIFIER);
  if (typeof options.handshake === 'object') checkSettings(options.handshake, HANDSHAKE, 'handshake');
  const now = (): number => readNow(options.now ?? systemClock.now);
  const startedAt = now();
  const warnings: string[] = [];
  const warn = (warning: string): void => {
    warnings.push(warning);
  };
  const { preset, ...found } = await findScheme(options.scheme, warn);
  const { receiverId } = options;
  if (receiverId !== undefined && !preset.signed.includes('receiverId'))
    fail(`receiverId: ${preset.name} does not sign it; remove receiverId`);
  const description = receiverId === undefined ? preset : withReceiverId(preset, receiverId);
  checkDescription(description, options);
  await checkRules(description, options, warn);
  const named = options.secrets.map((each, at) => {
    const given = typeof each === 'string' || each === undefined ? { secret: each } : each;
    checkSettings(given, SECRET, `secrets[${at}]`);
    return { ...given, name: given.name ?? `secret-${at + 1}` };
  });
  const ended = named.filter(({ notAfter }) => notAfter !== undefined && notAfter <= startedAt);
  if (named.length > 0 && ended.length === named.length) fail('secrets: each has ended by its notAfter; add one that is valid');
  for (const { name } of ended) warn(`secrets: ${name} has ended by its notAfter; remove it`);
  const callbacks = toCallbacks(options);
  const { scheme, ring } = await compute(() => {
    const compiled = compileScheme(description);
    return { scheme: compiled, ring: createRing(compiled, named, options, warn) };
  }).catch((thrown: unknown) => {
    // Such as a path of a custom scheme that is not one of JSON.
    throw thrown instanceof VerifierError ? thrown : new VerifierError(`scheme: ${toErrorText(thrown)}`, { cause: thrown });
  });
  const appMethods = toSenderMethods(description) ?? ['POST'];
  const handshake = await findHandshake({ scheme, ring, methods: appMethods, warn, offer: callbacks.onOfferedToken }, options);
  const { dedup } = options;
  const tolerance = description.timestamp === undefined ? undefined : toTolerance(options.tolerance ?? description.tolerance);
  const reports = { warn, onError: callbacks.onStoreError };
  const claims =
    dedup === undefined
      ? undefined
      : await (await import('./claims.ts')).createClaims(dedup, { description, tolerance, secrets: named, ...reports });
  const gates = buildGates({ scheme, ring, handshake, tolerance }, options);
  const webhook = gates.webhook && { ...gates.webhook, claims: claims === undefined ? [] : [claims.gate] };
  const { method } = handshake;
  return {
    ...found,
    route: { name: description.name, gates: { ...gates, webhook }, isOpen: false, mode: 'enforce' },
    methods: method === undefined ? appMethods : [...appMethods, method],
    claims,
    warnings,
    callbacks,
    now,
  };
}

interface FoundScheme extends Pick<PreparedRoute, 'statuses' | 'acknowledgement'> {
  readonly preset: SchemeDescription;
}

async function findScheme(scheme: VerifierOptions['scheme'], warn: (text: string) => void): Promise<FoundScheme> {
  if (typeof scheme !== 'string') {
    report((await import('./custom-scheme.ts')).checkCustomScheme(scheme), warn);
    return { preset: scheme, statuses: undefined, acknowledgement: undefined };
  }
  const [{ findPreset }, { toStatuses, toAcknowledgement }] = await Promise.all([
    import('../verify/presets/catalogue.ts'),
    import('../verify/presets/senders.ts'),
  ]);
  const preset = findPreset(scheme);
  if (preset === undefined) fail(`scheme: ${JSON.stringify(scheme)} is not a preset; docs/presets.md lists them`);
  return { preset, statuses: toStatuses(scheme), acknowledgement: toAcknowledgement(scheme) };
}

/** Rejects what cannot be verified here, or could not be verified safely. */
function checkDescription(description: SchemeDescription, { publicUrl }: VerifierOptions): void {
  const { name, signature, jwt, isSignedInContent } = description;
  const gate = 'run sidegate in front of the app instead';
  if (jwt !== undefined) fail(`scheme: ${name} signs with JSON Web Tokens, which need more than WebCrypto; ${gate}`);
  if (isSignedInContent === true)
    fail(`scheme: ${name} signs with certificates that must be fetched, which the library does not do; ${gate}`);
  if (signature === undefined) fail(`scheme: ${name} has no signature, so anyone could send events`);
  if (signsUrl(description) && publicUrl === undefined)
    fail(`publicUrl: ${name} signs the URL, so the library must know its scheme and host, such as https://hooks.example.com`);
}

/** Rejects what the gate rejects: settings with which an event counts that nobody signed, or more than once. Most presets sign all that matters. */
async function checkRules(
  description: SchemeDescription,
  { scheme, dedup, allowWeakDigest = false }: VerifierOptions,
  warn: (text: string) => void,
): Promise<void> {
  if (typeof scheme === 'string' && coversBody(description) && !allowWeakDigest) return;
  const { checkCoverage, checkId, checkWeakDigest } = await import('../config/rules/validate-places.ts');
  const { unsignedId = 'check' } = dedup === undefined || 'claim' in dedup ? {} : dedup;
  const policy = dedup === undefined ? ('off' as const) : { unsignedId, onStoreError: 'refuse' as const };
  const route = { description, scheme: description.name, allowWeakDigest, dedup: policy };
  for (const rule of [checkCoverage, checkWeakDigest, checkId]) report(rule(route, []), warn);
}

function createRing(
  scheme: Scheme,
  secrets: readonly NamedSecret[],
  { urlCredentials, handshake }: VerifierOptions,
  warn: (text: string) => void,
): KeyRing {
  if (secrets.length === 0) fail('secrets: the list is empty, so no delivery could be verified');
  const repeated = secrets.find(({ name }, at) => secrets.findIndex((other) => other.name === name) < at);
  if (repeated !== undefined) fail(`secrets: two are named ${repeated.name}; use a unique name`);
  const keys = secrets.map((each, at) => parseSecret(scheme, each, at, warn));
  const token = typeof handshake === 'object' ? handshake.verifyToken : undefined;
  const readOptional = (text: string | undefined, setting: string): Secret | undefined =>
    text === undefined ? undefined : readSecret(text, setting, warn);
  return new KeyRing({
    keys,
    unavailable: [],
    handshakeToken: readOptional(token, 'handshake.verifyToken'),
    urlCredentials: readOptional(urlCredentials, 'urlCredentials'),
  });
}

/** Reads the text as the gate reads a file. An unset variable of the environment must not become the secret `undefined`. */
function readSecret(text: unknown, setting: string, warn: (text: string) => void): Secret {
  if (typeof text !== 'string') fail(`${setting}: not a string; is a variable of the environment unset?`);
  const read = toSecret(Buffer.from(text), setting);
  if ('problem' in read) fail(`${read.problem}; ${read.hint}`);
  read.warnings.forEach(warn);
  return read.secret;
}

function parseSecret(
  scheme: Scheme,
  { secret, name, encoding, notAfter }: NamedSecret,
  at: number,
  warn: (text: string) => void,
): VerifyKey {
  const read = readSecret(secret, `secrets[${at}]`, warn);
  if (secret.startsWith(CERTIFICATE))
    fail(`secrets[${at}]: the library does not parse certificates; extract the public key: openssl x509 -pubkey -noout`);
  const parsed = scheme.parseKey(name, read, encoding, notAfter);
  if ('problem' in parsed) fail(`secrets[${at}]: ${parsed.problem}; ${parsed.hint}`);
  if (parsed.warning !== undefined) warn(`secrets[${at}]: ${parsed.warning}`);
  return parsed.key;
}

async function findHandshake(
  context: Omit<CompiledScheme, 'allowQuery'>,
  { handshake: given, allowQuery = false }: VerifierOptions,
): Promise<HandshakeGates> {
  const { name, handshake: own } = context.scheme.description;
  if (given === 'off' || (given === undefined && own === undefined)) return { isTokenInUrl: false };
  const type = given?.type ?? own;
  if (type === undefined) fail(`handshake: ${name} has no handshake by default; set handshake.type`);
  const { createHandshakeGates } = await import('./handshake.ts');
  return createHandshakeGates(type, given ?? {}, { ...context, allowQuery });
}

interface Compiled {
  readonly scheme: Scheme;
  readonly ring: KeyRing;
  readonly handshake: HandshakeGates;
  readonly tolerance: Tolerance | undefined;
}

function buildGates({ scheme, ring, handshake, tolerance }: Compiled, options: VerifierOptions): RouteGates {
  const { description } = scheme;
  const { maxBody = DEFAULT_MAX_BODY, allowQuery = false, publicUrl = '', contentTypes = description.contentTypes } = options;
  const bindsMediaType = description.signed.length > 0;
  const event = createSignatureGate(scheme, ring, {
    tolerance,
    onSkew: () => undefined,
    allowDotInId: false,
    allowQuery,
    maxBody,
    publicUrl,
    onKeyUsed: () => undefined,
  });
  return {
    handshake: handshake.open,
    content: createContentGate({
      contentTypes,
      maxBody,
      allowQuery: allowQuery || handshake.isTokenInUrl || coversQuery(description) || readsQuery(description),
      allowContentEncoding: false,
      bindsMediaType,
      checksBody: bindsMediaType,
      coversQueryOf: (method) => coversQueryOf(description, method),
      mayBeEmpty: (method) => mayBeEmpty(description, method),
    }),
    webhook: computeEvents(event, handshake.signed),
  };
}

/** The signed handshake is computed with the signature, as its gate responds at once; its response is used only after the gates before it. */
function computeEvents(event: EventGate, signed: VerifiedEventGate | undefined): NonNullable<RouteGates['webhook']> {
  const replies = new WeakMap<object, Refusal>();
  return {
    event: {
      maxBody: event.maxBody,
      check(head) {
        const verify = event.check(head);
        if (verify instanceof Refusal) return verify;
        return (body, sender) =>
          compute(() => {
            const verified = verify(body, sender);
            if (signed === undefined || verified instanceof Refusal || isPromise(verified)) return verified;
            const reply = signed.check(verified, head);
            if (reply !== undefined) replies.set(verified, reply);
            return verified;
          });
      },
    },
    verified: [{ check: (verified) => replies.get(verified) }],
    claims: [],
  };
}
