/** The port of the provider's API: node:http made strict, one JSON request after the other, bounded in size, time and memory. */

import type { IncomingMessage } from 'node:http';
import * as z from 'zod';
import { ENDPOINT_NAME, TENANT } from '../../config/schema/provider-schema.ts';
import type { Clock } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import { HeaderFields } from '../../core/head.ts';
import { toPlainAddress } from '../../core/ip-address.ts';
import type { ListenAddress } from '../../core/listen-address.ts';
import { Refusal } from '../../core/refusal.ts';
import type { Secret } from '../../core/secret.ts';
import type { PasswordGate } from '../../gateway/pipeline/gates/gate.ts';
import { PlainPort } from '../../gateway/pipeline/plain-port.ts';
import { lingerOnClose } from '../../http/server/linger.ts';
import type { BoundAddress } from '../../http/server/listener.ts';
import type { MemoryPressure } from '../../http/server/memory-guard.ts';
import { type AccessDenial, isFromOtherSite, PortAccess } from '../../http/server/port-access.ts';
import type { PortRequest } from '../../http/server/port-requests.ts';
import { checkHead, toIncomingHead } from '../../http/server/strict-server.ts';
import type { TlsContexts } from '../../http/server/tls.ts';
import { ApiRouter, handleOperation, type PathParameters, writeResponse } from '../../http-api/api-router.ts';
import { createOpenapiOperation, type OpenapiOptions } from '../../http-api/openapi.ts';
import type { ApiResponse, Operation } from '../../http-api/operation.ts';
import { toProblem, toRefusalProblem } from '../../http-api/problem.ts';
import type { ProblemCode } from '../../http-api/problem-catalogue.ts';
import { EVENT_ID } from '../events/event.ts';
import { isDiskFull, isQueueBusy } from '../queue/store-client.ts';
import type { ApiHooks } from '../telemetry/hooks.ts';
import type { EventRejection } from '../telemetry/provider-metrics.ts';
import type { OperationParts } from './api-parts.ts';
import { DELIVERY_OPERATIONS } from './delivery-operations.ts';
import { ENDPOINT_OPERATIONS } from './endpoint-operations.ts';
import { EVENT_OPERATIONS, toMaxBatchBytes } from './event-operations.ts';
import * as schemas from './schemas.ts';

const MAX_LARGE_BODIES = 16;
const MAX_CONNECTIONS = 1_024;
/** The app and its connection pools; on loopback, all clients are one. */
const MAX_REQUESTS = 512;
const LIMITS = {
  maxHeaderBytes: 16_384,
  maxHeaderFields: 100,
  maxTarget: 8_192,
  headTimeout: 10_000,
  bodyTimeout: 30_000,
  bodyIdleTimeout: 10_000,
  bodyMinRate: 500,
  streamMinRate: 500,
  streamTimeout: 30_000,
  // Longer than common connection pools keep idle connections: if the app closes first, no request is lost.
  keepAliveTimeout: 75_000,
  sendTimeout: 30_000,
  maxConnections: MAX_CONNECTIONS,
  maxConnectionsPerClient: MAX_CONNECTIONS,
  maxRequestsPerClient: MAX_REQUESTS,
  maxUpgraded: 1,
  maxUpgradedPerClient: 1,
};
const NO_OPERATION = 'none';
const ACCEPTING: ReadonlySet<string> = new Set(['createEvent', 'createEvents']);

interface Exchange extends PortRequest {
  operation: Operation | undefined;
}

/** The API; it does not listen yet. */
export class ProviderApi {
  readonly #clock: Clock;
  readonly #hooks: ApiHooks;
  readonly #port: PlainPort;
  /** `port`: who may send requests without a user. */
  readonly #access;
  readonly #router: ApiRouter;
  #inFlight = 0;
  #isDraining = false;
  #onIdle: () => void = () => undefined;

