import { createServer, type IncomingMessage, type RequestListener } from 'node:http';
import { connect, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { FakeClock } from '../support/fake-clock.ts';
import { useServer } from '../support/fixtures.ts';
import { startGate, type TestGate, until } from '../support/gate.ts';
import { makeEntry, toBasic } from '../support/users.ts';

let gate: TestGate;
let last: IncomingMessage | undefined;
let clock: FakeClock | undefined;
const NOT_HERE: RequestListener = (_request, response) =>
  response.writeHead(426, { 'Content-Type': 'text/plain' }).end('not here');
let answer = NOT_HERE;
const server = createServer((request, response) => answer(request, response));
const sockets = new WebSocketServer({ server, path: '/ws' });
sockets.on('connection', (socket, request) => {
  last = request;
  socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary }));
});
const app = useServer(server);

beforeEach(() => {
  answer = NOT_HERE;
  return start();
});
async function start(own?: FakeClock, shutdown = {}): Promise<void> {
  clock = own;
  const upstream = `http://127.0.0.1:${app.port}`;
  const route = { upstream, timeout: '1s', idleTimeout: '1s' };
  gate = await startGate(
    {
      routes: [
        { ...route, name: 'open', match: { pathPrefix: '/ws' }, allow: 'anyone' },
        { ...route, name: 'other', match: { pathPrefix: '/other' }, allow: 'anyone' },
        {
          ...route,
          name: 'guarded',
          match: { pathPrefix: '/guarded' },
          basic: { realm: 'r', users: { file: 'users' }, requireTls: false },
        },
        { ...route, name: 'hook', match: { path: '/hook' }, webhook: { keys: [{ name: 'k', secret: { file: 'secret' } }] } },
      ],
      limits: { maxInFlight: 1, maxQueued: 0 },
      shutdown,
    },
    clock,
    { users: makeEntry('Aladdin', 'open sesame') },
  );
}
afterEach(stop);
async function stop(): Promise<void> {
  for (const client of sockets.clients) client.terminate();
  const stopped = gate.stop();
  // The waits of a shutdown.
  await clock?.advance(10_000);
  await stopped;
}

const opened = (path = '/ws', headers: Record<string, string> = {}): Promise<WebSocket> =>
  new Promise((resolve, reject) => {
    const socket = new WebSocket(`ws://127.0.0.1:${gate.port}${path}`, { headers });
    socket.once('open', () => resolve(socket));
    socket.once('error', reject);
  });
const next = (socket: WebSocket): Promise<Buffer> =>
  new Promise((resolve) => socket.once('message', (data) => resolve(data as Buffer)));
const closed = (socket: WebSocket): Promise<number> => new Promise((resolve) => socket.once('close', resolve));
/** Sends a head on a bare socket and reads until the other side closes. */
const raw = (text: string): Promise<string> =>
  new Promise((resolve, reject) => {
    const socket: Socket = connect(gate.port, '127.0.0.1', () => socket.write(text));
    let all = '';
    socket.on('data', (chunk) => (all += String(chunk)));
    socket.on('close', () => resolve(all));
    socket.on('error', reject);
  });
const HANDSHAKE =
  'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n';

