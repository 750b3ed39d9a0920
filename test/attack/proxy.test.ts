import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { toRequestText, toStatuses } from '../support/client.ts';
import { makeFolder, useApp, useEcho } from '../support/fixtures.ts';
import { type Sections, type TestGate, until } from '../support/gate.ts';
import { startGateProcess } from '../support/process.ts';
import {
  exchangeRaw,
  openSocket,
  openTunnel,
  PROXY_AUTH,
  PROXY_PASSWORD,
  PROXY_USER,
  readToEnd,
  startProxyGate,
} from '../support/proxy.ts';
import { makeEntry, toBasic } from '../support/users.ts';
import { FRAMING_CASES, SMUGGLED } from './framing-cases.ts';

const app = useApp();
const echo = useEcho();
let gate: TestGate;

const NAMES = { 'app.example': ['127.0.0.1'], 'echo.example': ['127.0.0.1'] };
const start = async (proxy: Sections = {}, sections: Sections = {}): Promise<void> => {
  gate = await startProxyGate({
    allow: [`app.example:${app.port}`, `echo.example:${echo.port}`],
    names: NAMES,
    proxy,
    sections,
  });
};
const url = (path = '/x'): string => `http://app.example:${app.port}${path}`;
const authLine = PROXY_AUTH.trim();
/** The statuses of all that comes, until the gate ends the connection; the client never does. */
const ask = async (...parts: readonly string[]): Promise<number[]> => toStatuses(await exchangeRaw(gate.proxyPort, ...parts));
const get = (target: string, fields = PROXY_AUTH, method = 'GET'): string =>
  `${method} ${target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${fields}\r\n`;
const connectTo = (target: string, fields = PROXY_AUTH): string => `CONNECT ${target} HTTP/1.1\r\nHost: x\r\n${fields}\r\n`;

