/** Keeps a port open to newcomers however many connections are held to it: who asks for nothing has to go. */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import { onceEvent, onEvent } from '../core/safe-events.ts';

interface Guest {
  readonly socket: Socket;
  readonly peer: string;
  underWay: number;
}

/**
 * Has `server` hold `most` connections: beyond that the newcomer takes the place of one without a request under way, namely of the
 * address that has the most of them, there the one that has been idle for longest. To be called before it listens.
 */
export function limitCrowd(server: Server | TlsServer, most: number): void {
  /** The one that was busy last comes last. */
  const guests = new Map<string, Guest>();
  // What is destroyed counts as open for Node until the next turn.
  server.maxConnections = 2 * most;
  onEvent(server, 'connection', (socket: Socket) => {
    const key = toKey(socket);
    const idle = guests.size < most ? undefined : findIdle(guests);
    if (guests.size >= most && idle === undefined) {
      socket.destroy();
      return;
    }
    if (idle !== undefined) {
      idle.guest.socket.destroy();
      guests.delete(idle.key);
    }
    const guest: Guest = { socket, peer: socket.remoteAddress ?? '', underWay: 0 };
    guests.set(key, guest);
    onceEvent(socket, 'close', () => {
      if (guests.get(key) === guest) guests.delete(key);
    });
  });
  onEvent(server, 'request', (request: IncomingMessage, response: ServerResponse) => {
    // Under TLS it is another socket, of the same addresses.
    const key = toKey(request.socket);
    const guest = guests.get(key);
    if (guest === undefined) return;
    guest.underWay++;
    onceEvent(response, 'close', () => {
      guest.underWay--;
      if (guests.get(key) !== guest) return;
      guests.delete(key);
      guests.set(key, guest);
    });
  });
}

function toKey({ localAddress, remoteAddress, remotePort }: Socket): string {
  return `${localAddress} ${remoteAddress} ${remotePort}`;
}

function findIdle(guests: ReadonlyMap<string, Guest>): { readonly key: string; readonly guest: Guest } | undefined {
  const counts = new Map<string, number>();
  for (const { peer } of guests.values()) counts.set(peer, (counts.get(peer) ?? 0) + 1);
  let found: { readonly key: string; readonly guest: Guest } | undefined;
  let largest = 0;
  for (const [key, guest] of guests) {
    const count = counts.get(guest.peer) ?? 0;
    if (guest.underWay > 0 || count <= largest) continue;
    found = { key, guest };
    largest = count;
  }
  return found;
}
