/** Connections from this machine into the node's network, which has no other way in. */
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import type { Machine } from './machine.ts';

/** A port of loopback that leads into the node. */
export interface Forward {
  readonly port: number;
  close(): Promise<void>;
}

/** The socket of the relay (relay.ts). */
export function toRelaySocket({ folder }: Machine): string {
  return join(folder, 'relay.sock');
}

/** Opens a connection to an address of the node's network: the node, a pod or a Service. */
export function dial(machine: Machine, host: string, port: number): Socket {
  const socket = connect({ path: toRelaySocket(machine), allowHalfOpen: true });
  socket.write(`${host} ${port}\n`);
  return socket;
}

/** Listens on loopback, and passes each connection on. */
export async function forward(machine: Machine, host: string, port: number): Promise<Forward> {
  const sockets = new Set<Socket>();
  const keep = (socket: Socket): void => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  };
  const server = createServer({ allowHalfOpen: true }, (client) => {
    const upstream = dial(machine, host, port);
    keep(client);
    keep(upstream);
    client.on('error', () => client.destroy());
    upstream.on('error', () => client.resetAndDestroy());
    client.on('close', () => upstream.destroy());
    upstream.on('close', () => client.destroy());
    client.pipe(upstream).pipe(client);
  });
  await new Promise<void>((done, fail) => {
    server.once('error', fail);
    server.listen(0, '127.0.0.1', done);
  });
  return {
    port: (server.address() as AddressInfo).port,
    close: () =>
      new Promise((done) => {
        server.close(() => done());
        for (const socket of sockets) socket.destroy();
      }),
  };
}
