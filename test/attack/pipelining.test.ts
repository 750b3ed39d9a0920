import { connect } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { send, sendRaw, toRequestText, toStatuses } from '../support/client.ts';
import { useApp } from '../support/fixtures.ts';
import { startGate, type TestGate } from '../support/gate.ts';
import { startProxyGate } from '../support/proxy.ts';
import { toBasic } from '../support/users.ts';

const app = useApp();
let gate: TestGate;

beforeEach(async () => {
  // Long after the next request was read.
  app.handler = ({ url }, response) => void setImmediate(() => setImmediate(() => response.end(`answer to ${url}`)));
  gate = await startProxyGate({ allow: [`127.0.0.1:${app.port}`], sections: { routes: [toOpenRoute(app.port)] } });
});
// What is asked for here once ended the process: an error that nobody catches fails the run.
afterEach(async () => {
  expect((await send(gate.port, { method: 'GET', path: '/still-there' })).status).toBe(200);
  await gate.stop();
});

const toOpenRoute = (port: number) => ({
  name: 'a',
  match: { pathPrefix: '/' },
  upstream: `http://127.0.0.1:${port}`,
  allow: 'anyone',
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

  test('64 requests wait, and are handled one after the other', async () => {
    const paths = Array.from({ length: 65 }, (_, index) => `/${index}`);
    const requests = paths.map((path) => toRequestText([`POST ${path} HTTP/1.1`, 'Host: a', 'Content-Length: 2'], 'ok'));
    const text = await sendRaw(gate.port, requests.join('').replace(/(\/64 HTTP\/1\.1\r\n)/, '$1Connection: close\r\n'));
    expect(toStatuses(text)).toEqual(paths.map(() => 200));
    expect(app.received.map(({ url }) => url)).toEqual(paths);
  });

  test('if more than 64 wait, the connection ends with the response to the last of them', async () => {
    const text = await sendRaw(gate.port, FIRST.repeat(100));
    expect(toStatuses(text)).toEqual(Array.from({ length: 65 }, () => 200));
    expect(text.match(/^Connection: close\r$/gm)).toHaveLength(1);
    expect(app.received).toHaveLength(65);
    expect(await gate.metric('sidegate_limit_hits_total{limit="pipelined"}')).toBe(1);
  });

  test('the bodies of waiting requests arrive whole, whatever their size', async () => {
    const body = 'x'.repeat(300_000);
    const first = toRequestText(['POST /first HTTP/1.1', 'Host: a', 'Content-Length: 2'], 'ok');
    const large = toRequestText(['POST /large HTTP/1.1', 'Host: a', `Content-Length: ${body.length}`], body);
    const last = toRequestText(['GET /last HTTP/1.1', 'Host: a', 'Connection: close']);
    expect(toStatuses(await sendRaw(gate.port, first + large + first + large + last))).toEqual([200, 200, 200, 200, 200]);
    expect(app.received.map(({ body: { length } }) => length)).toEqual([2, body.length, 2, body.length, 0]);
  });

  test('a request that finds no memory to wait ends the connection with the response before it', async () => {
    const waiting = toRequestText(['POST /waiting HTTP/1.1', 'Host: a', 'Content-Length: 60000'], 'x'.repeat(60_000));
    const sections = { limits: { maxBufferedBytes: '256Ki' }, routes: [toOpenRoute(app.port)] };
    const small = await startGate(sections);
    const text = await sendRaw(small.port, FIRST + waiting);
    expect([toStatuses(text), text.includes('\r\nConnection: close\r\n')]).toEqual([[200], true]);
    expect(app.received.map(({ url }) => url)).toEqual(['/first']);
    await small.stop();
  });

  test('a client has no more waiting requests than requests in progress, and none of them stay counted', async () => {
    const limited = await startGate({ limits: { maxRequestsPerClient: 4 }, routes: [toOpenRoute(app.port)] });
    const many = Array.from({ length: 50 }, () => sendRaw(limited.port, FIRST.repeat(8)));
    for (const text of await Promise.all(many))
      expect(toStatuses(text).filter((status) => status !== 200 && status !== 503)).toEqual([]);
    const last = toRequestText(['GET /last HTTP/1.1', 'Host: a', 'Connection: close']);
    expect(toStatuses(await sendRaw(limited.port, FIRST.repeat(3) + last))).toEqual([200, 200, 200, 200]);
    await limited.stop();
  });

  test('a client that disconnects while a request waits leaves the app at once', async () => {
    const begun = Promise.withResolvers<void>();
    const ended = Promise.withResolvers<void>();
    app.handler = (_request, response) => {
      begun.resolve();
      response.once('close', () => ended.resolve());
    };
    const socket = connect(gate.port, '127.0.0.1').on('error', () => undefined);
    socket.write(FIRST + FIRST);
    await begun.promise;
    socket.resetAndDestroy();
    await ended.promise;
    await expect.poll(() => gate.metric('sidegate_buffered_bytes')).toBe(0);
    app.handler = (_request, response) => void response.end();
  });

  test('a head whose rest waits is not too late', async () => {
    const startedAt = performance.now();
    const late = await startGate({ limits: { headTimeout: '1s' }, routes: [toOpenRoute(app.port)] });
    const waiting: (() => void)[] = [];
    app.handler = ({ url }, response) => {
      const respond = (): void => void response.end(`answer to ${url}`);
      if (url === '/first') waiting.push(respond);
      else respond();
    };
    const last = toRequestText(['GET /last HTTP/1.1', 'Host: a', 'Connection: close']);
    const socket = connect(late.port, '127.0.0.1');
    let text = '';
    const closed = new Promise((resolve) => socket.once('close', resolve));
    socket.setEncoding('latin1').on('data', (chunk: string) => {
      text += chunk;
    });
    socket.write(FIRST + FIRST.replace('/first', '/second') + last.slice(0, 20));
    socket.write(last.slice(20));
    // Node checks the time of heads once a second.
    await expect.poll(() => performance.now() - startedAt, { timeout: 5_000 }).toBeGreaterThan(2_500);
    for (const respond of waiting) respond();
    await closed;
    expect(toStatuses(text)).toEqual([200, 200, 200]);
    await late.stop();
  });

  test('more than a read of held bytes is not read until the response before is sent', async () => {
    const body = 'x'.repeat(1_000_000);
    const large = toRequestText(['POST /large HTTP/1.1', 'Host: a', `Content-Length: ${body.length}`, 'Connection: close'], body);
    expect(toStatuses(await sendRaw(gate.port, FIRST + FIRST + large))).toEqual([200, 200, 200]);
    expect(app.received.at(-1)?.body.length).toBe(body.length);
  });

  test.each([40, 99])(
    'a head of %i fields waits as any other; one of 101 ends the connection after the response before',
    async (count) => {
      const toHead = (fields: number): string =>
        toRequestText(['GET /many HTTP/1.1', 'Host: a', ...Array.from({ length: fields - 1 }, (_, index) => `x-${index}: v`)]);
      const last = toRequestText(['GET /last HTTP/1.1', 'Host: a', 'Connection: close']);
      expect(toStatuses(await sendRaw(gate.port, FIRST + toHead(count) + toHead(count) + last))).toEqual([200, 200, 200, 200]);
      expect(toStatuses(await sendRaw(gate.port, FIRST + toHead(101) + last))).toEqual([200]);
    },
  );

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
