/** The server of the admin port. It never shares a route table with the data port. */
import type { Server } from 'node:http';
import type { Clock } from '../core/clock.ts';
import type { ListenAddress } from '../core/listen-address.ts';
import { endCounted } from '../core/read-pause.ts';
import { REFUSALS } from '../core/refusal-catalogue.ts';
import { onceEvent } from '../core/safe-events.ts';
import { createPlainErrors } from '../gateway/pipeline/respond.ts';
import { BodyWatch } from '../gateway/server/limits.ts';
import { type BoundAddress, Listener } from '../gateway/server/listener.ts';
import { NO_PRESSURE } from '../gateway/server/memory-guard.ts';
import { PortClients } from '../gateway/server/port-clients.ts';
import { type PortRequest, PortRequests } from '../gateway/server/port-requests.ts';
import { createStrictServer } from '../gateway/server/strict-server.ts';
import type { ConsoleLoader } from './console-loader.ts';
import { SECURITY_HEADERS, toPlain } from './response.ts';
import type { AdminRouter } from './router.ts';

const MAX_CONNECTIONS = 64;
/** Half, so that one client's requests can never block the kubelet. */
const MAX_PER_CLIENT = 32;
const REQUEST_TIMEOUT_MS = 5_000;
const LIMITS = {
  maxHeaderBytes: 16_384,
  maxHeaderFields: 100,
  headTimeout: REQUEST_TIMEOUT_MS,
  // Node counts from the first byte of the request.
  bodyTimeout: 0,
  keepAliveTimeout: REQUEST_TIMEOUT_MS,
  sendTimeout: 30_000,
  maxConnections: MAX_CONNECTIONS,
  maxConnectionsPerClient: MAX_PER_CLIENT,
  maxRequestsPerClient: MAX_PER_CLIENT,
  maxUpgraded: 0,
  maxUpgradedPerClient: 0,
};
const BODY_LIMITS = {
  bodyTimeout: REQUEST_TIMEOUT_MS,
  bodyIdleTimeout: REQUEST_TIMEOUT_MS,
  bodyMinRate: 0,
  streamMinRate: 0,
  streamTimeout: REQUEST_TIMEOUT_MS,
  // Also of the responses that clients have not read: metrics of many routes and endpoints have some MiB.
  maxBufferedBytes: 8 * 1024 * 1024,
  maxLargeBodies: 1,
};
const NO_LIMIT = (): void => undefined;

/** The listening admin port. */
export class AdminServer {
  readonly #router: AdminRouter;
  readonly #console: ConsoleLoader | undefined;
  readonly #server: Server;
  readonly #clients: PortClients;
  readonly #bodies: BodyWatch;
  readonly #listener: Listener;

  /** `console`: absent in processes without requests, such as the injector. */
  constructor(address: ListenAddress, clock: Clock, router: AdminRouter, console?: ConsoleLoader) {
    this.#router = router;
    this.#console = console;
    this.#server = createStrictServer(LIMITS, undefined, {});
    // The kubelet opens a new connection for each probe. It must always get one, and a response even without memory, or it restarts the
    // container.
    this.#clients = new PortClients(this.#server, {
      limits: LIMITS,
      shared: [],
      clock,
      onLimit: NO_LIMIT,
      tls: undefined,
      memory: NO_PRESSURE,
    });
    this.#bodies = new BodyWatch(BODY_LIMITS, clock, NO_LIMIT, NO_PRESSURE);
    const errors = createPlainErrors(clock);
    const handle = (received: PortRequest): Promise<void> => this.#handle(received);
    const requests = new PortRequests({
      errors,
      clients: this.#clients,
      bodies: this.#bodies,
      onLimit: NO_LIMIT,
      maxHeaderFields: LIMITS.maxHeaderFields,
      handle,
    });
    requests.bind(this.#server);
    this.#listener = new Listener(this.#server, address);
  }

  /** Opens the port; rejects with the system's error. */
  listen(): Promise<BoundAddress> {
    return this.#listener.open();
  }

  /** Closes the port and all connections immediately. */
  close(): void {
    this.#listener.close();
    this.#console?.close();
    this.#server.closeAllConnections();
    this.#clients.close();
    this.#bodies.close();
  }

  async #handle({ request, response, body, tracked, refusal }: PortRequest): Promise<void> {
    for (const [name, value] of Object.entries(SECURITY_HEADERS)) response.setHeader(name, value);
    const rejected = this.#clients.admit(tracked, request.socket.remoteAddress ?? '', false) ?? refusal;
    body.client = request.socket.remoteAddress ?? '';
    onceEvent(response, 'close', () => body.discard());
    if (rejected === undefined && this.#console?.owns(request) === true) return this.#console.handle(request, response, body);
    // An endpoint that throws is our bug. The error's text may contain anything, so it is not sent.
    const adminResponse =
      rejected === undefined
        ? await this.#router.respond(request, body).catch(() => toPlain(500, 'internal error'))
        : toPlain(REFUSALS[rejected.code].status, REFUSALS[rejected.code].title);
    const { status, contentType, text, headers } = adminResponse;
    // The rest of an unread body would be parsed as the next request.
    if (!request.complete) response.shouldKeepAlive = false;
    response.writeHead(status, {
      'Content-Type': contentType,
      // RFC 9110 §8.6: never with 204.
      ...(status === 204 ? undefined : { 'Content-Length': Buffer.byteLength(text) }),
      ...headers,
    });
    if (request.method === 'HEAD') response.end();
    else endCounted(response, text, body, LIMITS.sendTimeout);
  }
}
