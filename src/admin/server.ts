/** The admin port: what operators and their machines ask of the gate. It never shares a route table with the data port. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { toClientNetwork } from '../core/client-network.ts';
import type { ListenAddress } from '../core/listen-address.ts';
import { onEvent } from '../core/safe-events.ts';
import { followRequests, limitCrowd } from '../gateway/server/crowd.ts';
import { Listener, type Listening } from '../gateway/server/listener.ts';
import { toPlain } from './answer.ts';
import type { AdminRouter } from './router.ts';

const MOST_CONNECTIONS = 64;
/** Half: the requests under way of one client can never keep the kubelet out. */
const MAX_CONNECTIONS_PER_CLIENT = 32;
const SLOWEST_REQUEST_MS = 5_000;
/** Node's own is 30 s: it is then that timeouts are noticed. */
const CHECK_INTERVAL_MS = 1_000;

/** The listening admin port. */
export class AdminServer {
  readonly #router: AdminRouter;
  readonly #server: Server;
  readonly #listener: Listener;

  constructor(address: ListenAddress, router: AdminRouter) {
    this.#router = router;
    this.#server = createServer({
      headersTimeout: SLOWEST_REQUEST_MS,
      requestTimeout: SLOWEST_REQUEST_MS,
      connectionsCheckingInterval: CHECK_INTERVAL_MS,
    });
    // The kubelet, which asks by a new connection each time, must get in whoever else is there: else it ends the container.
    const crowd = limitCrowd(this.#server, {
      maxConnections: MOST_CONNECTIONS,
      maxPerClient: MAX_CONNECTIONS_PER_CLIENT,
      toClient: ({ remoteAddress = '' }) => toClientNetwork(remoteAddress),
    });
    followRequests(this.#server, crowd);
    this.#listener = new Listener(this.#server, address);
    onEvent(this.#server, 'request', (request, response) => this.#onRequest(request, response));
  }

  /** Starts to listen; rejects with the system's error. */
  listen(): Promise<Listening> {
    return this.#listener.open();
  }

  /** Stops at once. */
  close(): void {
    this.#listener.close();
    this.#server.closeAllConnections();
  }

  async #onRequest(request: IncomingMessage, response: ServerResponse): Promise<void> {
    // A handler that fails is our bug; its text may hold anything, so it is not shown.
    const answer = await this.#router.answer(request).catch(() => toPlain(500, 'the gate failed to answer this'));
    const { status, contentType, text, headers } = answer;
    // What is left of the content is not worth reading, and would be taken for the next request.
    if (!request.complete) response.shouldKeepAlive = false;
    response.writeHead(status, {
      'Content-Type': contentType,
      'Cache-Control': 'no-store',
      'X-Content-Type-Options': 'nosniff',
      // RFC 9110 §8.6: never with 204.
      ...(status === 204 ? undefined : { 'Content-Length': Buffer.byteLength(text) }),
      ...headers,
    });
    response.end(request.method === 'HEAD' ? undefined : text);
  }
}
