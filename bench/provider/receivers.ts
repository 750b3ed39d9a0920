/** Receives deliveries in a process that is not measured: `/dead/…` accepts requests and never responds, all others respond at once. */
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A request to this process. */
export type ReceiverCommand = 'figures';

/** The requests that the healthy receivers got. */
export interface ReceivedFigures {
  /** Milliseconds from the creation of each event to its receipt, for first receipts. */
  readonly delays: readonly number[];
  readonly duplicates: number;
  /** Attempts that the dead receivers got. */
  readonly dead: number;
}

/** The first message of this process. */
export interface ReceiversReady {
  readonly port: number;
}

const state = { delays: [] as number[], ids: new Set<string>(), duplicates: 0, dead: 0 };

function receive(request: IncomingMessage, body: Buffer): void {
  const { id, data } = JSON.parse(body.toString()) as { id: string; data: { at: number } };
  const key = `${id} ${request.url}`;
  if (state.ids.has(key)) state.duplicates++;
  else state.delays.push(Date.now() - data.at);
  state.ids.add(key);
}

const server = createServer((request, response) => {
  if (request.url?.startsWith('/dead/') === true) {
    state.dead++;
    request.resume();
    return;
  }
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    receive(request, Buffer.concat(chunks));
    response.writeHead(204).end();
  });
});
server.keepAliveTimeout = 60_000;
server.requestTimeout = 0;

process.on('message', (_command: ReceiverCommand) => {
  const { delays, duplicates, dead } = state;
  process.send?.({ delays, duplicates, dead } satisfies ReceivedFigures);
});
process.on('disconnect', () => process.exit());
server.listen(0, '127.0.0.1', () => process.send?.({ port: (server.address() as AddressInfo).port } satisfies ReceiversReady));