  constructor(
    parts: OperationParts & {
      readonly address: ListenAddress;
      readonly tls: TlsContexts | undefined;
      /** If there is neither a token nor a password, only requests from loopback are accepted. */
      readonly token: Secret | undefined;
      readonly password: ApiPassword | undefined;
      readonly memory: MemoryPressure;
      /** Of all bodies together; one of the largest may always be read. */
      readonly maxBufferedBytes: number;
      readonly version: string;
    },
  ) {
    const { clock, address, tls, memory, settings } = parts;
    this.#clock = clock;
    this.#hooks = parts.hooks;
    this.#access = { port: new PortAccess(parts.token), password: parts.password };
    this.#router = new ApiRouter(createOperations(parts, parts.version), PATH_PARAMETERS);
    const maxBufferedBytes = Math.max(parts.maxBufferedBytes, toMaxBatchBytes(settings.maxEventSize));
    const bodies = { ...LIMITS, maxBufferedBytes, maxLargeBodies: MAX_LARGE_BODIES };
    const options = { address, limits: LIMITS, bodies, tls, memory, clock };
    this.#port = new PlainPort(options, (received, rejection) => this.#exchange(received, rejection));
  }

  listen(): Promise<BoundAddress> {
    return this.#port.listen();
  }

  /** Stops accepting connections, and resolves when all responses are sent. */
  drain(): Promise<void> {
    this.#isDraining = true;
    this.#port.endIdle();
    return new Promise((resolve) => {
      if (this.#inFlight === 0) resolve();
      else this.#onIdle = resolve;
    });
  }

  close(): void {
    this.#port.close();
  }

  replaceToken(token: Secret | undefined): void {
    this.#access.port.replace(token);
  }

  refreshTls(): void {
    this.#port.refreshTls();
  }

  async #exchange(received: PortRequest, rejection: Refusal | undefined): Promise<void> {
    const exchange: Exchange = { ...received, operation: undefined };
    const startedAt = this.#clock.monotonic();
    this.#inFlight++;
    try {
      const reply = rejection === undefined ? await this.#respond(exchange) : toRefusalProblem(rejection);
      await this.#write(exchange, reply);
      const { id = NO_OPERATION } = exchange.operation ?? {};
      this.#hooks.onRequest(id, reply.status, this.#clock.monotonic() - startedAt);
      if (reply.problem !== undefined && ACCEPTING.has(id)) this.#hooks.onRejected(REJECTIONS[reply.problem] ?? 'invalid');
    } finally {
      this.#inFlight--;
      if (this.#inFlight === 0) this.#onIdle();
    }
  }

  async #write({ request, response, body, operation }: Exchange, reply: ApiResponse): Promise<void> {
    // The rest of an unread body would be parsed as the next request.
    if (reply.mustClose === true || (!request.complete && !body.isCheapToDrain)) {
      response.shouldKeepAlive = false;
      lingerOnClose(request.socket, this.#clock);
    }
    body.discard();
    if (this.#isDraining) response.shouldKeepAlive = false;
    try {
      await writeResponse(reply, response, body);
    } catch (thrown) {
      // In the middle of a stream: the client must not take it for complete.
      this.#hooks.onError(operation?.id ?? NO_OPERATION, thrown);
      response.destroy();
    }
  }

  /** Never rejects. */
  async #respond(exchange: Exchange): Promise<ApiResponse> {
    try {
      return await this.#handle(exchange);
    } catch (thrown) {
      const known = toThrownProblem(thrown);
      if (known?.status === undefined || known.status === 500)
        this.#hooks.onError(exchange.operation?.id ?? NO_OPERATION, thrown);
      // The error's text may contain anything, so it is not sent.
      return known ?? toProblem('internal', 'the request failed; see the log of sidegate');
    }
  }

  async #handle(exchange: Exchange): Promise<ApiResponse> {
    const { request, body } = exchange;
    const target = checkHead(toIncomingHead(request), LIMITS, () => undefined);
    if (target instanceof Refusal) return toRefusalProblem(target);
    const found = this.#router.find(request.method ?? '', target.path);
    exchange.operation = typeof found === 'object' ? found.operation : undefined;
    // Before 404 and 405: only authorized clients learn what exists.
    const denial = exchange.operation?.isPublic === true ? undefined : await authorize(request, this.#access);
    if (denial !== undefined) return denial;
    if (found === undefined) return toProblem('not_found', 'there is no such path; see /openapi.json');
    if (typeof found === 'string')
      return toProblem('method_not_allowed', `allowed methods: ${found}`, { headers: { Allow: found } });
    return handleOperation(found, request, target.query, body);
  }
}

/** The users of the API (HTTP Basic). */
export interface ApiPassword extends PasswordGate {
  /** For `WWW-Authenticate`. */
  readonly challenge: string;
}

const BEARER_CHALLENGE = 'Bearer realm="sidegate-provider"';
const BASIC = /^basic(?:[\t ]|$)/i;

type ApiDenial = AccessDenial | 'cross_origin' | 'no_password';

const DENIALS: Readonly<Record<ApiDenial, readonly [ProblemCode, string]>> = {
  not_loopback: ['forbidden', 'only requests from this machine are accepted; or set provider.token or provider.basic'],
  foreign_host: [
    'forbidden',
    'the Host must be localhost or an IP address, as a web page could otherwise send this request (DNS rebinding); or set provider.token',
  ],
  cross_origin: ['forbidden', 'requests from web pages are accepted only with the token of provider.token'],
  no_token: ['unauthorized', 'send the token of provider.token as Authorization: Bearer TOKEN'],
  wrong_token: ['unauthorized', 'this is not the token of provider.token'],
  no_password: ['unauthorized', 'send a user of provider.basic and the right password as Authorization: Basic'],
};

interface ApiAccess {
  readonly port: PortAccess;
  readonly password: ApiPassword | undefined;
}

/** Returns undefined if the request is authorized, else the response that rejects it. */
async function authorize(request: IncomingMessage, access: ApiAccess): Promise<ApiResponse | undefined> {
  const { port, password } = access;
  if (password === undefined || (port.hasToken && !BASIC.test(request.headers.authorization ?? ''))) {
    const denial = port.authorize(request);
    if (denial !== undefined) return deny(denial, access);
    // A page cannot know a token.
    return !port.hasToken && isFromPage(request) ? deny('cross_origin', access) : undefined;
  }
  // Before the password: a browser adds the one that its user entered to the requests of any page, and a page must not cause bans.
  if (isFromPage(request)) return deny('cross_origin', access);
  const { socket, rawHeaders } = request;
  const scheme = 'encrypted' in socket ? 'https' : 'http';
  const client = { address: toPlainAddress(socket.remoteAddress ?? ''), scheme } as const;
  const result = await password.check({ client, headers: new HeaderFields(rawHeaders) });
  if ('name' in result) return undefined;
  return result.code === 'credentials_required' ? deny('no_password', access) : toRefusalProblem(result);
}

function deny(denial: ApiDenial, { port, password }: ApiAccess): ApiResponse {
  const [code, detail] = DENIALS[denial];
  if (code !== 'unauthorized') return toProblem(code, detail);
  const bearer = denial === 'wrong_token' ? `${BEARER_CHALLENGE}, error="invalid_token"` : BEARER_CHALLENGE;
  const basic = password === undefined ? [] : [password.challenge];
  // One field line each, as not all clients parse lists (RFC 9110 §11.6.1).
  return toProblem(code, detail, { headers: { 'WWW-Authenticate': [...(port.hasToken ? [bearer] : []), ...basic] } });
}

/** The API has no pages, so each `Origin` is another one. */
function isFromPage(request: IncomingMessage): boolean {
  return request.headers.origin !== undefined || isFromOtherSite(request);
}

// All operations of the API, their OpenAPI document, and those that the console offers, too.

const PATH_PARAMETERS: PathParameters = {
  tenant: z.string().regex(TENANT).describe('ID of the tenant.'),
  event: z.string().regex(EVENT_ID).describe('ID of the event.'),
  endpoint: z.string().regex(ENDPOINT_NAME).describe('ID of the endpoint.'),
  receiver: schemas.receiverId.describe('ID of the endpoint, or `inbox:` and the name of a route.'),
};

/** The app creates endpoints and events, and it alone has the credentials for that. */
const OFFERED: ReadonlySet<string> = new Set([
  'listEndpoints',
  'getEndpoint',
  'getEndpointStats',
  'enableEndpoint',
  'disableEndpoint',
  'rotateSecret',
  'testEndpoint',
  'listEvents',
  'listDeliveries',
  'getDelivery',
  'retryDelivery',
  'repairDeliveries',
]);

/** The operations that the console offers, and the schemas of their document. */
export type ConsoleOperations = ReturnType<typeof createConsoleOperations>;

function createOperations(parts: OperationParts, version: string): Operation[] {
  const operations = createEach(parts);
  const document = createOpenapiOperation(operations, {
    info: {
      title: 'sidegate provider API',
      version,
      summary: 'Accepts events and delivers them as signed webhooks (Standard Webhooks).',
    },
    servers: [{ url: 'http://127.0.0.1:8482', description: 'The default of provider.address.' }],
    securitySchemes: {
      bearer: {
        type: 'http',
        scheme: 'bearer',
        description: 'provider.token. If neither it nor provider.basic is set, only requests from loopback are accepted.',
      },
      basic: { type: 'http', scheme: 'basic', description: 'A user of provider.basic.' },
    },
    parameters: PATH_PARAMETERS,
    ...toNames(operations),
  });
  return [...operations, document];
}

/** Those of the console, with their paths on the provider's port. */
export function createConsoleOperations(parts: OperationParts) {
  const all = createEach(parts);
  const operations = all.filter(({ id }) => OFFERED.has(id));
  return { operations, parameters: PATH_PARAMETERS, ...toNames(all), toThrownProblem };
}

function createEach(parts: OperationParts): Operation[] {
  return [...EVENT_OPERATIONS, ...ENDPOINT_OPERATIONS, ...DELIVERY_OPERATIONS].map((bind) => bind(parts));
}

/** The exported schemas that have a description are named in the document. Those that are the body of an operation describe requests. */
function toNames(operations: readonly Operation[]): Pick<OpenapiOptions, 'requests' | 'responses'> {
  const bodies = new Set(operations.map(({ body }) => body?.schema));
  const named = Object.entries(schemas).flatMap(([name, schema]) =>
    schema instanceof z.ZodType && schema.description !== undefined
      ? [[name.replace(/^./, (first) => first.toUpperCase()), schema] as const]
      : [],
  );
  const { true: requests = [], false: responses = [] } = Object.groupBy(named, ([, schema]) => `${bodies.has(schema)}` as const);
  return { requests: Object.fromEntries(requests), responses: Object.fromEntries(responses) };
}

const AGAIN = 'post the event again later, with the same ID';
const REJECTIONS: Partial<Readonly<Record<ProblemCode, EventRejection>>> = {
  conflict: 'conflict',
  unauthorized: 'unauthorized',
  forbidden: 'unauthorized',
  too_many_attempts: 'unauthorized',
  users_unavailable: 'unauthorized',
  too_large: 'too_large',
  queue_full: 'queue_full',
  queue_unavailable: 'queue_unavailable',
  internal: 'queue_unavailable',
  busy: 'busy',
  draining: 'busy',
};

/** Undefined for an error that is not expected. */
function toThrownProblem(thrown: unknown): ApiResponse | undefined {
  if (!(thrown instanceof SidegateError)) return undefined;
  // The text names the endpoint or the tenant whose events do not leave.
  if (thrown.code === 'queue_full')
    return toProblem('queue_full', `${thrown.message}; repeat the request later, an event with the same ID`);
  if (thrown.code === 'queue_unavailable') {
    const problem = isDiskFull(thrown.message) ? 'the disk of the queue is full' : 'the queue is unavailable';
    return toProblem('queue_unavailable', `${problem}: ${AGAIN}`);
  }
  if (isQueueBusy(thrown)) return toProblem('busy', `${thrown.message}: ${AGAIN}`);
  if (thrown.code === 'too_large') return toProblem('too_large', thrown.message);
  if (thrown.code === 'unstorable')
    return toProblem('invalid_request', 'the request has a value that the store of the queue cannot hold, such as U+0000');
  if (thrown.code !== 'endpoint_conflict') return undefined;
  return toProblem('busy', 'the endpoint is being changed by many requests at once');
}
