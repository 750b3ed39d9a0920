import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer as createTlsServer } from 'node:https';
import { connect } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { afterEach, describe, expect, onTestFinished, test } from 'vitest';
import { readPair } from '../support/certificates.ts';
import { useApp, useAuthority, useEcho, useServer } from '../support/fixtures.ts';
import { findFreePort } from '../support/free-port.ts';
import { type Sections, type TestGate, until } from '../support/gate.ts';
import { countLookups } from '../support/lookups.ts';
import { startProxyGate } from '../support/proxy.ts';
import { readOutput } from '../support/run.ts';
import { startDeafApp } from '../support/script-app.ts';
import { toBasic } from '../support/users.ts';

const authority = useAuthority();
const pair = authority.issue('server', 'DNS:localhost,DNS:secure.example,IP:127.0.0.1');
const app = useApp();
const secure = useServer(createTlsServer(readPair(pair), (_request, response) => response.end('secret page')));
const echo = useEcho();
let gate: TestGate;
afterEach(() => gate.stop());

const start = async (proxy: Sections = {}, sections: Sections = {}): Promise<void> => {
  gate = await startProxyGate({
    allow: [
      `app.example:${app.port}`,
      `secure.example:${secure.port}`,
      `*.echo.example:${echo.port}`,
      'away.example:1',
      `twice.example:${app.port}`,
    ],
    names: {
      'app.example': ['127.0.0.1'],
      'secure.example': ['127.0.0.1'],
      'a.echo.example': ['127.0.0.1'],
      'away.example': ['127.0.0.1'],
      // Nothing listens at the first address.
      'twice.example': ['127.0.0.9', '127.0.0.1'],
    },
    proxy,
    sections,
  });
};
const curl = (...args: string[]): Promise<string> =>
  readOutput('curl', '-sS', '-w', ' %{http_code} %{http_connect}', '-x', `http://127.0.0.1:${gate.proxyPort}`, ...args);
const USER = ['--proxy-user', 'Aladdin:open sesame'];
const appUrl = (path = '/x'): string => `http://app.example:${app.port}${path}`;
/** Writes to the proxy and reads until it closes. */
const raw = (...parts: string[]): Promise<string> =>
  new Promise((resolve, reject) => {
    const socket = connect({ port: gate.proxyPort, host: '127.0.0.1', allowHalfOpen: true }, () => {
      for (const part of parts) socket.write(part);
    });
    let all = '';
    socket.on('data', (chunk) => {
      all += String(chunk);
    });
    socket.on('end', () => {
      socket.destroy();
      resolve(all);
    });
    socket.on('error', reject);
  });
const AUTH = `Proxy-${Object.entries(toBasic('Aladdin', 'open sesame')).map(([name, value]) => `${name}: ${value}`)}\r\n`;

test('on loopback, its only client is the pod, which has all connections of the port', async () => {
  await start({}, { limits: { maxConnections: 4, maxConnectionsPerClient: 2 } });
  const tunnels = await Promise.all(
    Array.from({ length: 4 }, async () => {
      const socket = connect(gate.proxyPort, '127.0.0.1');
      onTestFinished(() => void socket.destroy());
      socket.write(`CONNECT a.echo.example:${echo.port} HTTP/1.1\r\nHost: a.echo.example:${echo.port}\r\n${AUTH}\r\n`);
      return String((await once(socket, 'data'))[0]).slice(0, 12);
    }),
  );
  expect(tunnels).toEqual(Array(4).fill('HTTP/1.1 200'));
});

