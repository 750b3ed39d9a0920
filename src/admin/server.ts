/** The server of the admin port. It never shares a route table with the data port. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { toClientNetwork } from '../core/client-network.ts';
import type { ListenAddress } from '../core/listen-address.ts';
import { onEvent } from '../core/safe-events.ts';
import { limitConnections, trackRequests } from '../gateway/server/connection-limiter.ts';
import { type BoundAddress, Listener } from '../gateway/server/listener.ts';
import type { ConsoleLoader } from './console-loader.ts';
import { SECURITY_HEADERS, toPlain } from './response.ts';
import type { AdminRouter } from './router.ts';

const MAX_CONNECTIONS = 64;
/** Half, so that one client's requests can never block the kubelet. */
const MAX_CONNECTIONS_PER_CLIENT = 32;
/** Node parses thousands of pipelined requests at once, and keeps all responses until the client reads them. */
const MAX_UNANSWERED_PER_CONNECTION = 2;
const REQUEST_TIMEOUT_MS = 5_000;
/** How often Node looks for timed-out requests; its default is 30 s. */
const CHECK_INTERVAL_MS = 1_000;

/** The listening admin port. */
export class AdminServer {
  readonly #router: AdminRouter;
  readonly #console: ConsoleLoader | undefined;
  readonly #server: Server;
  readonly #listener: Listener;

  /** `console`: absent in processes without requests, such as the injector. */
  constructor(address: ListenAddress, router: AdminRouter, console?: ConsoleLoader) {
    this.#router = router;
    this.#console = console;
    this.#server = createServer({
      headersTimeout: REQUEST_TIMEOUT_MS,
      requestTimeout: REQUEST_TIMEOUT_MS,
      connectionsCheckingInterval: CHECK_INTERVAL_MS,
    });
    // The kubelet opens a new connection for each probe. It must always get one, or it restarts the container.
    const limiter = limitConnections(this.#server, {
      maxConnections: MAX_CONNECTIONS,
      maxPerClient: MAX_CONNECTIONS_PER_CLIENT,
      toClient: ({ remoteAddress = '' }) => toClientNetwork(remoteAddress),
    });
    trackRequests(this.#server, limiter, MAX_UNANSWERED_PER_CONNECTION);
    this.#listener = new Listener(this.#server, address);
    onEvent(this.#server, 'request', (request, response) => this.#onRequest(request, response));
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
  }

  async #onRequest(request: IncomingMessage, response: ServerResponse): Promise<void> {
    // The connection had too many requests without a response.
    if (request.socket.destroyed) return;
    for (const [name, value] of Object.entries(SECURITY_HEADERS)) response.setHeader(name, value);
    if (this.#console?.owns(request) === true) return this.#console.handle(request, response);
    // An endpoint that throws is our bug. The error's text may contain anything, so it is not sent.
    const adminResponse = await this.#router.respond(request).catch(() => toPlain(500, 'internal error'));
    const { status, contentType, text, headers } = adminResponse;
    // The rest of an unread body would be parsed as the next request.
    if (!request.complete) response.shouldKeepAlive = false;
    response.writeHead(status, {
      'Content-Type': contentType,
      // RFC 9110 §8.6: never with 204.
      ...(status === 204 ? undefined : { 'Content-Length': Buffer.byteLength(text) }),
      ...headers,
    });
    response.end(request.method === 'HEAD' ? undefined : text);
  }
}
