/**
 * Measures only the request side: node:http and the least that a parser of our own must do, in turns, CPU per request on real sockets.
 * The difference is the most that such a parser can save (docs/adr/0023-request-parser.md).
 */
import { fork } from 'node:child_process';
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { connect, createServer, type Server, type Socket } from 'node:net';
import process, { argv, cpuUsage, exit, stdout } from 'node:process';
import { fileURLToPath } from 'node:url';

const ROUNDS = 12;
const REQUESTS = 20_000;
const WARM_UP = 20_000;
const CONNECTIONS = 32;
const HEAD_END = Buffer.from('\r\n\r\n');
const BODY = Buffer.alloc(1_024, 'x');
const REQUEST = Buffer.from(
  'POST /hooks/billing HTTP/1.1\r\nHost: app.example\r\nUser-Agent: sender/1.0\r\nContent-Type: application/json\r\n' +
    'webhook-id: msg_2b5f0a1c9d8e7f60\r\nwebhook-timestamp: 1800000000\r\n' +
    `webhook-signature: v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=\r\nContent-Length: ${BODY.length}\r\n\r\n${BODY}`,
);
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** The sender: a separate process that sends the same request on each connection as soon as the response is there. */
function send(): void {
  process.on('message', ({ port, count }: { port: number; count: number }) => {
    let left = count;
    let open = CONNECTIONS;
    const onOver = (socket: Socket): void => {
      socket.destroy();
      if (--open === 0) process.send?.('over');
    };
    for (let i = 0; i < CONNECTIONS; i++) {
      const socket = connect({ port, host: '127.0.0.1', noDelay: true });
      const next = (): void => {
        if (left-- > 0) socket.write(REQUEST);
        else onOver(socket);
      };
      socket.on('connect', next);
      // The responses are short: each arrives in one piece.
      socket.on('data', next);
      socket.on('error', () => exit(1));
    }
  });
}

/** As the gate does it: collects the body, and ends the response with the length of its text. */
function onRequest(request: IncomingMessage, response: ServerResponse): void {
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    const body = chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks);
    const text = `{"received":${body.length}}`;
    response.writeHead(200, ['Content-Type', 'application/json', 'Content-Length', String(text.length)]).end(text);
  });
}

/** Strict enough for a comparison. Returns undefined if the head is malformed. */
function parseHead(head: string): Map<string, string> | undefined {
  const [line = '', ...fields] = head.split('\r\n');
  const [method, target, version] = line.split(' ');
  if (method === undefined || target === undefined || version !== 'HTTP/1.1') return undefined;
  const headers = new Map<string, string>();
  for (const field of fields) {
    const colon = field.indexOf(':');
    const name = field.slice(0, colon);
    const value = field.slice(colon + 1).trim();
    if (!TOKEN.test(name) || !VALUE.test(value)) return undefined;
    headers.set(name.toLowerCase(), value);
  }
  return headers;
}

/** Parses the head, collects the body, and responds in one write. */
function onSocket(socket: Socket): void {
  let seen: Buffer = Buffer.alloc(0);
  socket.setNoDelay(true);
  socket.on('error', () => socket.destroy());
  socket.on('data', (chunk: Buffer) => {
    seen = seen.length === 0 ? chunk : Buffer.concat([seen, chunk]);
    const end = seen.indexOf(HEAD_END);
    if (end === -1) return;
    const headers = parseHead(seen.toString('latin1', 0, end));
    if (headers === undefined) return void socket.destroy();
    const bodyEnd = end + HEAD_END.length + Number(headers.get('content-length') ?? 0);
    if (seen.length < bodyEnd) return;
    const body = seen.subarray(end + HEAD_END.length, bodyEnd);
    seen = seen.subarray(bodyEnd);
    const text = `{"received":${body.length}}`;
    socket.write(
      `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${text.length}\r\nDate: Sat, 21 Nov 2026 06:00:00 GMT\r\n` +
        `Connection: keep-alive\r\nKeep-Alive: timeout=65\r\n\r\n${text}`,
      'latin1',
    );
  });
}

const sender = argv[2] === 'send' ? undefined : fork(fileURLToPath(import.meta.url), ['send']);

/** Microseconds of CPU, user and system, of this process per request. */
async function measure(server: Server, count: number): Promise<number> {
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const before = cpuUsage();
  const over = new Promise((resolve) => sender?.once('message', resolve));
  sender?.send({ port, count });
  await over;
  const { user, system } = cpuUsage(before);
  return (user + system) / count;
}

async function main(): Promise<void> {
  const servers: Readonly<Record<string, Server>> = {
    'node:http': createHttpServer({ keepAliveTimeout: 65_000 }, onRequest),
    'own parser': createServer(onSocket),
  };
  for (const server of Object.values(servers)) {
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    await measure(server, WARM_UP);
  }
  const all = Object.keys(servers).map((name) => ({ name, rounds: [] as number[] }));
  for (let round = 0; round < ROUNDS; round++)
    for (const { name, rounds } of all) rounds.push(await measure(servers[name] as Server, REQUESTS));
  for (const { name, rounds } of all) {
    const [least = 0] = rounds.toSorted((a, b) => a - b);
    const middle = rounds.toSorted((a, b) => a - b)[ROUNDS / 2] ?? 0;
    stdout.write(
      `${name.padEnd(12)} ${least.toFixed(1)} µs at least, ${middle.toFixed(1)} µs in the middle of ${ROUNDS} rounds\n`,
    );
  }
  exit(0);
}

if (sender === undefined) send();
else await main();
