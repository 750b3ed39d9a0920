/** The app of `sidegate self-test`: accepts and records all requests. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { ListenAddress } from '../../core/listen-address.ts';
import { onEvent } from '../../core/safe-events.ts';
import { type BoundAddress, Listener } from '../../http/server/listener.ts';

const MAX_BODY_BYTES = 65_536;

/** A request that the app received. */
interface ReceivedRequest {
  readonly id: string | undefined;
  readonly body: Buffer;
}

/** The app; `listen` opens its port. */
export class SelfTestApp {
  readonly #server: Server;
  readonly #listener: Listener;
  readonly #received: ReceivedRequest[] = [];

  constructor(address: ListenAddress) {
    this.#server = createServer();
    onEvent(this.#server, 'request', (request, response) => this.#take(request, response));
    this.#listener = new Listener(this.#server, address);
  }

  /** Rejects with the system's error. */
  listen(): Promise<BoundAddress> {
    return this.#listener.open();
  }

  /** How many requests have this ID or this body. */
  count(id: string, body: Buffer): number {
    return this.#received.filter((request) => request.id === id || request.body.equals(body)).length;
  }

  /** Whether all requests with this ID have this body. */
  isUnchanged(id: string, body: Buffer): boolean {
    return this.#received.every((request) => request.id !== id || request.body.equals(body));
  }

  close(): void {
    this.#listener.close();
    this.#server.closeAllConnections();
  }

  async #take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    let size = 0;
    try {
      for await (const chunk of request) {
        size += (chunk as Buffer).length;
        if (size > MAX_BODY_BYTES) {
          response.writeHead(413, { Connection: 'close' }).end();
          return;
        }
        chunks.push(chunk as Buffer);
      }
    } catch {
      // The sender disconnected, so the body is incomplete.
      return;
    }
    this.#received.push({ id: String(request.headers['webhook-id']), body: Buffer.concat(chunks) });
    response.end('handled by the self-test\n');
  }
}
