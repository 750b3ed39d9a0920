/** The app that `sidegate self-test` is while it runs: takes whatever comes, and remembers it. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { ListenAddress } from '../../core/listen-address.ts';
import { onEvent } from '../../core/safe-events.ts';
import { Listener, type Listening } from '../../gateway/server/listener.ts';

const LARGEST = 65_536;

/** A request as it reached the app. */
export interface Seen {
  readonly id: string | undefined;
  readonly body: Buffer;
}

/** It listens, or will. */
export class SelfTestApp {
  readonly #server: Server;
  readonly #listener: Listener;
  readonly #seen: Seen[] = [];

  constructor(address: ListenAddress) {
    this.#server = createServer();
    onEvent(this.#server, 'request', (request, response) => this.#take(request, response));
    this.#listener = new Listener(this.#server, address);
  }

  /** Rejects with the system's error. */
  listen(): Promise<Listening> {
    return this.#listener.open();
  }

  /** How often this very delivery arrived, byte for byte; another content under its id counts as well. */
  count(id: string, body: Buffer): number {
    return this.#seen.filter((seen) => seen.id === id || seen.body.equals(body)).length;
  }

  /** Did each that arrived with this id have this content? */
  isUnchanged(id: string, body: Buffer): boolean {
    return this.#seen.every((seen) => seen.id !== id || seen.body.equals(body));
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
        if (size > LARGEST) {
          response.writeHead(413, { Connection: 'close' }).end();
          return;
        }
        chunks.push(chunk as Buffer);
      }
    } catch {
      // Whoever sent it left; what came is not whole.
      return;
    }
    this.#seen.push({ id: String(request.headers['webhook-id']), body: Buffer.concat(chunks) });
    response.end('handled by the self-test\n');
  }
}
