/** Floods of pipelined requests: each connection is written to as fast as it can be, and opened again when it is closed. */
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';

/** How a port is flooded. */
export interface PipelinedFlood {
  readonly port: number;
  readonly isTls?: boolean;
  readonly connections: number;
  /** How many addresses they come from; default: one. */
  readonly addresses?: number;
  readonly milliseconds: number;
  /** Written once on each connection, before the others. */
  readonly first?: string | Buffer;
  /** The same for each request, or made for its number on the connection. */
  readonly request: string | ((index: number) => Buffer);
  readonly alpn?: string;
  /** Reads the responses; if false, the client never reads. */
  readonly reads: boolean;
}

const BLOCK_BYTES = 256 * 1024;
const REQUESTS_PER_BLOCK = 2_000;

/** Floods until the time is over; resolves with how many connections were opened. */
export async function floodPipelined(flood: PipelinedFlood): Promise<number> {
  const { connections, milliseconds, addresses = 1 } = flood;
  const blocks = toBlocks(flood.request);
  const open = new Set<Socket>();
  let opened = 0;
  let isOver = false;
  setTimeout(() => {
    isOver = true;
    for (const socket of open) socket.destroy();
  }, milliseconds);
  const run = async (localAddress: string): Promise<void> => {
    while (!isOver) {
      opened++;
      await writeUntilClosed(flood, localAddress, blocks, open);
    }
  };
  await Promise.all(Array.from({ length: connections }, (_, index) => run(`127.0.0.${1 + (index % addresses)}`)));
  return opened;
}

/** What is written on a connection: the blocks by their number. */
function toBlocks(request: PipelinedFlood['request']): (block: number) => Buffer {
  if (typeof request === 'string') {
    const block = Buffer.from(request.repeat(Math.max(1, Math.floor(BLOCK_BYTES / request.length))), 'latin1');
    return () => block;
  }
  return (block) =>
    Buffer.concat(Array.from({ length: REQUESTS_PER_BLOCK }, (_, index) => request(block * REQUESTS_PER_BLOCK + index)));
}

function writeUntilClosed(
  { port, isTls, alpn, first, reads }: PipelinedFlood,
  localAddress: string,
  blocks: (block: number) => Buffer,
  open: Set<Socket>,
): Promise<void> {
  const address = { host: '127.0.0.1', localAddress, port };
  const socket =
    isTls === true
      ? connectTls({ ...address, rejectUnauthorized: false, ...(alpn !== undefined && { ALPNProtocols: [alpn] }) })
      : connect(address);
  open.add(socket);
  return new Promise((resolve) => {
    let block = 0;
    const write = (): void => {
      while (!socket.destroyed) if (!socket.write(blocks(block++))) return;
    };
    socket.once(isTls === true ? 'secureConnect' : 'connect', () => {
      if (first !== undefined) socket.write(first);
      write();
    });
    // In the next turn: a peer that reads as fast as it is written to would otherwise hold up all timers.
    socket.on('drain', () => setImmediate(write));
    if (reads) socket.resume();
    socket.on('error', () => undefined);
    socket.once('close', () => {
      open.delete(socket);
      // A refused connection must not become a busy loop.
      setTimeout(resolve, 5);
    });
  });
}
