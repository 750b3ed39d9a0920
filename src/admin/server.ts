/** The admin port: what operators and their machines ask of the gate. It never shares a route table with the data port. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { SocketAddress } from '../config/scalars.ts';
import { toPlain } from './answer.ts';
import type { AdminRouter } from './router.ts';

const MOST_CONNECTIONS = 64;
const SLOWEST_REQUEST_MS = 5_000;

/** The listening admin port. */
export class AdminServer {
  readonly #address: SocketAddress;
  readonly #router: AdminRouter;
  readonly #server: Server;

  constructor(address: SocketAddress, router: AdminRouter) {
    this.#address = address;
    this.#router = router;
    this.#server = createServer({ headersTimeout: SLOWEST_REQUEST_MS, requestTimeout: SLOWEST_REQUEST_MS });
    this.#server.maxConnections = MOST_CONNECTIONS;
    this.#server.on('request', (request, response) => void this.#onRequest(request, response));
  }

  /** Starts to listen; rejects with the system's error. */
  listen(): Promise<AddressInfo> {
    const { host, port } = this.#address;
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(port, host, () => {
        this.#server.off('error', reject);
        resolve(this.#server.address() as AddressInfo);
      });
    });
  }

  /** Stops at once. */
  close(): void {
    this.#server.close();
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
      'Content-Length': Buffer.byteLength(text),
      ...headers,
    });
    response.end(request.method === 'HEAD' ? undefined : text);
  }
}
