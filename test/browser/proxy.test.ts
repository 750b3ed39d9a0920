import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { createServer as createTlsServer, type Server as TlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { WebSocketServer } from 'ws';
import { makeAuthority, type Pair } from '../support/certificates.ts';
import { type TestGate, until } from '../support/gate.ts';
import { PROXY_PASSWORD, PROXY_USER, startProxyGate } from '../support/proxy.ts';
import { answerPrompts, type BrowserSetup, openBrowser } from './chromium.ts';

const folder = mkdtempSync(join(tmpdir(), 'sidegate-browser-proxy-'));
let pair: Pair;
let app: Server;
let secure: TlsServer;
let sockets: WebSocketServer;
let gate: TestGate;
let guarded: TestGate;
let browser: Browser | undefined;
/** Proxy-Authorization as destinations saw it; there should be none. */
const leaked: string[] = [];
const port = (server: Server | TlsServer): number => (server.address() as AddressInfo).port;

beforeAll(async () => {
  pair = makeAuthority(folder, 'ca').issue('server', 'DNS:localhost,DNS:secure.example');
  app = createServer((request, response) => {
    leaked.push(...[request.headers['proxy-authorization'] ?? []].flat());
    response.writeHead(200, { 'Content-Type': 'text/html' }).end(`<title>plain ${request.url}</title>`);
  });
  secure = createTlsServer({ cert: readFileSync(pair.cert), key: readFileSync(pair.key) }, (request, response) => {
    leaked.push(...[request.headers['proxy-authorization'] ?? []].flat());
    response.writeHead(200, { 'Content-Type': 'text/html' }).end(`<title>secure ${request.url}</title>`);
  });
  sockets = new WebSocketServer({ server: secure });
  sockets.on('connection', (socket) => socket.send('hello'));
  for (const server of [app, secure]) await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const setup = {
    allow: [`app.example:${port(app)}`, `secure.example:${port(secure)}`],
    names: { 'app.example': ['127.0.0.1'], 'secure.example': ['127.0.0.1'] },
  };
  gate = await startProxyGate(setup);
  guarded = await startProxyGate({ ...setup, proxy: { requireTls: true, tls: { certFile: pair.cert, keyFile: pair.key } } });
});
afterEach(async () => {
  await browser?.close();
  browser = undefined;
});
afterAll(async () => {
  for (const client of sockets.clients) client.terminate();
  sockets.close();
  await Promise.all([gate.stop(), guarded.stop()]);
  for (const server of [app, secure]) {
    server.closeAllConnections();
    server.close();
  }
  rmSync(folder, { recursive: true });
});

const open = async (proxy: BrowserSetup['proxy'] & object): Promise<Page> => {
  browser = await openBrowser({ certificates: [pair.cert], proxy });
  return (await browser.newContext()).newPage();
};
const plainUrl = (path = '/x'): string => `http://app.example:${port(app)}${path}`;
const secureUrl = (path = '/x'): string => `https://secure.example:${port(secure)}${path}`;
const CREDENTIALS = { username: PROXY_USER, password: PROXY_PASSWORD };

test.each([
  ['in clear text', () => `http://127.0.0.1:${gate.proxyPort}`],
  ['by TLS', () => `https://localhost:${guarded.proxyPort}`],
])('a user browses through a proxy %s: pages with TLS and without, and a WebSocket', async (_, toServer) => {
  const page = await open({ server: toServer(), ...CREDENTIALS });
  for (const path of ['/first', '/second']) {
    await page.goto(plainUrl(path));
    expect(await page.title()).toBe(`plain ${path}`);
    await page.goto(secureUrl(path));
    expect(await page.title()).toBe(`secure ${path}`);
  }
  const message = await page.evaluate(
    (target) =>
      new Promise<string>((resolve, reject) => {
        const socket = new WebSocket(target);
        socket.onerror = () => reject(new Error('the socket failed'));
        socket.onmessage = ({ data }) => resolve(String(data));
      }),
    secureUrl().replace('https:', 'wss:'),
  );
  expect(message).toBe('hello');
  expect(leaked).toEqual([]);
});

test('the browser asks for the proxy’s password once, for all destinations', async () => {
  browser = await openBrowser({ certificates: [pair.cert], proxy: { server: `http://127.0.0.1:${gate.proxyPort}` } });
  const context = await browser.newContext();
  const page = await context.newPage();
  const prompts = await answerPrompts(context, page);
  prompts.answers.push([PROXY_USER, 'wrong'], [PROXY_USER, PROXY_PASSWORD]);
  expect((await page.goto(plainUrl()))?.status()).toBe(200);
  expect(prompts.asked).toEqual(['Proxy basic egress', 'Proxy basic egress']);
  expect((await page.goto(secureUrl()))?.status()).toBe(200);
  expect(prompts.asked).toHaveLength(2);
});

test('who does not know the password sees the refusal, and no page', async () => {
  const page = await open({ server: `http://127.0.0.1:${gate.proxyPort}`, username: PROXY_USER, password: 'wrong' });
  const answer = await page.goto(plainUrl()).catch(() => undefined);
  expect(answer?.status() ?? 407).toBe(407);
  await expect(page.goto(secureUrl())).rejects.toThrow();
  await until(() => gate.log().some(({ reason }) => reason === 'bad_credentials'));
});

test('what is not listed is refused, in both forms', async () => {
  const page = await open({ server: `http://127.0.0.1:${gate.proxyPort}`, ...CREDENTIALS });
  expect((await page.goto('http://elsewhere.example/'))?.status()).toBe(403);
  await expect(page.goto('https://elsewhere.example/')).rejects.toThrow('ERR_TUNNEL_CONNECTION_FAILED');
});
