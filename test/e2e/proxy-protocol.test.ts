import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { afterEach, expect, test } from 'vitest';
import type { Clock } from '../../src/core/clock.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { useApp, useAuthority } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, until } from '../support/gate.ts';
import { toV2 } from '../support/proxy-protocol.ts';
import { readOutput } from '../support/run.ts';

const V1 = 'PROXY TCP4 192.0.2.7 10.0.0.1 56324 443\r\n';
const REQUEST = 'GET /open HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 198.51.100.9\r\nConnection: close\r\n\r\n';
const authority = useAuthority();
const pair = authority.issue('local', 'DNS:localhost,IP:127.0.0.1');
const app = useApp();
let gate: TestGate;
let fakeClock: FakeClock | undefined;
const sockets: Socket[] = [];

afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  const stopped = gate.stop();
  await fakeClock?.advance(1);
  fakeClock = undefined;
  await stopped;
});

const start = async (listen: Sections = {}, clock?: Clock): Promise<void> => {
  const upstream = `http://127.0.0.1:${app.port}`;
  const sections = {
    listen: { address: '127.0.0.1:0', proxyProtocol: { from: ['127.0.0.1'] }, ...listen },
    routes: [{ name: 'open', match: { pathPrefix: '/' }, upstream, allow: 'anyone' }],
  };
  gate = await startGate(sections, clock);
};
const TLS = { tls: { certFile: pair.cert, keyFile: pair.key } };

const open = async (): Promise<Socket> => {
  const socket = connect(gate.port, '127.0.0.1');
  socket.on('error', () => undefined);
  sockets.push(socket);
  await new Promise<void>((resolve) => socket.once('connect', resolve));
  return socket;
};
const toText = async (socket: Socket): Promise<string> => {
  let text = '';
  for await (const chunk of socket) text += String(chunk);
  return text;
};
const speak = async (...pieces: (string | Buffer)[]): Promise<string> => {
  const socket = await open();
  const text = toText(socket);
  for (const piece of pieces) {
    socket.write(piece);
    await new Promise((resolve) => setImmediate(resolve));
  }
  return text;
};
const forwardedFor = (): unknown => app.received.map(({ headers }) => headers['x-forwarded-for']);

test.each([
  ['version 1', [V1, REQUEST]],
  ['version 1 in one packet with the request', [V1 + REQUEST]],
  ['version 1, byte by byte', [...V1, REQUEST]],
  ['version 2', [toV2({ source: '192.0.2.7' }), REQUEST]],
  ['version 2 in one packet with the request', [Buffer.concat([toV2({ source: '192.0.2.7' }), Buffer.from(REQUEST)])]],
])('%s sets the client address, and X-Forwarded-For of the client is ignored', async (_what, pieces) => {
  await start();
  expect(await speak(...pieces)).toContain('200 OK');
  expect(forwardedFor()).toEqual(['192.0.2.7']);
  expect(gate.log().find(({ msg }) => msg === 'request')).toMatchObject({ client: '192.0.2.7' });
});

test('X-Forwarded-For of the announced client is used if it is a trusted proxy', async () => {
  await start({ trustedProxies: ['192.0.2.7'] });
  expect(await speak(V1, REQUEST)).toContain('200 OK');
  expect(gate.log().find(({ msg }) => msg === 'request')).toMatchObject({ client: '198.51.100.9' });
});

test('a load balancer with a LOCAL header is the client', async () => {
  await start();
  expect(await speak(toV2({ command: 0x20, family: 0 }), REQUEST)).toContain('200 OK');
  expect(forwardedFor()).toEqual(['127.0.0.1']);
});

test.each([
  ['HTTP/1.1', '--http1.1'],
  ['HTTP/2', '--http2'],
])('the address of curl is known over TLS with %s, for several requests on one connection', async (_what, version) => {
  await start(TLS);
  const url = `https://localhost:${gate.port}/a`;
  const args = ['-sS', version, '--haproxy-protocol', '--cacert', authority.ca, '-w', ' %{http_code} %{num_connects}\n'];
  // curl announces its own address.
  expect(await readOutput('curl', ...args, url, url)).toBe('handled 200 1\nhandled 200 0\n');
  expect(forwardedFor()).toEqual(['127.0.0.1', '127.0.0.1']);
});

test('the address of an announced client is known over TLS', async () => {
  await start(TLS);
  const socket = await open();
  socket.write(V1);
  const wrapped = connectTls({ socket, servername: 'localhost', ca: readFileSync(authority.ca) });
  wrapped.write(REQUEST);
  expect(await toText(wrapped)).toContain('200 OK');
  expect(forwardedFor()).toEqual(['192.0.2.7']);
});

test.each([
  ['that sends none', REQUEST],
  ['whose header is malformed', `PROXY TCP4 nobody 10.0.0.1 1 2\r\n${REQUEST}`],
])('a connection from a load balancer %s is rejected, and logged', async (_what, bytes) => {
  await start();
  expect(await speak(bytes)).toContain('400 Bad Request');
  expect(app.received).toHaveLength(0);
  const line = await until(() => gate.log().find(({ msg }) => msg === 'request'));
  expect(line).toMatchObject({ status: 400, client: '127.0.0.1', detail: expect.stringContaining('PROXY protocol') });
});

test.each([
  ['a header', V1 + REQUEST],
  ['a second header', V1 + V1 + REQUEST],
])('%s from another address is rejected as a request', async (what, bytes) => {
  await start(what === 'a header' ? { proxyProtocol: { from: ['192.0.2.0/24'] } } : {});
  expect(await speak(bytes)).toContain('400 Bad Request');
  expect(app.received).toHaveLength(0);
});

test('a connection that ends within its PROXY header is closed at once', async () => {
  const clock = new FakeClock();
  fakeClock = clock;
  await start({}, clock);
  const socket = await open();
  const text = toText(socket);
  socket.end('PROXY TCP4 ');
  // The time limit of the header does not end it, because the clock stands still.
  expect(await text).toContain('400 Bad Request');
});

test('a connection whose PROXY header is late is closed', async () => {
  const clock = new FakeClock();
  fakeClock = clock;
  await start({}, clock);
  const socket = await open();
  const text = toText(socket);
  socket.write('PROXY TCP4 ');
  await until(async () => (await gate.metrics()).includes('sidegate_connections 1'));
  await clock.advance(10_001);
  expect(await text).toContain('400 Bad Request');
});

// An error that nobody catches would end the process, and fails this run.
test.each([
  ['garbage', 'garbage\r\n\r\n'],
  ['a request without the header', REQUEST],
  ['half of a header', V1.slice(0, 12)],
])('a connection with %s that is reset ends alone', async (_what, text) => {
  await start();
  for (let count = 0; count < 5; count++) {
    const socket = await open();
    socket.write(text);
    if (text !== V1.slice(0, 12)) await new Promise((resolve) => socket.once('data', resolve));
    socket.resetAndDestroy();
  }
  expect(await speak(V1, REQUEST)).toContain('200 OK');
  expect(gate.log().filter(({ msg }) => msg === 'escaped_error')).toEqual([]);
});