test('at other addresses, tunnels leave connections to further clients', async () => {
  await start({ address: '0.0.0.0:0' }, { limits: { maxConnections: 16 } });
  const ask = async (localAddress: string, line = `CONNECT a.echo.example:${echo.port}`): Promise<string> => {
    const socket = connect({ port: gate.proxyPort, host: '127.0.0.1', localAddress });
    onTestFinished(() => void socket.destroy());
    socket.write(`${line} HTTP/1.1\r\nHost: a.echo.example:${echo.port}\r\n${AUTH}\r\n`);
    return String((await once(socket, 'data'))[0]).slice(9, 12);
  };
  const statuses: string[] = [];
  for (const client of ['127.0.0.2', '127.0.0.3', '127.0.0.4', '127.0.0.5'])
    for (let count = 0; count < 5; count++) statuses.push(await ask(client));
  expect(statuses.filter((status) => status === '200').length).toBeLessThanOrEqual(8);
  expect(statuses.slice(0, 5)).toEqual(['200', '200', '200', '200', '503']);
  expect(await ask('127.0.0.9', `GET ${appUrl()}`)).toBe('200');
});

describe('curl', () => {
  test('is allowed with the password, and gets 407 without it', async () => {
    await start();
    expect(await curl(...USER, appUrl())).toBe('handled 200 000');
    const without = await curl('-D', '-', appUrl());
    expect(without).toMatch(/^HTTP\/1\.1 407 /);
    expect(without).toContain('Proxy-Authenticate: Basic realm="egress", charset="UTF-8"');
    expect(without).not.toContain('WWW-Authenticate');
    expect(await curl('--proxy-user', 'Aladdin:wrong', appUrl())).toMatch(/ 407 000$/);
    expect(app.received).toHaveLength(1);
  });

  test('has the bytes of both directions counted per rule', async () => {
    await start();
    expect(await curl(...USER, '-d', 'hello', appUrl())).toBe('handled 200 000');
    const rule = `app.example:${app.port}`;
    await until(() => gate.log().some((line) => line['status'] === 200));
    expect(await gate.metric(`sidegate_proxy_bytes_total{rule="${rule}",direction="sent"}`)).toBe(5);
    expect(await gate.metric(`sidegate_proxy_bytes_total{rule="${rule}",direction="received"}`)).toBe('handled'.length);
  });

  test('tunnels TLS end to end with CONNECT', async () => {
    await start();
    const url = `https://secure.example:${secure.port}/`;
    expect(await curl(...USER, '--cacert', authority.ca, url)).toBe('secret page 200 200');
    expect(await curl('--cacert', authority.ca, url)).toMatch(/ 000 407$/);
    await until(() =>
      gate.log().some((line) => line['method'] === 'CONNECT' && line['status'] === 200 && line['user'] === 'Aladdin'),
    );
    const rule = `secure.example:${secure.port}`;
    expect(await gate.metric(`sidegate_proxy_bytes_total{rule="${rule}",direction="received"}`)).toBeGreaterThan(500);
  });

  test('can use TLS to the proxy itself', async () => {
    await start({ requireTls: true, tls: { certFile: pair.cert, keyFile: pair.key } });
    const args = ['-sS', '-x', `https://localhost:${gate.proxyPort}`, '--proxy-cacert', authority.ca, ...USER];
    expect(await readOutput('curl', ...args, appUrl())).toBe('handled');
    expect(await readOutput('curl', ...args, '--cacert', authority.ca, `https://secure.example:${secure.port}/`)).toBe(
      'secret page',
    );
  });

  test('uploads and downloads through a tunnel and without', async () => {
    await start();
    app.handler = ({ body }, response) => response.end(String(body.length));
    expect(await curl(...USER, '-T', process.execPath, appUrl())).toBe(`${readFileSync(process.execPath).length} 200 000`);
  });
});

