/** The admin port: metrics, liveness, readiness and public keys. It never shares a route table with the data port. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { SocketAddress } from '../config/scalars.ts';
import type { Metrics } from '../observe/metrics.ts';

/** What the admin port tells about. */
export interface AdminParts {
  readonly address: SocketAddress;
  readonly metrics: Metrics;
  /** The public keys that Sidegate-Identity is checked by, as a JWK Set. */
  readonly toKeySet: () => object;
  /** Why the gate should get no traffic now, or undefined when it is ready. */
  readonly notReadyBecause: () => string | undefined;
}

interface Answer {
  readonly status: number;
  readonly contentType: string;
  readonly text: string;
}

const PLAIN = 'text/plain; charset=utf-8';
const MOST_CONNECTIONS = 64;
const SLOWEST_HEAD_MS = 5_000;

/** The listening admin port. */
export class AdminServer {
  readonly #parts: AdminParts;
  readonly #server: Server;

  constructor(parts: AdminParts) {
    this.#parts = parts;
    this.#server = createServer({ headersTimeout: SLOWEST_HEAD_MS, requestTimeout: SLOWEST_HEAD_MS });
    this.#server.maxConnections = MOST_CONNECTIONS;
    this.#server.on('request', (request, response) => void this.#onRequest(request, response));
  }

  /** Starts to listen; rejects with the system's error. */
  listen(): Promise<AddressInfo> {
    const { host, port } = this.#parts.address;
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
    const { status, contentType, text } = await this.#answer(request);
    response.writeHead(status, {
      'Content-Type': contentType,
      'Cache-Control': 'no-store',
      'Content-Length': Buffer.byteLength(text),
    });
    response.end(request.method === 'HEAD' ? undefined : text);
  }

  async #answer(request: IncomingMessage): Promise<Answer> {
    const [path] = (request.url ?? '').split('?');
    if (request.method !== 'GET' && request.method !== 'HEAD')
      return { status: 405, contentType: PLAIN, text: 'only GET and HEAD\n' };
    switch (path) {
      case '/metrics':
        return this.#metrics();
      case '/identity/jwks.json':
        return { status: 200, contentType: 'application/jwk-set+json', text: JSON.stringify(this.#parts.toKeySet()) };
      case '/healthz':
        return { status: 200, contentType: PLAIN, text: 'ok\n' };
      case '/readyz': {
        const reason = this.#parts.notReadyBecause();
        return reason === undefined
          ? { status: 200, contentType: PLAIN, text: 'ready\n' }
          : { status: 503, contentType: PLAIN, text: `not ready: ${reason}\n` };
      }
      default:
        return { status: 404, contentType: PLAIN, text: 'try /metrics, /healthz, /readyz or /identity/jwks.json\n' };
    }
  }

  async #metrics(): Promise<Answer> {
    try {
      return { status: 200, ...(await this.#parts.metrics.exposition()) };
    } catch {
      return { status: 500, contentType: PLAIN, text: 'the metrics could not be written\n' };
    }
  }
}
