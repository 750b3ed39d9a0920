/** Floods of requests on bare sockets: bounded in time, on loopback or to a pod of the test's node, from one address. */
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';

/** Where requests go, and from which address. */
export interface Target {
  /** 127.0.0.1 if omitted. */
  readonly host?: string;
  readonly port: number;
  /** Source address. If omitted: 127.0.0.1 if the host is, otherwise the one that the route to the host has. */
  readonly from?: string;
}

/** Where a flood goes, and for how long. */
export interface FloodOptions extends Target {
  readonly connections: number;
  readonly milliseconds: number;
  readonly isTls?: boolean;
  /** The bytes of one request, written one after another with back-pressure. */
  readonly request: () => Iterable<Buffer | string>;
  /** False: the responses are not read, and each connection stays open until the other side closes it. */
  readonly isReading?: boolean;
  /** Milliseconds between two writes; 0 if omitted. */
  readonly pause?: number;
}

/** What came of it. */
export interface FloodResult {
  /** How many answers there were of each status. */
  readonly statuses: Readonly<Record<number, number>>;
  /** Requests that were written to their end. */
  readonly sent: number;
}

/** Keeps `connections` busy until the time is over: each sends one request after another and connects again when it is closed. */
export async function flood(options: FloodOptions): Promise<FloodResult> {
  const statuses: Record<number, number> = {};
  const total = { sent: 0 };
  const open = new Set<Socket>();
  let isOver = false;
  const run = async (): Promise<void> => {
    while (!isOver) total.sent += await sendOnce(options, open, statuses);
  };
  const timer = setTimeout(() => {
    isOver = true;
    for (const socket of open) socket.destroy();
  }, options.milliseconds);
  await Promise.all(Array.from({ length: options.connections }, run));
  clearTimeout(timer);
  return { statuses, sent: total.sent };
}

/** One request on a connection of its own; resolves with 1 where all of it was written. */
function sendOnce(options: FloodOptions, open: Set<Socket>, statuses: Record<number, number>): Promise<0 | 1> {
  const { isTls = false, isReading = true, request, pause = 0 } = options;
  const address = toAddress(options);
  const socket = isTls ? connectTls({ ...address, rejectUnauthorized: false }) : connect(address);
  open.add(socket);
  return new Promise((resolve) => {
    let isWritten = false;
    const pieces = request()[Symbol.iterator]();
    const write = (): void => {
      for (;;) {
        if (socket.destroyed || socket.writableEnded) return;
        const { value, done } = pieces.next();
        if (done === true) {
          isWritten = true;
          return;
        }
        const goesOn = socket.write(value, 'latin1');
        if (pause > 0) return void setTimeout(write, pause);
        if (!goesOn) return;
      }
    };
    socket.once(isTls ? 'secureConnect' : 'connect', write);
    if (pause === 0) socket.on('drain', write);
    if (isReading)
      socket.once('data', (chunk: Buffer) => {
        const status = Number(chunk.toString('latin1', 9, 12));
        statuses[status] = (statuses[status] ?? 0) + 1;
        socket.destroy();
      });
    socket.on('error', () => undefined);
    socket.once('close', () => {
      open.delete(socket);
      // A refused connection must not become a busy loop.
      setTimeout(() => resolve(isWritten ? 1 : 0), 5);
    });
  });
}

const LOOPBACK = '127.0.0.1';

function toAddress({ host, port, from }: Target): { host: string; port: number; localAddress?: string } {
  const localAddress = from ?? (host === undefined ? LOOPBACK : undefined);
  return { host: host ?? LOOPBACK, port, ...(localAddress !== undefined && { localAddress }) };
}

/** A head of one line each. */
export function toHead(path: string, fields: Readonly<Record<string, string>>): string {
  const lines = Object.entries({ Host: 'gate.test', ...fields }).map(([name, value]) => `${name}: ${value}`);
  return `POST ${path} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`;
}

const CHUNKS_IN_BLOCK = 10_000;

/** A body of `count` chunks of one byte each. */
export function* toTinyChunks(count: number): Iterable<Buffer | string> {
  const block = Buffer.from('1\r\na\r\n'.repeat(CHUNKS_IN_BLOCK));
  for (let left = count; left > 0; left -= CHUNKS_IN_BLOCK) yield left >= CHUNKS_IN_BLOCK ? block : block.subarray(0, left * 6);
  yield '0\r\n\r\n';
}
