/**
 * Floods a gate with peers that do not read, and prints what is left of it as JSON. Runs in a network namespace with small buffers
 * (test/memory/blocked-peers.test.ts): with those of a usual machine, a flood would take gigabytes of the kernel's memory.
 */
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { argv } from 'node:process';
import { startGateInCgroup } from './memory-cgroup.ts';
import { PROXY_AUTH, PROXY_PASSWORD, PROXY_USER } from './proxy.ts';
import { makeEntry } from './users.ts';

/** What is left after the flood. */
export interface Survey {
  readonly isAlive: boolean;
  readonly oomKills: number;
  /** The status line of an honest request after the flood. */
  readonly status: string;
  /** The slow client of another network is still connected. */
  readonly isSlowOpen: boolean;
  /** How many connections of the flood were accepted. */
  readonly accepted: number;
}

/** A flood: how many clients have how many connections, what they request, and whether they write. */
export interface Flood {
  readonly clients: number;
  readonly each: number;
  readonly path: 'echo' | 'deaf' | 'flood' | 'body';
  readonly kind: 'upgrade' | 'request' | 'upload' | 'tunnel';
}

/** The floods, by what is blocked. */
export const FLOODS = {
  'upgraded connections of one client in both directions': { clients: 1, each: 256, path: 'echo', kind: 'upgrade' },
  'upgraded connections of two clients in both directions': { clients: 2, each: 256, path: 'echo', kind: 'upgrade' },
  'upgraded connections whose app does not read': { clients: 4, each: 200, path: 'deaf', kind: 'upgrade' },
  'upgraded connections whose app sends without end': { clients: 4, each: 200, path: 'flood', kind: 'upgrade' },
  'tunnels of one user in both directions': { clients: 1, each: 500, path: 'echo', kind: 'tunnel' },
  'uploads that the app does not read': { clients: 2, each: 512, path: 'deaf', kind: 'upload' },
  'large responses': { clients: 2, each: 512, path: 'body', kind: 'request' },
} as const satisfies Readonly<Record<string, Flood>>;

const MIB = 1_048_576;
const FLOOD_MS = 6_000;
const HONEST_MS = 5_000;
const MAX_SENT = 4 * MIB;
const CHUNK = Buffer.alloc(64 * 1024, 'x');
const GRANTED = 'HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n';
const BODY = `HTTP/1.1 200 OK\r\nContent-Length: ${1_024 * MIB}\r\n\r\n`;

const wait = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Writes as fast as the other side reads. */
function pour(socket: Socket): void {
  while (socket.writable && socket.write(CHUNK));
  if (socket.writable) socket.once('drain', () => pour(socket));
}

const APPS: Readonly<Record<string, (socket: Socket) => unknown>> = {
  echo: (socket) => socket.pipe(socket),
  deaf: (socket) => socket.pause(),
  flood: (socket) => pour(socket.resume()),
  body: (socket) => pour(socket.resume()),
};

function startApp(script: (socket: Socket) => void): Promise<number> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => socket.destroy());
    script(socket);
  });
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port)));
}

/** Answers a request by its path: `/open/echo`, for one. */
function answer(socket: Socket): void {
  socket.once('data', (head: Buffer) => {
    const [, method = '', path = ''] = /^(\w+) \/open\/(\w+)/.exec(head.toString('latin1')) ?? [];
    if (path === 'small') socket.end('HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok');
    else if (path === 'body') socket.write(BODY);
    else if (method === 'GET') socket.write(GRANTED);
    APPS[path]?.(socket);
  });
}

function open(port: number, localAddress: string): Promise<Socket | undefined> {
  return new Promise((resolve) => {
    const socket = connect({ host: '127.0.0.1', port, localAddress, noDelay: true }, () => resolve(socket));
    socket.on('error', () => resolve(undefined));
  });
}

