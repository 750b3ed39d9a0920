import type { Socket } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { toStatuses } from '../support/client.ts';
import { settle } from '../support/fake-clock.ts';
import { useScriptApp } from '../support/fixtures.ts';
import { type TestGate, until } from '../support/gate.ts';
import { exchangeRaw, openSocket, readToEnd } from '../support/proxy.ts';
import { toBasic } from '../support/users.ts';
import { ROUTE_KINDS, startGateWithUser, toKindRoute } from './route-kinds.ts';

let gate: TestGate;
/** All that reached the app, and how it answers a head. */
let seen: string;
let peer: Socket | undefined;
let answer: string;

const app = useScriptApp((socket) => {
  peer = socket;
  let isAnswered = false;
  socket.setEncoding('latin1');
  socket.on('data', (chunk: string) => {
    seen += chunk;
    if (isAnswered || !seen.includes('\r\n\r\n') || answer === '') return;
    isAnswered = true;
    socket.write(answer, 'latin1');
  });
});
beforeEach(async () => {
  seen = '';
  peer = undefined;
  answer = 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n';
  gate = await startGateWithUser({
    routes: [toKindRoute(ROUTE_KINDS.basic, app.port, { pathPrefix: '/' })],
  });
});
afterEach(() => gate.stop());

const AUTH = `Authorization: ${toBasic('Aladdin', 'open sesame').Authorization}\r\n`;
const WISH =
  'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n';
const toHead = (fields: string, line = 'GET /ws HTTP/1.1'): string => `${line}\r\nHost: a\r\n${fields}\r\n`;
const SMUGGLED = 'GET /admin HTTP/1.1\r\nHost: a\r\n\r\n';
const ask = (...parts: readonly string[]): Promise<string> => exchangeRaw(gate.port, ...parts);

test('bytes right after the upgrade request are held until the app grants it, and then sent first', async () => {
  answer = '';
  const socket = openSocket(gate.port);
  socket.write(`${toHead(AUTH + WISH)}early`);
  await until(() => seen.includes('\r\n\r\n'));
  await settle();
  expect(seen).toMatch(/\r\n\r\n$/);
  peer?.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nwelcome');
  socket.write(' and late');
  await until(() => seen.endsWith('early and late'));
  peer?.end();
  expect(await readToEnd(socket)).toMatch(/^HTTP\/1\.1 101 [^]*\r\n\r\nwelcome$/);
});

test.each([
  ['200', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno'],
  ['403', 'HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno'],
  ['426', 'HTTP/1.1 426 Upgrade Required\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\nno'],
])('an app that responds with %s gets no bytes after the upgrade request, and the connection ends', async (status, text) => {
  answer = text;
  const answered = await ask(toHead(AUTH + WISH), SMUGGLED);
  expect(toStatuses(answered)).toEqual([Number(status)]);
  expect(answered).toMatch(/\r\nConnection: close\r\n/i);
  expect(answered).not.toMatch(/\r\nUpgrade:/i);
  await settle();
  expect(seen).not.toContain('/admin');
});

test('bytes after an upgrade request without the password are never read', async () => {
  expect(toStatuses(await ask(toHead(WISH), toHead(AUTH + WISH)))).toEqual([401]);
  expect(seen).toBe('');
});

test.each([
  ['a length', 'Content-Length: 5\r\n', 'hello'],
  ['chunks', 'Transfer-Encoding: chunked\r\n', '5\r\nhello\r\n0\r\n\r\n'],
])('an upgrade request with a body that has %s is rejected with 400', async (_, fields, content) => {
  expect(toStatuses(await ask(toHead(AUTH + WISH + fields), content))).toEqual([400]);
  expect(seen).toBe('');
});

test.each([
  ['another protocol', 'Connection: Upgrade\r\nUpgrade: h2c\r\n'],
  ['no protocol', 'Connection: Upgrade\r\n'],
  ['two protocols', 'Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n'],
])('a 101 that grants %s is answered with 502', async (_, fields) => {
  answer = `HTTP/1.1 101 Switching Protocols\r\n${fields}\r\n`;
  expect(toStatuses(await ask(toHead(AUTH + WISH), 'frames'))).toEqual([502]);
  await settle();
  expect(seen).not.toContain('frames');
});

test.each([
  ['without asking', toHead(`${AUTH}Connection: close\r\n`)],
  ['by POST', toHead(`${AUTH}${WISH}Content-Length: 0\r\n`, 'POST /ws HTTP/1.1')],
  ['without Connection', toHead(`${AUTH}Connection: close\r\nUpgrade: websocket\r\n`)],
  ['to HTTP/2', toHead(`${AUTH}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n`)],
  ['to HTTP/2 among others', toHead(`${AUTH}Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n`)],
  ['to HTTP/2 with a space in its name', toHead(`${AUTH}Connection: Upgrade\r\nUpgrade: h2 c\r\n`)],
  ['to HTTP/2 in quotes', toHead(`${AUTH}Connection: Upgrade\r\nUpgrade: "h2c"\r\n`)],
  ['to a draft of HTTP/2', toHead(`${AUTH}Connection: Upgrade\r\nUpgrade: h2c-17\r\n`)],
  ['to another version of HTTP', toHead(`${AUTH}Connection: Upgrade\r\nUpgrade: HTTP/2.0\r\n`)],
  ['to TLS', toHead(`${AUTH}Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n`)],
  ['by HTTP/1.0', toHead(AUTH + WISH, 'GET /ws HTTP/1.0')],
])('a request %s is passed on without Upgrade, and a 101 to it is answered with 502', async (_, head) => {
  const socket = openSocket(gate.port);
  socket.write(head);
  const answered = String(await new Promise((resolve) => socket.once('data', resolve)));
  socket.destroy();
  expect(toStatuses(answered)).toEqual([502]);
  expect(seen).not.toMatch(/\r\n(?:Upgrade|HTTP2-Settings):/i);
});

test('a rejected upgrade request closes its connection, even if the client keeps it open', async () => {
  const socket = openSocket(gate.port);
  socket.write(toHead(WISH));
  socket.resume();
  await new Promise((resolve) => socket.once('end', resolve));
  await until(async () => (await gate.metric('sidegate_connections')) === 0);
  socket.destroy();
});

test.each([
  ['the client before the app answers', ''],
  [
    'the client after the app granted it',
    'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n',
  ],
])('%s may reset the connection, and the gate keeps running', async (_, text) => {
  answer = text;
  const socket = openSocket(gate.port);
  socket.write(toHead(AUTH + WISH));
  await until(() => seen.includes('\r\n\r\n'));
  const closed = new Promise((resolve) => peer?.once('close', resolve));
  socket.resetAndDestroy();
  await closed;
  answer = 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n';
  expect(toStatuses(await ask(toHead(`${AUTH}Connection: close\r\n`)))).toEqual([200]);
});

test('an app that resets an upgraded connection disconnects the client, and the gate keeps running', async () => {
  const socket = openSocket(gate.port);
  socket.write(toHead(AUTH + WISH));
  const head = await new Promise((resolve) => socket.once('data', resolve));
  expect(String(head)).toMatch(/^HTTP\/1\.1 101 /);
  peer?.resetAndDestroy();
  expect(await readToEnd(socket)).toBe('');
  answer = 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n';
  seen = '';
  expect(toStatuses(await ask(toHead(`${AUTH}Connection: close\r\n`)))).toEqual([200]);
});
