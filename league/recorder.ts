/** The app behind every server of the league: a bare socket that keeps the bytes of each request and answers 200. */
import { type AddressInfo, createServer, type Socket } from 'node:net';

/** A request as the app got it. */
export interface Received {
  readonly method: string;
  readonly target: string;
  /** Request line and fields, latin1. */
  readonly head: string;
  /** How the head says where the content ends. */
  readonly framing: 'chunked' | 'Content-Length' | 'both' | 'none';
  /** The content by that framing. */
  readonly content: string;
  /** What came behind the message in the same breath: the start of another request to any app that reads on. */
  readonly rest: string;
}

/** A running app. */
export interface Recorder {
  readonly port: number;
  /** What was received since the last call. */
  take(): Received[];
  close(): void;
}

const ANSWER = 'HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nConnection: close\r\n\r\napp';

/** Starts it on a free port. */
export async function startRecorder(): Promise<Recorder> {
  const sockets = new Set<Socket>();
  let received: Received[] = [];
  const server = createServer((socket) => {
    sockets.add(socket);
    let bytes = '';
    socket.setEncoding('latin1');
    socket.on('data', (chunk: string) => {
      bytes += chunk;
      const message = parseMessage(bytes);
      if (message === undefined) return;
      received.push(message);
      bytes = '';
      socket.end(ANSWER);
    });
    socket.on('error', () => undefined);
    socket.on('close', () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    take() {
      const taken = received;
      received = [];
      return taken;
    },
    close() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

/** The first message in the bytes; undefined while it is not there as a whole. */
export function parseMessage(bytes: string): Received | undefined {
  const end = bytes.indexOf('\r\n\r\n');
  if (end === -1) return undefined;
  const head = bytes.slice(0, end);
  const [method = '', target = ''] = (head.split('\r\n')[0] ?? '').split(' ');
  const length = /^content-length: *(\d+)/im.exec(head)?.[1];
  const isChunked = /^transfer-encoding: *chunked/im.test(head);
  const behind = bytes.slice(end + 4);
  const body = isChunked ? parseChunks(behind) : takeLength(behind, Number(length ?? 0));
  if (body === undefined) return undefined;
  const plain = length === undefined ? 'none' : 'Content-Length';
  const framing = isChunked && length !== undefined ? 'both' : isChunked ? 'chunked' : plain;
  return { method, target, head, framing, ...body };
}

function takeLength(text: string, length: number): { content: string; rest: string } | undefined {
  return text.length < length ? undefined : { content: text.slice(0, length), rest: text.slice(length) };
}

function parseChunks(text: string): { content: string; rest: string } | undefined {
  let content = '';
  let rest = text;
  for (;;) {
    const line = /^([0-9a-f]+)[^\r\n]*\r\n/i.exec(rest);
    if (line === null) return undefined;
    const size = Number.parseInt(line[1] ?? '', 16);
    rest = rest.slice(line[0].length);
    if (size === 0) break;
    if (rest.length < size + 2) return undefined;
    content += rest.slice(0, size);
    rest = rest.slice(size + 2);
  }
  // Trailer lines, if any, end with an empty line like a head.
  const end = rest.startsWith('\r\n') ? 0 : rest.indexOf('\r\n\r\n') + 2;
  return end === 1 ? undefined : { content, rest: rest.slice(end + 2) };
}
