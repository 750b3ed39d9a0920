/** A TCP proxy on loopback that can delay, stall and cut what passes: the network between two parts. */
import { connect, createServer, type Server, type Socket } from 'node:net';
import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { startServer } from '../support/fixtures.ts';

/** A network path to one or more ports. */
export class Link {
  readonly port: number;
  readonly #sockets: Set<Socket>;
  readonly #state: LinkState;

  private constructor(port: number, sockets: Set<Socket>, state: LinkState) {
    this.port = port;
    this.#sockets = sockets;
    this.#state = state;
  }

  /** `findTarget` gives the port of the next connection. */
  static async start(findTarget: () => number): Promise<Link> {
    const sockets = new Set<Socket>();
    const state = new LinkState();
    const server: Server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
      track(sockets, client);
      if (state.isCut) {
        client.resetAndDestroy();
        return;
      }
      const target = connect({ port: findTarget(), host: '127.0.0.1', allowHalfOpen: true, noDelay: true });
      track(sockets, target);
      void carry(client, target, state);
      void carry(target, client, state);
    });
    return new Link(await startServer(server), sockets, state);
  }

  /** Delays each piece of data. */
  delay(duration: number): void {
    this.#state.delay = duration;
  }

  /** Holds all data back, without an error, as a lost route does. */
  stall(): void {
    this.#state.isStalled = true;
  }

  /** Resets all connections, and new ones at once. */
  cut(): void {
    this.#state.isCut = true;
    for (const socket of this.#sockets) socket.resetAndDestroy();
  }

  /** Ends all faults; data that was held back arrives late. */
  heal(): void {
    this.#state.heal();
  }
}

class LinkState {
  delay = 0;
  isStalled = false;
  isCut = false;
  readonly #waiting: (() => void)[] = [];

  pass(deliver: () => void): void {
    if (this.isStalled) this.#waiting.push(deliver);
    else if (this.delay > 0) setTimeout(deliver, this.delay);
    else deliver();
  }

  heal(): void {
    this.delay = 0;
    this.isStalled = false;
    this.isCut = false;
    for (const deliver of this.#waiting.splice(0)) deliver();
  }
}

function track(sockets: Set<Socket>, socket: Socket): void {
  sockets.add(socket);
  socket.on('error', () => undefined);
  socket.once('close', () => sockets.delete(socket));
}

async function carry(from: Socket, to: Socket, state: LinkState): Promise<void> {
  const passing = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      state.pass(() => done(null, chunk));
    },
  });
  try {
    await pipeline(from, passing, to);
  } catch {
    // One side is gone, so the other one must notice it.
    from.resetAndDestroy();
    to.resetAndDestroy();
  }
}