describe('a request in absolute form', () => {
  test('reaches its destination without the fields of this hop', async () => {
    await start();
    const ok = await raw(
      `GET ${appUrl('/b?c=%2F')} HTTP/1.1\r\nHost: evil.example\r\n${AUTH}Authorization: Bearer x\r\nProxy-Connection: keep-alive\r\nConnection: close, x-hop\r\nX-Hop: 1\r\nX-Forwarded-For: 1.2.3.4\r\nVia: 1.0 fred\r\n\r\n`,
    );
    expect(ok).toMatch(/^HTTP\/1\.1 200 /);
    const got = app.received.at(-1);
    expect(got?.url).toBe('/b?c=%2F');
    expect(got?.headers.host).toBe(`app.example:${app.port}`);
    expect(got?.headers.authorization).toBe('Bearer x');
    expect(got?.headers.via).toMatch(/^1\.0 fred, 1\.1 sidegate-[0-9a-f]{12}$/);
    expect(got?.headers['x-forwarded-for']).toBe('1.2.3.4');
    for (const name of ['proxy-authorization', 'proxy-connection', 'x-hop', 'sidegate-route', 'sidegate-user'])
      expect(got?.headers[name]).toBeUndefined();
  });

  test('is sent with its body to the next address if nothing listens at the first', async () => {
    await start();
    const head = `POST http://twice.example:${app.port}/x HTTP/1.1\r\nHost: x\r\n${AUTH}Connection: close\r\nContent-Length: 5\r\n\r\n`;
    expect(await raw(head, 'hello')).toMatch(/^HTTP\/1\.1 200 /);
    expect(app.received.map(({ body }) => String(body))).toEqual(['hello']);
    expect(await raw(`CONNECT twice.example:${app.port} HTTP/1.1\r\nHost: x\r\n${AUTH}\r\nGET / HTTP/1.0\r\n\r\n`)).toMatch(
      / 200 /,
    );
  });

  test.each([
    '/flat/./Release',
    '/flat/../Release',
    '/../../etc/passwd',
    '//a//b',
    '/a%2Fb%2e%2e/c',
    '/a\\..\\b',
    '/%FF%fe',
    '/%0d%0aHost:%20x',
    '/%zz%',
    '/a;b/..;/c',
    '/a?b=/../c\\d',
    '/\uff0e\uff0e'.replace(/./g, (c) => (c === '/' ? c : encodeURIComponent(c))),
  ])('gets its path as it was sent, because the proxy authorizes only hosts: %s', async (path) => {
    await start();
    expect(await raw(`GET ${appUrl(path)} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${AUTH}\r\n`)).toMatch(/^HTTP\/1\.1 200 /);
    expect(app.received.map(({ url }) => url)).toEqual([path]);
  });

  test('is sent as OPTIONS * if it is OPTIONS without a path (RFC 9112 §3.2.4)', async () => {
    await start();
    const to = appUrl('');
    expect(await raw(`OPTIONS ${to} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${AUTH}\r\n`)).toMatch(/^HTTP\/1\.1 200 /);
    expect(await raw(`OPTIONS ${to}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${AUTH}\r\n`)).toMatch(/^HTTP\/1\.1 200 /);
    expect(app.received.map(({ url }) => url)).toEqual(['*', '/']);
  });

  test('decrements Max-Forwards, and ends at zero', async () => {
    await start();
    const options = (left: number): Promise<string> =>
      raw(`OPTIONS ${appUrl()} HTTP/1.1\r\nHost: x\r\n${AUTH}Connection: close\r\nMax-Forwards: ${left}\r\n\r\n`);
    expect(await options(2)).toMatch(/^HTTP\/1\.1 200 /);
    expect(app.received.at(-1)?.headers['max-forwards']).toBe('1');
    expect(await options(0)).toMatch(/^HTTP\/1\.1 405 /);
    expect(app.received).toHaveLength(1);
  });

  test('that already passed this proxy is a loop', async () => {
    await start();
    await raw(`GET ${appUrl()} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${AUTH}\r\n`);
    const via = String(app.received[0]?.headers.via);
    expect(
      await raw(`GET ${appUrl()} HTTP/1.1\r\nHost: x\r\n${AUTH}Connection: close\r\nVia: 1.1 other, ${via}\r\n\r\n`),
    ).toMatch(/^HTTP\/1\.1 508 /);
    expect(app.received).toHaveLength(1);
  });

  test.each([
    ['origin form', 'GET /x HTTP/1.1'],
    ['https', 'GET https://app.example/x HTTP/1.1'],
    ['another scheme', 'GET ftp://app.example/x HTTP/1.1'],
    ['a user in the target', 'GET http://a:b@app.example/x HTTP/1.1'],
    ['a number for a host', 'GET http://2130706433/x HTTP/1.1'],
    ['a fragment', 'GET http://app.example/x#y HTTP/1.1'],
    ['an asterisk', 'OPTIONS * HTTP/1.1'],
  ])('is rejected as %s', async (_, line) => {
    await start();
    expect(await raw(`${line}\r\nHost: x\r\n${AUTH}\r\n`)).toMatch(/^HTTP\/1\.1 400 /);
  });
});