function toHead(kind: Flood['kind'], path: string, echoPort: number): string {
  if (kind === 'tunnel') return `CONNECT 127.0.0.1:${echoPort} HTTP/1.1\r\nHost: a\r\n${PROXY_AUTH}\r\n`;
  const upgrade = kind === 'upgrade' ? 'Connection: Upgrade\r\nUpgrade: websocket\r\n' : '';
  const length = kind === 'upload' ? 'Content-Length: 100000000\r\n' : '';
  return `${kind === 'upload' ? 'POST' : 'GET'} /open/${path} HTTP/1.1\r\nHost: a\r\n${upgrade}${length}\r\n`;
}

/** Reads 16 KiB every 100 ms of what the app sends without end. */
async function openSlow(port: number): Promise<Socket | undefined> {
  const socket = await open(port, '127.0.0.2');
  socket?.write(toHead('upgrade', 'flood', 0));
  const timer = setInterval(() => socket?.read(16_384), 100);
  socket?.on('close', () => clearInterval(timer)).on('readable', () => undefined);
  return socket;
}

/** The clients write as much as they can, and read nothing but the head of the response. Resolves with how many connections got it. */
async function flood(flood: Flood, port: number, echoPort: number): Promise<number> {
  const sockets: Socket[] = [];
  let accepted = 0;
  for (let i = 0; i < flood.clients * flood.each; i++) {
    const socket = await open(port, `127.0.0.${20 + (i % flood.clients)}`);
    if (socket === undefined) continue;
    sockets.push(socket);
    socket.write(toHead(flood.kind, flood.path, echoPort));
    if (flood.kind === 'upload') continue;
    const closed = new Promise<undefined>((resolve) => socket.once('close', () => resolve(undefined)));
    const first = await Promise.race([new Promise<Buffer>((resolve) => socket.once('data', resolve)), closed, wait(1_500)]);
    socket.pause();
    if (first !== undefined && /^HTTP\/1.1 (?:101|200)/.test(first.toString('latin1'))) accepted++;
  }
  const end = performance.now() + FLOOD_MS;
  while (performance.now() < end) {
    if (flood.path === 'echo' || flood.path === 'deaf')
      for (const socket of sockets) if (socket.writableLength === 0 && socket.bytesWritten < MAX_SENT) socket.write(CHUNK);
    await wait(5);
  }
  return accepted;
}

/** The status line of a small request. */
async function ask(port: number): Promise<string> {
  const socket = await open(port, '127.0.0.3');
  socket?.write(toHead('request', 'small', 0));
  const text = await Promise.race([new Promise<Buffer>((resolve) => socket?.once('data', resolve)), wait(HONEST_MS)]);
  return text?.toString('latin1').split('\r\n')[0] ?? '';
}

async function main(scenario: Flood, mebibytes: number): Promise<Survey> {
  const [appPort, echoPort] = [await startApp(answer), await startApp((socket) => socket.pipe(socket))];
  const gate = await startGateInCgroup(
    mebibytes,
    {
      routes: [{ name: 'open', match: { pathPrefix: '/open' }, upstream: `http://127.0.0.1:${appPort}`, allow: 'anyone' }],
      proxy: {
        address: '127.0.0.1:0',
        requireTls: false,
        denyPrivate: false,
        basic: { realm: 'egress', users: { file: 'users' } },
        allow: [`127.0.0.1:${echoPort}`],
      },
    },
    { users: makeEntry(PROXY_USER, PROXY_PASSWORD) },
  );
  const proxyPort = Number(gate.log().find(({ msg }) => msg === 'listening')?.['proxyPort']);
  const slow = await openSlow(gate.port);
  const accepted = await flood(scenario, scenario.kind === 'tunnel' ? proxyPort : gate.port, echoPort);
  const isAlive = gate.isAlive();
  const status = isAlive ? await ask(gate.port) : '';
  const isSlowOpen = slow !== undefined && !slow.destroyed && !slow.readableEnded;
  const survey = { isAlive, oomKills: gate.oomKills(), status, isSlowOpen, accepted };
  await gate.stop();
  return survey;
}

const [, file = '', name, mebibytes] = argv;
if (file === import.meta.filename) {
  console.log(JSON.stringify(await main(FLOODS[name as keyof typeof FLOODS], Number(mebibytes))));
  process.exit(0);
}
