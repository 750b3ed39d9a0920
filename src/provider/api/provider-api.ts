/** The port of the provider's API: node:http made strict, one JSON request after the other, bounded in size, time and memory. */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Server as TlsServer } from 'node:https';
import type { Clock } from '../../core/clock.ts';
import type { ListenAddress } from '../../core/listen-address.ts';
import { Refusal } from '../../core/refusal.ts';
import type { Secret } from '../../core/secret.ts';
import { createPlainErrors } from '../../gateway/pipeline/respond.ts';
import type { ClientErrors } from '../../gateway/server/client-errors.ts';
import { checkHead, toIncomingHead } from '../../gateway/server/head-check.ts';
import { BodyWatch } from '../../gateway/server/limits.ts';
import { lingerOnClose } from '../../gateway/server/linger.ts';
import { type BoundAddress, Listener } from '../../gateway/server/listener.ts';
import type { MemoryPressure } from '../../gateway/server/memory-guard.ts';
import { PortClients } from '../../gateway/server/port-clients.ts';
import { type PortRequest, PortRequests } from '../../gateway/server/port-requests.ts';
import type { IncomingBody } from '../../gateway/server/request-body.ts';
import { createStrictServer } from '../../gateway/server/strict-server.ts';
import type { TlsContexts } from '../../gateway/server/tls.ts';
import { ApiRouter, checkMediaType, validateBody, validateQuery } from '../../http-api/api-router.ts';
import { writeResponse } from '../../http-api/api-writer.ts';
import { createOpenapiOperation } from '../../http-api/openapi.ts';
import type { ApiResponse, Operation } from '../../http-api/operation.ts';
import { toProblem } from '../../http-api/problem.ts';
import { ApiAccess, type ApiPassword } from './api-access.ts';
import { PATH_PARAMETERS, toDocumentOptions } from './api-document.ts';
import { toRefusalProblem, toRejection, toThrownProblem } from './api-errors.ts';
import type { OperationParts } from './api-parts.ts';
import { createDeliveryOperations } from './delivery-operations.ts';
import { createEndpointActions } from './endpoint-actions.ts';
import { createEndpointOperations } from './endpoint-operations.ts';
import { createEventOperations, toMaxBatchBytes } from './event-operations.ts';
import { createRepairOperations } from './repair-operations.ts';

/** The dependencies of the API. */
export interface ProviderApiParts extends OperationParts {
  readonly address: ListenAddress;
  readonly tls: TlsContexts | undefined;
  /** If there is neither a token nor a password, only requests from loopback are accepted. */
  readonly token: Secret | undefined;
  readonly password: ApiPassword | undefined;
  readonly memory: MemoryPressure;
  /** Of all bodies together; one of the largest may always be read. */
  readonly maxBufferedBytes: number;
  /** Shown in the OpenAPI document. */
  readonly version: string;
}

/** The listening API. */
export interface ProviderApi {
  /** Rejects with the system's error. */
  listen(): Promise<BoundAddress>;
  /** Stops accepting connections, and resolves when all responses are sent. */
  drain(): Promise<void>;
  /** Destroys the remaining connections. */
  close(): void;
  replaceToken(token: Secret | undefined): void;
  /** Uses the current TLS contexts for new connections. */
  refreshTls(): void;
}

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
const NO_LIMIT = (): void => undefined;
const NO_OPERATION = 'none';
const ACCEPTING: ReadonlySet<string> = new Set(['createEvent', 'createEvents']);

/** Builds the API; it does not listen yet. */
export function createProviderApi(parts: ProviderApiParts): ProviderApi {
  return new ApiServer(parts);
}

/** Lists all operations. */
export function createOperations(parts: OperationParts, version: string): Operation[] {
  const operations = [
    ...createEventOperations(parts),
    ...createEndpointOperations(parts),
    ...createEndpointActions(parts),
    ...createDeliveryOperations(parts),
    ...createRepairOperations(parts),
  ];
  return [...operations, createOpenapiOperation(operations, toDocumentOptions(version))];
}

/** A request and what is needed to respond to it. */
interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly body: IncomingBody;
  /** The operation, once it is known. */
  operation: Operation | undefined;
}

class ApiServer implements ProviderApi {
  readonly #parts: ProviderApiParts;
  readonly #clock: Clock;
  readonly #server: Server | TlsServer;
  readonly #listener: Listener;
  readonly #access: ApiAccess;
  readonly #router: ApiRouter;
  readonly #bodies: BodyWatch;
  readonly #clients: PortClients;
  readonly #clientErrors: ClientErrors;
  #inFlight = 0;
  #isDraining = false;
  #onIdle: () => void = () => undefined;