describe('a WebSocket', () => {
  test('carries text and many megabytes both ways, and is closed cleanly', async () => {
    const socket = await opened();
    socket.send('hello');
    expect(String(await next(socket))).toBe('hello');
    const large = Buffer.alloc(16 * 1024 * 1024, 7);
    socket.send(large);
    expect((await next(socket)).equals(large)).toBe(true);
    const code = closed(socket);
    socket.close(4321, 'bye');
    expect(await code).toBe(4321);
    await until(() => gate.log().some((line) => line['status'] === 101 && line['route'] === 'open'));
    expect(last?.headers).toMatchObject({ upgrade: 'websocket', connection: 'Upgrade', 'x-forwarded-for': '127.0.0.1' });
  });

  test('occupies no place of requests', async () => {
    const open = [await opened(), await opened(), await opened()];
    expect(await gate.metric('sidegate_http_requests_in_flight')).toBe(0);
    for (const socket of open) {
      socket.send('x');
      expect(String(await next(socket))).toBe('x');
      socket.terminate();
    }
  });

  test('that is open when the gate stops is closed after the drain time, and recorded', async () => {
    await stop();
    await start(new FakeClock(), { grace: '0ms', drain: '500ms' });
    const socket = await opened();
    const ended = closed(socket);
    const stopped = gate.stop();
    await clock?.advance(500);
    expect(await stopped).toBe(false);
    await ended;
    expect(gate.log().filter(({ msg }) => msg === 'request')).toEqual([expect.objectContaining({ status: 101, route: 'open' })]);
  });

  test('ends on both sides when either dies', async () => {
    const first = await opened();
    const [there] = [...sockets.clients] as [WebSocket];
    const ended = closed(there);
    first.terminate();
    await ended;
    const second = await opened();
    const code = closed(second);
    for (const client of sockets.clients) client.terminate();
    expect(await code).toBe(1006);
  });

  test('that is idle for idleTimeout is closed; an active one is not', async () => {
    await stop();
    const time = new FakeClock();
    await start(time);
    const first = await opened();
    const silent = closed(first);
    const socket = await opened();
    for (let i = 0; i < 3; i++) {
      expect(first.readyState).toBe(WebSocket.OPEN);
      await time.advance(i < 2 ? 450 : 200);
      socket.send('ping');
      await next(socket);
    }
    expect(await silent).toBe(1006);
    await time.advance(800);
    socket.send('still here');
    expect(String(await next(socket))).toBe('still here');
    socket.terminate();
  });

  test('needs the password if the route requires one', async () => {
    await expect(opened('/guarded')).rejects.toThrow('401');
    // The app knows no socket there: its own answer comes through.
    await expect(opened('/guarded', toBasic('Aladdin', 'open sesame'))).rejects.toThrow('400');
  });
});

describe('an upgrade', () => {
  test('that the app rejects gets the response of the app, and the connection ends', async () => {
    const answer = await raw(`GET /other HTTP/1.1\r\nHost: x\r\n${HANDSHAKE}\r\n`);
    expect(answer).toMatch(/^HTTP\/1\.1 400 /);
    expect(answer).toMatch(/\r\nConnection: close\r\n/i);
  });

  test('cannot bypass the gates: bytes after the head are not a second request', async () => {
    const answer = await raw(
      `GET /guarded HTTP/1.1\r\nHost: x\r\n${HANDSHAKE}\r\nGET /ws HTTP/1.1\r\nHost: x\r\n${HANDSHAKE}\r\n`,
    );
    expect(answer.match(/HTTP\/1\.1/g)).toHaveLength(1);
    expect(answer).toMatch(/^HTTP\/1\.1 401 /);
  });

  test('with a body is rejected', async () => {
    const answer = await raw(`GET /ws HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n${HANDSHAKE}\r\nabc`);
    expect(answer).toMatch(/^HTTP\/1\.1 400 /);
  });

  test('to HTTP/2 in clear text is served as HTTP/1.1', async () => {
    const answer = await raw(
      'GET /other HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n',
    );
    expect(answer).toMatch(/^HTTP\/1\.1 426 /);
  });

  test('is rejected on webhook routes', async () => {
    expect(await raw(`GET /hook HTTP/1.1\r\nHost: x\r\n${HANDSHAKE}\r\n`)).toMatch(/^HTTP\/1\.1 405 /);
  });

  test('without a route is rejected with 404, and a bad head with 400', async () => {
    expect(await raw(`GET /none HTTP/1.1\r\nHost: x\r\n${HANDSHAKE}\r\n`)).toMatch(/^HTTP\/1\.1 404 /);
    expect(await raw(`GET /ws HTTP/1.1\r\nHost: x\r\nHost: y\r\n${HANDSHAKE}\r\n`)).toMatch(/^HTTP\/1\.1 400 /);
  });
});

test('an app that switches protocols without a request leads to 502', async () => {
  answer = ({ socket }) => socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n');
  expect(await raw('GET /other HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')).toMatch(/^HTTP\/1\.1 502 /);
});