describe('CONNECT', () => {
  const connectTo = (authorityForm: string, fields = AUTH, behind = ''): Promise<string> =>
    raw(`CONNECT ${authorityForm} HTTP/1.1\r\nHost: ${authorityForm}\r\n${fields}\r\n${behind}`);

  test('opens a tunnel after the blank line, and forwards bytes that arrived early', async () => {
    await start();
    const socket = connect(gate.proxyPort, '127.0.0.1');
    socket.write(`CONNECT a.echo.example:${echo.port} HTTP/1.1\r\nHost: x\r\n${AUTH}\r\nearly bytes`);
    let text = '';
    for await (const chunk of socket) {
      text += String(chunk);
      if (text.endsWith('bytes')) break;
    }
    expect(text).toBe('HTTP/1.1 200 Connection established\r\n\r\nearly bytes');
  });

  test.each(['', 'over TLS '])('passes on the end of each side %sseparately', async (isTls) => {
    await start(isTls === '' ? {} : { requireTls: true, tls: { certFile: pair.cert, keyFile: pair.key } });
    const plain = connect({ port: gate.proxyPort, host: '127.0.0.1', allowHalfOpen: true });
    const socket = isTls === '' ? plain : connectTls({ socket: plain, rejectUnauthorized: false });
    socket.write(`CONNECT a.echo.example:${echo.port} HTTP/1.1\r\nHost: x\r\n${AUTH}\r\n`);
    await new Promise((resolve) => socket.once('data', resolve));
    socket.end('last words');
    let text = '';
    for await (const chunk of socket) text += String(chunk);
    expect(text).toBe('last words');
  });

  test('passes on the end of a client that ends its side before the tunnel is open', async () => {
    await start();
    const socket = connect({ port: gate.proxyPort, host: '127.0.0.1', allowHalfOpen: true });
    socket.end(`CONNECT a.echo.example:${echo.port} HTTP/1.1\r\nHost: x\r\n${AUTH}\r\nlast words`);
    let text = '';
    for await (const chunk of socket) text += String(chunk);
    expect(text).toBe('HTTP/1.1 200 Connection established\r\n\r\nlast words');
  });

  test.each([
    ['no port', 'app.example', 400],
    ['port 0', 'app.example:0', 400],
    ['an unusual spelling of an IP address', '0x7f.1:80', 400],
    ['a host that is not listed', 'other.example:443', 403],
    ['another port', 'app.example:22', 403],
    ['the name above a wildcard', 'echo.example:1', 403],
    ['a port where nothing listens', 'away.example:1', 502],
  ])('to %s is rejected', async (_, target, status) => {
    await start();
    expect(await connectTo(target)).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
  });

  test('is rejected with 400 with a body or two passwords', async () => {
    await start();
    const to = `a.echo.example:${echo.port}`;
    expect(await connectTo(to, `${AUTH}Content-Length: 3\r\n`, 'abc')).toMatch(/^HTTP\/1\.1 400 /);
    expect(await connectTo(to, `${AUTH}${AUTH}`)).toMatch(/^HTTP\/1\.1 400 /);
    expect(await connectTo(to, '', 'GET / HTTP/1.1\r\n\r\n')).toMatch(/^HTTP\/1\.1 407 /);
  });

  test('is not connected any further for a client that is gone', async () => {
    const deaf = await startDeafApp();
    onTestFinished(() => deaf.close());
    await start({ allow: [`127.0.0.1:${deaf.port}`] });
    const socket = connect(gate.proxyPort, '127.0.0.1');
    socket.write(`CONNECT 127.0.0.1:${deaf.port} HTTP/1.1\r\nHost: x\r\n${AUTH}\r\n`, () => socket.resetAndDestroy());
    await until(() => gate.log().some((line) => line['reason'] === 'sender_gone' && line['status'] === 499));
  });

  test('ends when it is idle for too long', async () => {
    await start({ idleTimeout: '1s' });
    const socket = connect(gate.proxyPort, '127.0.0.1');
    socket.on('error', () => undefined);
    socket.write(`CONNECT a.echo.example:${echo.port} HTTP/1.1\r\nHost: x\r\n${AUTH}\r\n`);
    await new Promise((resolve) => socket.once('data', resolve));
    await new Promise((resolve) => socket.once('close', resolve));
  });
});

