/** One HTTP request of a simulated client, on a connection of its own or on a kept one. */
import { type HttpMessage, MessageReader } from './http-text.ts';
import type { Owner } from './scheduler.ts';
import type { SimulatedSocket } from './socket.ts';
import type { World } from './world.ts';

/** What is sent where. */
export interface ClientRequest {
  readonly host: string;
  readonly port: number;
  readonly bytes: Buffer;
  /** The client gives up after it. */
  readonly timeout: number;
}

export class Client {
  readonly #world: World;
  readonly #owner: Owner;
  /** Kept connections, by their target. */
  readonly #idle = new Map<string, SimulatedSocket[]>();

  constructor(world: World, owner: Owner) {
    this.#world = world;
    this.#owner = owner;
  }

  /** Resolves with undefined if there is no complete response. */
  send(request: ClientRequest): Promise<HttpMessage | undefined> {
    const { scheduler } = this.#world;
    const key = `${request.host}:${request.port}`;
    const socket = this.#take(key) ?? this.#open(request);
    const reader = new MessageReader();
    return new Promise((resolve) => {
      const finish = (response: HttpMessage | undefined): void => {
        scheduler.cancel(timer);
        socket.removeAllListeners('data').removeAllListeners('end').removeAllListeners('close');
        const isKept = response !== undefined && response.headers.get('connection') !== 'close' && socket.writable;
        if (isKept && scheduler.random.isLikely(0.7)) this.#keep(key, socket);
        else socket.destroy();
        resolve(response);
      };
      const timer = scheduler.after(request.timeout, this.#owner, () => finish(undefined));
      socket.on('data', (bytes: Buffer) => {
        const [response] = reader.push(bytes);
        if (response !== undefined) finish(response);
      });
      socket.on('end', () => finish(undefined));
      socket.on('close', () => finish(undefined));
      socket.write(request.bytes);
    });
  }

  close(): void {
    for (const sockets of this.#idle.values()) for (const socket of sockets) socket.destroy();
  }

  #open({ host, port }: ClientRequest): SimulatedSocket {
    const socket = this.#world.network.connect(this.#owner, { host, port });
    socket.on('error', () => socket.destroy());
    return socket;
  }

  #take(key: string): SimulatedSocket | undefined {
    const sockets = this.#idle.get(key) ?? [];
    for (let socket = sockets.pop(); socket !== undefined; socket = sockets.pop()) {
      socket.removeAllListeners('close').removeAllListeners('end');
      if (socket.writable && !socket.destroyed) return socket;
    }
    return undefined;
  }

  #keep(key: string, socket: SimulatedSocket): void {
    socket.on('end', () => socket.destroy());
    const sockets = this.#idle.get(key);
    if (sockets === undefined) this.#idle.set(key, [socket]);
    else sockets.push(socket);
  }
}