  constructor(parts: ProviderApiParts) {
    const { clock, address, tls, token, password, memory, settings, version } = parts;
    this.#parts = parts;
    this.#clock = clock;
    this.#access = new ApiAccess(token, password);
    this.#router = new ApiRouter(createOperations(parts, version), PATH_PARAMETERS);
    const maxBufferedBytes = Math.max(parts.maxBufferedBytes, toMaxBatchBytes(settings.maxEventSize));
    this.#bodies = new BodyWatch({ ...LIMITS, maxBufferedBytes, maxLargeBodies: MAX_LARGE_BODIES }, clock, NO_LIMIT, memory);
    this.#server = createStrictServer(LIMITS, tls && { contexts: tls, clock, memory, onLimit: NO_LIMIT }, {});
    this.#clients = new PortClients(this.#server, {
      limits: LIMITS,
      shared: [],
      clock,
      onLimit: NO_LIMIT,
      tls,
      memory,
    });
    this.#listener = new Listener(this.#server, address);
    this.#clientErrors = createPlainErrors(clock);
    const requests = new PortRequests({
      errors: this.#clientErrors,
      clients: this.#clients,
      bodies: this.#bodies,
      onLimit: NO_LIMIT,
      maxHeaderFields: LIMITS.maxHeaderFields,
      handle: (received) => this.#exchange(received),
    });
    requests.bind(this.#server);
  }

  listen(): Promise<BoundAddress> {
    return this.#listener.open();
  }

  drain(): Promise<void> {
    this.#isDraining = true;
    this.#listener.close();
    this.#clientErrors.endConnections();
    this.#server.closeIdleConnections();
    return new Promise((resolve) => {
      if (this.#inFlight === 0) resolve();
      else this.#onIdle = resolve;
    });
  }

  close(): void {
    this.#listener.close();
    this.#server.closeAllConnections();
    this.#clients.close();
    this.#bodies.close();
  }

  replaceToken(token: Secret | undefined): void {
    this.#access.replace(token);
  }

  refreshTls(): void {
    const { tls } = this.#parts;
    if (tls !== undefined) (this.#server as TlsServer).setSecureContext(tls.toServerOptions());
  }

  async #exchange({ request, response, body, tracked, refusal }: PortRequest): Promise<void> {
    body.client = request.socket.remoteAddress ?? '';
    const exchange: Exchange = { request, response, body, operation: undefined };
    const startedAt = this.#clock.monotonic();
    this.#inFlight++;
    try {
      const rejected = this.#clients.admit(tracked, body.client, false) ?? refusal;
      const reply = rejected === undefined ? await this.#respond(exchange) : toRefusalProblem(rejected);
      await this.#write(exchange, reply);
      this.#report(exchange, reply, this.#clock.monotonic() - startedAt);
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
      this.#parts.hooks.onError(operation?.id ?? NO_OPERATION, thrown);
      response.destroy();
    }
  }

  #report({ operation }: Exchange, { status, problem }: ApiResponse, duration: number): void {
    const { hooks } = this.#parts;
    hooks.onRequest(operation?.id ?? NO_OPERATION, status, duration);
    if (problem !== undefined && operation !== undefined && ACCEPTING.has(operation.id)) hooks.onRejected(toRejection(problem));
  }

  /** Never rejects. */
  async #respond(exchange: Exchange): Promise<ApiResponse> {
    try {
      return await this.#handle(exchange);
    } catch (thrown) {
      const known = toThrownProblem(thrown);
      if (known?.status === undefined || known.status === 500)
        this.#parts.hooks.onError(exchange.operation?.id ?? NO_OPERATION, thrown);
      // The error's text may contain anything, so it is not sent.
      return known ?? toProblem('internal', 'the request failed; see the log of sidegate');
    }
  }

  async #handle(exchange: Exchange): Promise<ApiResponse> {
    const { request, body } = exchange;
    const target = checkHead(toIncomingHead(request), LIMITS, NO_LIMIT);
    if (target instanceof Refusal) return toRefusalProblem(target);
    const found = this.#router.find(request.method ?? '', target.path);
    exchange.operation = typeof found === 'object' ? found.operation : undefined;
    // Before 404 and 405: only authorized clients learn what exists.
    const denial = exchange.operation?.isPublic === true ? undefined : await this.#access.authorize(request);
    if (denial !== undefined) return denial;
    if (found === undefined) return toProblem('not_found', 'there is no such path; see /openapi.json');
    if (typeof found === 'string')
      return toProblem('method_not_allowed', `allowed methods: ${found}`, { headers: { Allow: found } });
    const { operation, params } = found;
    const query = validateQuery(operation, target.query);
    if (query.kind === 'invalid') return query.response;
    const mediaType = checkMediaType(operation, request, body.declaredLength === 0);
    if (mediaType !== undefined) return mediaType;
    const content = await body.read(operation.body?.maxBytes ?? 0);
    if (content instanceof Refusal) return toRefusalProblem(content, operation.body?.maxBytes);
    const validated = validateBody(operation, content);
    if (validated.kind === 'invalid') return validated.response;
    return operation.handle({ params, query: query.value, body: validated.value, content, incoming: request });
  }
}