describe('addresses that are not public', () => {
  test.each([
    ['a name that resolves to loopback', 'app.example'],
    ['loopback itself', '127.0.0.1'],
    ['loopback in IPv6', '[::1]'],
    ['loopback mapped into IPv6', '[::ffff:127.0.0.1]'],
    ['the metadata service', '169.254.169.254'],
    ['the metadata service behind the NAT64 of the network', '[2a00:64::a9fe:a9fe]'],
  ])('are rejected: %s', async (_, host) => {
    await start({ denyPrivate: true, nat64Prefixes: ['2a00:64::/96'], allow: [`${host}:${app.port}`] });
    const text = await raw(`CONNECT ${host}:${app.port} HTTP/1.1\r\nHost: x\r\n${AUTH}\r\n`);
    expect(text).toMatch(/^HTTP\/1\.1 403 /);
    expect(gate.log().at(-1)).toMatchObject({ code: 'destination_denied', reason: 'destination_not_public' });
  });
});

test('the gate’s own ports cannot be reached through it, even if the list names them and private addresses are allowed', async () => {
  const adminPort = await findFreePort();
  await start({ allow: [`127.0.0.1:${adminPort}`] }, { admin: { address: `127.0.0.1:${adminPort}` } });
  expect(await raw(`CONNECT 127.0.0.1:${adminPort} HTTP/1.1\r\nHost: x\r\n${AUTH}\r\n`)).toMatch(/^HTTP\/1\.1 403 /);
  expect(gate.log().at(-1)).toMatchObject({
    code: 'destination_denied',
    detail: "the destination is one of sidegate's own ports",
  });
});

test('names that a user asks for take no thread of the process, and those of upstreams one thread each', async () => {
  const toRoute = (name: string, host: string): object => ({
    name,
    match: { path: `/${name}` },
    upstream: `http://${host}:${app.port}`,
    connectTimeout: '1s',
    allow: 'anyone',
  });
  gate = await startProxyGate({
    allow: ['*.invalid:443', `localhost:${app.port}`],
    names: 'system',
    proxy: { connectTimeout: '1s' },
    sections: { routes: [toRoute('near', 'localhost'), toRoute('lost', 'lost.invalid')] },
  });
  const lookups = countLookups();
  const get = async (path: string): Promise<number> => (await fetch(`http://127.0.0.1:${gate.port}${path}`)).status;
  const connectTo = async (target: string): Promise<string> =>
    (await raw(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n${AUTH}\r\n`)).slice(9, 12);
  const asked = Array.from({ length: 8 }, (_, index) => connectTo(`h${index}.invalid:443`));
  expect(await get('/near')).toBe(200);
  expect(new Set(await Promise.all(asked))).toEqual(new Set(['502']));
  expect(lookups.total).toBe(0);
  expect(new Set(await Promise.all(Array.from({ length: 8 }, () => get('/lost'))))).toEqual(new Set([503]));
  expect(lookups.most).toBe(1);
});

test('a proxy with TLS does not respond in clear text', async () => {
  await start({ requireTls: true, tls: { certFile: pair.cert, keyFile: pair.key } });
  // In clear text nothing is understood there.
  expect(await raw(`CONNECT x:1 HTTP/1.1\r\nHost: x\r\n${AUTH}\r\n`)).toBe('');
});
