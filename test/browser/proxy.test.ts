import { createServer, type RequestListener } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { Browser, Page } from 'playwright-core';
import { afterEach, expect, test } from 'vitest';
import { WebSocketServer } from 'ws';
import { readPair } from '../support/certificates.ts';
import { useAuthority, useGate, useServer } from '../support/fixtures.ts';
import { type Sections, type TestGate, until } from '../support/gate.ts';
import { PROXY_PASSWORD, PROXY_USER, startProxyGate } from '../support/proxy.ts';
import { answerPrompts, type BrowserSetup, openBrowser } from './chromium.ts';

let browser: Browser | undefined;
/** Proxy-Authorization as destinations saw it; there should be none. */
const leaked: string[] = [];
const respondAs =
  (name: string): RequestListener =>
  ({ headers, url }, response) => {
    leaked.push(...[headers['proxy-authorization'] ?? []].flat());
    response.writeHead(200, { 'Content-Type': 'text/html' }).end(`<title>${name} ${url}</title>`);
  };

const pair = useAuthority().issue('server', 'DNS:localhost,DNS:secure.example');
const app = useServer(createServer(respondAs('plain')));
const tlsServer = createTlsServer(readPair(pair), respondAs('secure'));
new WebSocketServer({ server: tlsServer }).on('connection', (socket) => socket.send('hello'));
const secure = useServer(tlsServer);
const start = (proxy: Sections = {}): Promise<TestGate> =>
  startProxyGate({
    allow: [`app.example:${app.port}`, `secure.example:${secure.port}`],
    names: { 'app.example': ['127.0.0.1'], 'secure.example': ['127.0.0.1'] },
    proxy,
  });
const gate = useGate(() => start());
const guarded = useGate(() => start({ requireTls: true, tls: { certFile: pair.cert, keyFile: pair.key } }));
afterEach(async () => {
  await browser?.close();
  browser = undefined;
});

const open = async (proxy: BrowserSetup['proxy'] & object): Promise<Page> => {
  browser = await openBrowser({ certificates: [pair.cert], proxy });
  return (await browser.newContext()).newPage();
};
const plainUrl = (path = '/x'): string => `http://app.example:${app.port}${path}`;
const secureUrl = (path = '/x'): string => `https://secure.example:${secure.port}${path}`;
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

test('the browser prompts for the proxy password once, for all destinations', async () => {
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

test('without the password the browser shows the rejection, and no page', async () => {
  const page = await open({ server: `http://127.0.0.1:${gate.proxyPort}`, username: PROXY_USER, password: 'wrong' });
  const answer = await page.goto(plainUrl()).catch(() => undefined);
  expect(answer?.status() ?? 407).toBe(407);
  await expect(page.goto(secureUrl())).rejects.toThrow();
  await until(() => gate.log().some(({ reason }) => reason === 'bad_credentials'));
});

test('a destination that is not listed is rejected, as a tunnel and as a request', async () => {
  const page = await open({ server: `http://127.0.0.1:${gate.proxyPort}`, ...CREDENTIALS });
  expect((await page.goto('http://elsewhere.example/'))?.status()).toBe(403);
  await expect(page.goto('https://elsewhere.example/')).rejects.toThrow('ERR_TUNNEL_CONNECTION_FAILED');
});
