import { connect } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { send, sendRaw, toRequestText, toStatuses } from '../support/client.ts';
import { useApp } from '../support/fixtures.ts';
import type { TestGate } from '../support/gate.ts';
import { startProxyGate } from '../support/proxy.ts';
import { toBasic } from '../support/users.ts';

const app = useApp();
let gate: TestGate;

beforeEach(async () => {
  // Long after the next request was read.
  app.handler = ({ url }, response) => void setImmediate(() => setImmediate(() => response.end(`answer to ${url}`)));
  const routes = [{ name: 'a', match: { pathPrefix: '/' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' }];
  gate = await startProxyGate({ allow: [`127.0.0.1:${app.port}`], sections: { routes } });
});
// What is asked for here once ended the process: an error that nobody catches fails the run.
afterEach(async () => {
  expect((await send(gate.port, { method: 'GET', path: '/still-there' })).status).toBe(200);
  await gate.stop();
});

const FIRST = toRequestText(['GET /first HTTP/1.1', 'Host: a']);
const toUpgrade = (path: string): string =>
  toRequestText([`GET ${path} HTTP/1.1`, 'Host: a', 'Connection: Upgrade', 'Upgrade: websocket']);

describe('pipelined after a request in progress,', () => {
  test('an upgrade request is handled in order, as any request, and is the last', async () => {
    const text = await sendRaw(gate.port, FIRST + toUpgrade('/second') + toUpgrade('/third') + FIRST);
    expect(toStatuses(text)).toEqual([200, 200]);
    expect([...text.matchAll(/answer to (\S+?)(?:HTTP|$)/g)].map(([, path]) => path)).toEqual(['/first', '/second']);
    expect(app.received.map(({ url, headers }) => [url, headers.upgrade])).toEqual([
      ['/first', undefined],
      ['/second', undefined],
    ]);
  });

  test('an upgrade request is handled in order even if the response was sent but the connection is not free yet', async () => {
    const text = await sendRaw(gate.port, toRequestText(['TRACE /first HTTP/1.1', 'Host: a']) + toUpgrade('/second'));
    expect(toStatuses(text)).toEqual([405, 200]);
  });

  test('a request reaches the app only when the response before it is sent, since unsafe methods depend on their order', async () => {
    const inApp: string[] = [];
    app.handler = ({ url }, response) => {
      inApp.push(`begin ${url}`);
      setImmediate(() => {
        inApp.push(`end ${url}`);
        response.end();
      });
    };
    const chunked = '2\r\nok\r\n0\r\n\r\n';
    const slow = toRequestText(['POST /first HTTP/1.1', 'Host: a', 'Transfer-Encoding: chunked'], chunked);
    const refused = toRequestText(['TRACE /second HTTP/1.1', 'Host: a']);
    const last = toRequestText(['GET /third HTTP/1.1', 'Host: a', 'Connection: close']);
    expect(toStatuses(await sendRaw(gate.port, slow + refused + last))).toEqual([200, 405, 200]);
    expect(inApp).toEqual(['begin /first', 'end /first', 'begin /third', 'end /third']);
  });

  test('requests behind a response that closes the connection never reach the app', async () => {
    const close = toRequestText(['GET /first HTTP/1.1', 'Host: a', 'Connection: close']);
    const lost = toRequestText(['POST /lost HTTP/1.1', 'Host: a', 'Content-Length: 2'], 'ok');
    expect(toStatuses(await sendRaw(gate.port, close + lost + lost))).toEqual([200]);
    expect(app.received.map(({ url }) => url)).toEqual(['/first']);
  });

  test('a thousand requests are handled one after the other', async () => {
    const paths = Array.from({ length: 1_000 }, (_, index) => `/${index}`);
    const requests = paths.map((path) => toRequestText([`POST ${path} HTTP/1.1`, 'Host: a', 'Content-Length: 2'], 'ok'));
    const last = toRequestText(['GET /last HTTP/1.1', 'Host: a', 'Connection: close']);
    expect(toStatuses(await sendRaw(gate.port, requests.join('') + last))).toEqual(Array.from({ length: 1_001 }, () => 200));
    expect(app.received.map(({ url }) => url)).toEqual([...paths, '/last']);
  });

  test('bytes that follow a rejected upgrade request are never read as a request', async () => {
    const wish = toRequestText(['GET /first HTTP/1.1', 'Host: a', 'Connection: Upgrade', 'Upgrade: h2c']);
    const lost = toRequestText(['POST /lost HTTP/1.1', 'Host: a', 'Content-Length: 1000']);
    const socket = connect(gate.port, '127.0.0.1').on('error', () => undefined);
    const closed = new Promise((resolve) => socket.on('close', resolve));
    socket.once('data', () => socket.write(toRequestText(['GET /smuggled HTTP/1.1', 'Host: a'])));
    socket.resume().write(wish + lost);
    await closed;
    expect(app.received.map(({ url }) => url)).toEqual(['/first']);
  });

  test('CONNECT ends the connection at once, with no response to either', async () => {
    const text = await sendRaw(gate.port, FIRST + toRequestText(['CONNECT a:443 HTTP/1.1', 'Host: a']));
    expect(text).toBe('');
  });

  test('CONNECT through the proxy ends the connection at once, and opens no tunnel', async () => {
    const { Authorization } = toBasic('Aladdin', 'open sesame');
    const proof = `Proxy-Authorization: ${Authorization}`;
    const first = toRequestText([`GET http://127.0.0.1:${app.port}/first HTTP/1.1`, 'Host: a', proof]);
    const tunnel = toRequestText([`CONNECT 127.0.0.1:${app.port} HTTP/1.1`, 'Host: a', proof]);
    expect(toStatuses(await sendRaw(gate.proxyPort, first.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n')))).toEqual([200]);
    expect(await sendRaw(gate.proxyPort, first + tunnel)).toBe('');
  });
});

test('after a finished request, an upgrade request is passed on', async () => {
  const socket = connect(gate.port, '127.0.0.1');
  const answer = (): Promise<string> => new Promise((resolve) => socket.once('data', (chunk) => resolve(String(chunk))));
  socket.write(FIRST);
  expect(await answer()).toContain('answer to /first');
  socket.write(toUpgrade('/second'));
  expect(await answer()).toContain('answer to /second');
  expect(app.received.at(-1)?.headers.upgrade).toBe('websocket');
  socket.destroy();
});