describe('the proxy port', () => {
  beforeAll(() => start());
  afterAll(() => gate.stop());

  test.each(FRAMING_CASES)('rejects bad framing with 400, and closes the connection: %s', async (_title, toHead, body) => {
    const head = toHead(`POST ${url()} HTTP/1.1`, [authLine]);
    const text = await exchangeRaw(gate.proxyPort, toRequestText(head, body), SMUGGLED);
    expect(toStatuses(text)).toEqual([400]);
    expect(text.toLowerCase()).toContain('connection: close');
    expect(app.received).toHaveLength(0);
  });

  test.each([
    ['a user and a password', 'http://user:pass@app.example/x'],
    ['a user', 'http://user@app.example/x'],
    ['an empty user', 'http://@app.example/x'],
    ['a backslash before the user', 'http://evil\\@app.example/x'],
    ['no host', 'http:///x'],
    ['a port without a host', 'http://:80/x'],
    ['port 0', 'http://app.example:0/x'],
    ['port 65536', 'http://app.example:65536/x'],
    ['a port with a sign', 'http://app.example:+80/x'],
    ['an empty port', 'http://app.example:/x'],
    ['two ports', 'http://app.example:80:80/x'],
    ['an IPv6 address without brackets', 'http://::1/x'],
    ['a zone', 'http://[fe80::1%25eth0]/x'],
    ['an escaped host', 'http://%61pp.example/x'],
    ['fullwidth digits', 'http://１２７.0.0.1/x'],
    ['an ideographic full stop', 'http://127。0。0。1/x'],
    ['a host beyond ASCII', 'http://äpp.example/x'],
    ['a space', 'http://app.example/a b'],
    ['a scheme without slashes', 'http:app.example/x'],
    ['an authority', 'app.example:80'],
    ['a path', '/x'],
    ['an asterisk', '*'],
    ['https', 'https://app.example/x'],
    ['another scheme', 'gopher://app.example:80/x'],
    ['a file', 'file:///etc/passwd'],
    ['a tab in the host', 'http://app\t.example/x'],
  ])('rejects a target with %s with 400', async (_, target) => {
    expect(await ask(get(target))).toEqual([400]);
    expect(app.received).toHaveLength(0);
  });

  test.each([
    'app.example',
    'app.example:',
    'app.example:0',
    'app.example:99999',
    ':443',
    'user@app.example:443',
    'user:pass@app.example:443',
    'http://app.example:443',
    'app.example:443/x',
    'app.example:443?x',
    '/app.example:443',
    '*:443',
    'app.example:443,evil:443',
    '１２７.0.0.1:443',
    '127.1:443',
    '2130706433:443',
    '0x7f000001:443',
    '0177.0.0.1:443',
    '127.0.0.0x1:443',
    '[::1:443',
    '[::1]',
    '::1:443',
  ])('rejects CONNECT %s with 400', async (target) => {
    expect(await ask(connectTo(target))).toEqual([400]);
  });

  test.each([
    ['a length', 'Content-Length: 5\r\n', 'hello'],
    ['chunks', 'Transfer-Encoding: chunked\r\n', '5\r\nhello\r\n0\r\n\r\n'],
  ])('rejects CONNECT with a body that has %s with 400', async (_, fields, content) => {
    expect(await ask(connectTo(`echo.example:${echo.port}`, PROXY_AUTH + fields), content)).toEqual([400]);
  });

  test('never reads bytes after a rejected CONNECT as a request', async () => {
    expect(await ask(connectTo('evil.example:443'), get(url()))).toEqual([403]);
    expect(await ask(connectTo(`echo.example:${echo.port}`, ''), get(url()))).toEqual([407]);
    expect(app.received).toHaveLength(0);
  });

  test('closes the connection after a rejected CONNECT, even if the client keeps it open', async () => {
    await until(async () => (await gate.metric('sidegate_connections')) === 0);
    await Promise.all(Array.from({ length: 5 }, () => ask(connectTo('evil.example:443'), 'x'.repeat(1_000))));
    const sockets = Array.from({ length: 5 }, () => openSocket(gate.proxyPort));
    const closed = sockets.map((socket) => {
      socket.write(connectTo('evil.example:443'));
      // Its end is read, and not answered by ours.
      socket.resume();
      return new Promise((resolve) => socket.once('end', resolve));
    });
    await Promise.all(closed);
    await until(async () => (await gate.metric('sidegate_connections')) === 0);
    for (const socket of sockets) socket.destroy();
  });

  test('rejects a head above 16 KiB or with too many fields with 431, and a target above 8 KiB with 414', async () => {
    expect(await ask(get(url(), `${PROXY_AUTH}X-Long: ${'x'.repeat(17_000)}\r\n`))).toEqual([431]);
    expect(await ask(connectTo(`echo.example:${echo.port}`, `X-Long: ${'x'.repeat(17_000)}\r\n`))).toEqual([431]);
    expect(await ask(get(url(), PROXY_AUTH + 'X-A: 1\r\n'.repeat(101)))).toEqual([431]);
    expect(await ask(get(url(`/${'x'.repeat(8_192)}`)))).toEqual([414]);
    expect(await gate.metric('sidegate_limit_hits_total{limit="header_bytes"}')).toBe(2);
  });

  test('rejects an unknown expectation with 417, and records it like any rejection', async () => {
    expect(await ask(get(url(), `${PROXY_AUTH}Expect: tea\r\n`))).toEqual([417]);
    await until(() => gate.log().some(({ code }) => code === 'expectation_failed'));
    // Malformed bytes behind it get no second response, because this one is final.
    expect(await ask(get(url(), `${PROXY_AUTH}Expect: tea\r\n`), '2')).toEqual([417]);
  });

  test('never echoes a password to TRACE, with any Max-Forwards', async () => {
    for (const fields of ['', 'Max-Forwards: 0\r\n', 'Max-Forwards: 5\r\n', 'Max-Forwards: x\r\n']) {
      const text = await exchangeRaw(gate.proxyPort, get(url(), `${PROXY_AUTH}Cookie: secret=1\r\n${fields}`, 'TRACE'));
      expect(toStatuses(text)).toEqual([405]);
      expect(text).not.toMatch(/secret|Basic|QWxhZGRpb/);
    }
    expect(app.received).toHaveLength(0);
  });

  test('rejects two passwords with 400, even if one is correct', async () => {
    const good = PROXY_AUTH;
    const bad = `Proxy-Authorization: ${toBasic('Aladdin', 'wrong').Authorization}\r\n`;
    for (const fields of [good + bad, bad + good, good + good]) {
      expect(await ask(get(url(), fields))).toEqual([400]);
      expect(await ask(connectTo(`echo.example:${echo.port}`, fields))).toEqual([400]);
    }
  });

  test("rejects the app's Authorization, and other spellings of Proxy-Authorization", async () => {
    const value = toBasic('Aladdin', 'open sesame').Authorization;
    for (const name of ['Authorization', 'Proxy_Authorization', 'X-Proxy-Authorization'])
      expect(await ask(get(url(), `${name}: ${value}\r\n`))).toEqual([407]);
  });

  test('never passes on a password in a request, in any spelling of the field', async () => {
    const value = toBasic('Aladdin', 'open sesame').Authorization;
    expect(await ask(get(url(), `pRoXy-AuThOrIzAtIoN: ${value}\r\nProxy_Authorization: ${value}\r\n`))).toEqual([200]);
    expect(JSON.stringify(app.received[0]?.rawHeaders)).not.toContain('QWxhZGRpb');
  });

  test('never passes on a password in a tunnel', async () => {
    const socket = await openTunnel(gate.proxyPort, `echo.example:${echo.port}`);
    socket.end('only this');
    expect(await readToEnd(socket)).toBe('only this');
  });

  test('shows no password in the log or in a response', async () => {
    const secret = 'canary-9f1c';
    const value = toBasic('Aladdin', secret).Authorization;
    const text = await exchangeRaw(gate.proxyPort, get(url(), `Proxy-Authorization: ${value}\r\n`));
    expect(toStatuses(text)).toEqual([407]);
    for (const place of [text, gate.logText(), await gate.metrics()]) {
      expect(place).not.toContain(secret);
      expect(place).not.toContain(value.slice('Basic '.length));
    }
  });

  test('passes a redirect on, and does not follow it', async () => {
    app.handler = (_request, response) => response.writeHead(302, { Location: 'http://169.254.169.254/latest/meta-data/' }).end();
    expect(await ask(get(url()))).toEqual([302]);
    expect(app.received).toHaveLength(1);
  });

  const FIELDS = `${PROXY_AUTH}Authorization: Bearer x\r\nVia: 1.0 fred\r\nX-Hop: 1\r\nContent-Length: 5\r\n`;

  test.each(['Host', 'Via', 'Content-Length', 'Authorization'])(
    'rejects a Connection option that names %s with 400',
    async (option) => {
      expect(await ask(get(url(), `${FIELDS}Connection: ${option}\r\n`, 'POST'), 'hello')).toEqual([400]);
      expect(app.received).toHaveLength(0);
    },
  );

  test('removes only the fields of this hop that a Connection option names', async () => {
    expect(await ask(get(url(), `${FIELDS}Connection: Proxy-Authorization, X-Hop\r\n`, 'POST'), 'hello')).toEqual([200]);
    const [got] = app.received;
    expect(String(got?.body)).toBe('hello');
    expect(got?.headers).toMatchObject({ host: `app.example:${app.port}`, authorization: 'Bearer x', 'content-length': '5' });
    expect(got?.headers.via).toMatch(/^1\.0 fred, 1\.1 sidegate-/);
    expect([got?.headers['x-hop'], got?.headers['proxy-authorization']]).toEqual([undefined, undefined]);
  });

  test('sends responses in the order of the requests, and never an error in the middle of one', async () => {
    app.handler = ({ url: path }, response) => {
      response.writeHead(200, { 'Content-Length': 10 }).write('12345');
      setImmediate(() => response.end(path === '/first' ? 'first' : 'other'));
    };
    const pipelined = get(url('/first')).replace('Connection: close\r\n', '');
    const text = await exchangeRaw(gate.proxyPort, `${pipelined}\x01\x02 nonsense\r\n\r\n`);
    expect(toStatuses(text)).toEqual([200]);
    expect(text.endsWith('12345first')).toBe(true);
  });
});

