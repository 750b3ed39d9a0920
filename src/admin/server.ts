/** The server of the admin port. It never shares a route table with the data port. */
import type { Clock } from '../core/clock.ts';
import type { ListenAddress } from '../core/listen-address.ts';
import { endCounted } from '../core/reading.ts';
import { REFUSALS, type Refusal } from '../core/refusal.ts';
import { onceEvent } from '../core/safe-events.ts';
import { PlainPort } from '../gateway/pipeline/plain-port.ts';
import type { BoundAddress } from '../http/server/listener.ts';
import { NO_PRESSURE } from '../http/server/memory-guard.ts';
import type { PortRequest } from '../http/server/port-requests.ts';
import type { ConsoleLoader } from './console-loader.ts';
import { type AdminRouter, SECURITY_HEADERS, toPlain } from './router.ts';

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
  streamTimeout: 0,
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

/** The listening admin port. */
export class AdminServer {
  readonly #router: AdminRouter;
  readonly #console: ConsoleLoader | undefined;
  readonly #port: PlainPort;

  /** `console`: absent in processes without requests, such as the injector. */
  constructor(address: ListenAddress, clock: Clock, router: AdminRouter, console?: ConsoleLoader) {
    this.#router = router;
    this.#console = console;
    // The kubelet opens a new connection for each probe. It must always get one, and a response even without memory, or it restarts the
    // container.
    const options = { address, limits: LIMITS, bodies: BODY_LIMITS, tls: undefined, memory: NO_PRESSURE, clock };
    this.#port = new PlainPort(options, (received, rejection) => this.#handle(received, rejection));
  }

  /** Opens the port; rejects with the system's error. */
  listen(): Promise<BoundAddress> {
    return this.#port.listen();
  }

  /** Closes the port and all connections immediately. */
  close(): void {
    this.#console?.close();
    this.#port.close();
  }

  async #handle({ request, response, body }: PortRequest, rejected: Refusal | undefined): Promise<void> {
    for (const [name, value] of Object.entries(SECURITY_HEADERS)) response.setHeader(name, value);
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