describe('a slow client', () => {
  afterEach(() => gate.stop());

  test('is rejected with 408 during the head', async () => {
    await start({}, { limits: { headTimeout: '1s' } });
    expect(await ask(`GET ${url()} HTTP/1.1\r\nHost:`)).toEqual([408]);
    expect(await gate.metric('sidegate_limit_hits_total{limit="head_timeout"}')).toBe(1);
  });

  test('is rejected with 408 during the body', async () => {
    await start({}, { limits: { bodyIdleTimeout: '1s' } });
    expect(await ask(get(url(), `${PROXY_AUTH}Content-Length: 5\r\n`, 'POST'), 'he')).toEqual([408]);
  });
});

test('rejects new requests with 503 while the heap is too full', async () => {
  const folder = makeFolder();
  writeFileSync(join(folder, 'users'), makeEntry(PROXY_USER, PROXY_PASSWORD));
  // A tenth of so little is full from the start.
  process.env['NODE_OPTIONS'] = '--max-old-space-size=32 --max-semi-space-size=1';
  const child = await startGateProcess({
    limits: { heapShed: 0.1 },
    shutdown: { grace: '0ms', drain: '0ms' },
    routes: [{ name: 'a', match: { path: '/' }, upstream: 'http://127.0.0.1:1', allow: 'anyone' }],
    proxy: {
      address: '127.0.0.1:0',
      requireTls: false,
      basic: { realm: 'egress', users: { file: join(folder, 'users') } },
      allow: ['app.example:443'],
    },
  }).finally(() => {
    delete process.env['NODE_OPTIONS'];
  });
  onTestFinished(() => void child.child.kill('SIGKILL'));
  const port = Number(child.log().find(({ msg }) => msg === 'listening')?.['proxyPort']);
  await until(async () => toStatuses(await exchangeRaw(port, connectTo('evil.example:443')))[0] === 503);
  expect(toStatuses(await exchangeRaw(port, get('http://evil.example/')))).toEqual([503]);
  child.child.kill('SIGTERM');
  expect(await child.exit).toBe(0);
});
