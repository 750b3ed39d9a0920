import { createHmac, createPublicKey, verify } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer as createTlsServer, type Server as TlsServer } from 'node:https';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { Webhook } from 'standardwebhooks';
import { beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { Secret } from '../../src/core/secret.ts';
import { createEgressProxy } from '../../src/http/client/proxy-tunnel.ts';
import { compileEgressRules } from '../../src/http/dial/endpoint-url.ts';
import type { AttemptResult } from '../../src/provider/attempt/attempt.ts';
import type { SigningKey } from '../../src/provider/endpoints/endpoint.ts';
import { findPublicKey } from '../../src/verify/sign/signing-keys.ts';
import { type Authority, makeAuthority, type Pair } from '../support/certificates.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { useApp, useFolder } from '../support/fixtures.ts';
import { until } from '../support/gate.ts';
import { PROXY_PASSWORD, PROXY_USER, startProxyGate } from '../support/proxy.ts';
import { type Script, startDeafApp, startScriptApp } from '../support/script-app.ts';
import { LOCAL_EGRESS, openSender, SENDER_SECRET, sendTo, toDelivery, toEndpoint, toResolve } from '../support/sender.ts';

const folder = useFolder();
const app = useApp();
const appUrl = (path = '/hooks'): string => `http://127.0.0.1:${app.port}${path}`;
const startScript = async (script: Script): Promise<string> => {
  const scripted = await startScriptApp(script);
  onTestFinished(() => scripted.close());
  return `http://127.0.0.1:${scripted.port}/`;
};
/** What the receiver got last. */
const received = () => {
  const last = app.received.at(-1);
  if (last === undefined) throw new Error('nothing was received');
  return last;
};
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n';

describe('a delivery', () => {
  test('is a POST of the stored bytes, with the headers of Standard Webhooks', async () => {
    const headers = [['Authorization', 'Bearer abc']] as const;
    const metadata = '{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","tracestate":"a=1"}';
    const before = Math.floor(Date.now() / 1000);
    const result = await sendTo(openSender(), { url: appUrl('/hooks?a=%2F'), headers }, { metadata });
    expect(result).toEqual({
      outcome: 'delivered',
      isSent: true,
      status: 200,
      startedAt: expect.any(Number),
      duration: expect.any(Number),
    });
    const { method, url, rawHeaders, body } = received();
    expect([method, url]).toEqual(['POST', '/hooks?a=%2F']);
    expect(body).toEqual(toDelivery().body);
    const seconds = Number(received().headers['webhook-timestamp']);
    expect(seconds).toBeGreaterThanOrEqual(before);
    const mac = createHmac('sha256', SENDER_SECRET).update(`msg_1.${seconds}.`).update(body).digest('base64');
    expect(rawHeaders).toEqual([
      ...['Host', `127.0.0.1:${app.port}`, 'User-Agent', 'sidegate/1.2.3', 'Accept', '*/*', 'Content-Type', 'application/json'],
      ...['Authorization', 'Bearer abc', 'Content-Length', String(body.length), 'Webhook-Id', 'msg_1'],
      ...['Webhook-Timestamp', String(seconds), 'Webhook-Signature', `v1,${mac}`],
      ...['traceparent', '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', 'tracestate', 'a=1'],
    ]);
  });

  test('is verified by the library of Standard Webhooks, with the old and the new secret during a rotation', async () => {
    const [current, old] = [Buffer.alloc(32, 1), Buffer.alloc(24, 2)];
    const keys: SigningKey[] = [
      { version: 'v1', secret: new Secret(current) },
      { version: 'v1', secret: new Secret(old), expiresAt: Date.now() + 60_000 },
      { version: 'v1', secret: new Secret(Buffer.alloc(24, 3)), expiresAt: Date.now() - 1 },
    ];
    expect((await sendTo(openSender(), { url: appUrl(), keys })).outcome).toBe('delivered');
    const { headers, body } = received();
    for (const secret of [current, old])
      expect(new Webhook(secret.toString('base64')).verify(body, headers as Record<string, string>)).toBeTruthy();
    expect(String(headers['webhook-signature']).split(' ')).toHaveLength(2);
    expect(() => new Webhook(Buffer.alloc(24, 3).toString('base64')).verify(body, headers as Record<string, string>)).toThrow(
      'No matching signature',
    );
  });

  test('carries a v1a signature that node:crypto verifies', async () => {
    const key: SigningKey = { version: 'v1a', secret: new Secret(Buffer.alloc(32, 5)) };
    await sendTo(openSender(), { url: appUrl(), keys: [key, { version: 'v1', secret: new Secret(SENDER_SECRET) }] });
    const { headers, body } = received();
    const [asymmetric = '', symmetric = ''] = String(headers['webhook-signature']).split(' ');
    expect(symmetric).toMatch(/^v1,/);
    const raw = Buffer.from(findPublicKey(key)?.slice('whpk_'.length) ?? '', 'base64');
    const publicKey = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x: raw.toString('base64url') }, format: 'jwk' });
    const signed = Buffer.concat([Buffer.from(`msg_1.${headers['webhook-timestamp']}.`), body]);
    expect(verify(null, signed, publicKey, Buffer.from(asymmetric.slice('v1a,'.length), 'base64'))).toBe(true);
  });

  test('has the same body and ID in each attempt, but the time and the signature of the attempt', async () => {
    const clock = new FakeClock(1_800_000_000_000);
    const sender = openSender({ clock });
    await sendTo(sender, { url: appUrl() });
    clock.pass(5_000);
    await sendTo(sender, { url: appUrl() });
    const [first, second] = app.received;
    expect(first?.body).toEqual(second?.body);
    expect(first?.headers['webhook-id']).toBe(second?.headers['webhook-id']);
    expect([first, second].map((one) => one?.headers['webhook-timestamp'])).toEqual(['1800000000', '1800000005']);
    expect(first?.headers['webhook-signature']).not.toBe(second?.headers['webhook-signature']);
  });

  test.each([0, 1, 16_384, 16_385, 1_048_576])('arrives complete with a body of %i bytes', async (length) => {
    const body = Buffer.alloc(length, 'x');
    expect((await sendTo(openSender(), { url: appUrl() }, { body })).outcome).toBe('delivered');
    expect(received().body.equals(body)).toBe(true);
  });

  test.each([
    ['an ID that would add a header', {}, { event: 'msg\r\nX: 1' }],
    ['no key', { keys: [] }, {}],
    ['only expired keys', { keys: [{ version: 'v1' as const, secret: new Secret(SENDER_SECRET), expiresAt: 1 }] }, {}],
    ['a key of the wrong length', { keys: [{ version: 'v1a' as const, secret: new Secret(Buffer.alloc(3)) }] }, {}],
    ['a header that is not allowed', { headers: [['Host', 'evil.example']] as const }, {}],
    ['an http URL without permission', { url: 'http://8.8.8.8/' }, {}],
  ])('is not sent with %s', async (_, endpoint, delivery) => {
    const sender = openSender({ egress: { allowHttp: _.includes('http URL') === false } });
    const result = await sendTo(sender, { url: appUrl(), ...endpoint }, delivery);
    expect(result).toMatchObject({ outcome: 'blocked', isSent: false });
    expect(result.detail).toBeTruthy();
    expect(app.received).toHaveLength(0);
  });
});

describe('a response', () => {
  test.each([
    [201, 'delivered'],
    [302, 'redirect'],
    [400, 'client_error'],
    [410, 'gone'],
    [429, 'throttled'],
    [503, 'server_error'],
  ] as const)('with %i is %s', async (status, outcome) => {
    app.handler = (_request, response) => response.writeHead(status, { Location: appUrl('/other'), 'Retry-After': '7' }).end();
    const result = await sendTo(openSender(), { url: appUrl() });
    expect(result).toMatchObject({ outcome, status, isSent: true });
    expect(result.retryAfter).toBe(outcome === 'delivered' ? undefined : 7_000);
    expect(app.received).toHaveLength(1);
  });

  test('that never comes is a timeout, which starts with the attempt', async () => {
    app.handler = () => undefined;
    const result = await sendTo(openSender(), { url: appUrl(), timeout: 200 });
    expect(result).toMatchObject({ outcome: 'timeout', isSent: true, detail: 'no response within 200 ms' });
    expect(result.duration).toBeGreaterThanOrEqual(200);
    expect(result.duration).toBeLessThan(1_500);
  });

  test('counts if it came in time, though the process was too busy to read it', async () => {
    const clock = new FakeClock();
    let respond: () => void = () => undefined;
    app.handler = (_request, response) => {
      respond = () => response.end();
    };
    const sender = openSender({ clock });
    const pending = sendTo(sender, { url: appUrl() });
    await until(() => app.received.length === 1);
    respond();
    clock.pass(10_000);
    await clock.advance(100);
    expect(await pending).toMatchObject({ outcome: 'delivered' });
    // A response that is still missing is a timeout all the same.
    app.handler = () => undefined;
    const missing = sendTo(sender, { url: appUrl() });
    await until(() => app.received.length === 2);
    clock.pass(10_000);
    await clock.advance(100);
    expect(await missing).toMatchObject({ outcome: 'timeout', isSent: true });
  });

  test('ends the attempt early if the attempt is canceled', async () => {
    const controller = new AbortController();
    app.handler = () => controller.abort();
    const result = await sendTo(openSender(), { url: appUrl() }, {}, controller.signal);
    expect(result).toMatchObject({ outcome: 'aborted', isSent: true });
    expect(await sendTo(openSender(), { url: appUrl() }, {}, controller.signal)).toMatchObject({
      outcome: 'aborted',
      isSent: false,
    });
    expect(app.received).toHaveLength(1);
  });
});

describe('connections', () => {
  /** Otherwise one must stay open for a moment first. */
  const KEPT = OK.replace('\r\n', '\r\nKeep-Alive: timeout=60\r\n');
  const countConnections = async (script: (socket: Socket, connection: number) => void) => {
    const scripted = await startScriptApp(script);
    onTestFinished(() => scripted.close());
    return { url: `http://127.0.0.1:${scripted.port}/`, connections: () => scripted.connections };
  };
  const replying = (text: string) => (socket: Socket) => socket.on('data', () => socket.write(text));

  test('are reused, one for each attempt at once', async () => {
    const { url, connections } = await countConnections(replying(KEPT));
    const sender = openSender();
    for (let i = 0; i < 5; i++) expect((await sendTo(sender, { url })).outcome).toBe('delivered');
    expect(connections()).toBe(1);
    await Promise.all([1, 2, 3].map(() => sendTo(sender, { url })));
    expect(connections()).toBe(3);
  });

  test('are not shared by endpoints', async () => {
    const { url, connections } = await countConnections(replying(OK));
    const sender = openSender();
    await sendTo(sender, { url, id: 'a' });
    await sendTo(sender, { url, id: 'b' });
    expect(connections()).toBe(2);
  });

  test.each([
    ['the response says so', 'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n'],
    ['the response is HTTP/1.0', 'HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n'],
  ])('are closed if %s', async (_, text) => {
    const { url, connections } = await countConnections(replying(text));
    const sender = openSender();
    for (let i = 0; i < 2; i++) expect((await sendTo(sender, { url })).outcome).toBe('delivered');
    expect(connections()).toBe(2);
  });

  test('are closed when they were idle for 4 s, or shorter if the endpoint says so', async () => {
    const clock = new FakeClock();
    for (const [text, idle] of [
      [OK, 4_000],
      [OK.replace('\r\n', '\r\nKeep-Alive: timeout=2\r\n'), 1_000],
    ] as const) {
      const { url, connections } = await countConnections(replying(text));
      const sender = openSender({ clock });
      await sendTo(sender, { url });
      await clock.advance(idle - 100);
      await sendTo(sender, { url });
      expect(connections()).toBe(1);
      await clock.advance(idle + 100);
      await sendTo(sender, { url });
      expect(connections()).toBe(2);
    }
  });

  test('are replaced after five minutes, so that changes of the DNS are followed', async () => {
    const clock = new FakeClock();
    const { url, connections } = await countConnections(replying(KEPT));
    const sender = openSender({ clock });
    for (let minute = 0; minute < 6; minute++) {
      await sendTo(sender, { url });
      clock.pass(3_900);
    }
    expect(connections()).toBe(1);
    for (let i = 0; i < 80; i++) {
      await sendTo(sender, { url });
      clock.pass(3_900);
    }
    expect(connections()).toBe(2);
  });

  test('that died while idle are replaced once, without a failed attempt', async () => {
    // The second request on a connection gets a FIN or a reset instead of a response.
    for (const end of ['end', 'resetAndDestroy'] as const) {
      const { url, connections } = await countConnections((socket) => {
        let requests = 0;
        socket.on('data', () => (++requests === 1 ? socket.write(OK) : socket[end]()));
      });
      const sender = openSender();
      for (let i = 1; i <= 3; i++) {
        expect(await sendTo(sender, { url })).toMatchObject({ outcome: 'delivered' });
        expect(connections()).toBe(i);
      }
    }
  });

  test('that die before the response of a first request fail the attempt', async () => {
    const { url, connections } = await countConnections((socket) => socket.on('data', () => socket.end()));
    expect(await sendTo(openSender(), { url })).toMatchObject({
      outcome: 'reset',
      isSent: true,
      detail: 'the connection was lost (ECONNRESET)',
    });
    expect(connections()).toBe(1);
  });

  test('are closed when their endpoint changes or is gone, and when the sender closes', async () => {
    let closed = 0;
    const { url } = await countConnections((socket) => {
      socket.on('data', () => socket.write(OK));
      socket.on('close', () => closed++);
    });
    const sender = openSender();
    const endpoint = toEndpoint({ url });
    const { signal } = new AbortController();
    await sender.send(toDelivery(), endpoint, signal);
    await sender.send(toDelivery(), { ...endpoint }, signal);
    await until(() => closed === 1);
    sender.retain(new Set(['ep_1']));
    await sender.send(toDelivery(), endpoint, signal);
    await until(() => closed === 2);
    sender.retain(new Set(['other']));
    await until(() => closed === 3);
    await sender.send(toDelivery(), endpoint, signal);
    sender.close();
    await until(() => closed === 4);
    expect(await sender.send(toDelivery(), endpoint, signal)).toMatchObject({ outcome: 'aborted', isSent: false });
  });

  test('follow changed rules at once', async () => {
    const { url, connections } = await countConnections(replying(OK));
    const sender = openSender();
    expect((await sendTo(sender, { url })).outcome).toBe('delivered');
    sender.replace({ rules: compileEgressRules({ allowHttp: true, allowPrivate: [], deny: [] }) });
    expect(await sendTo(sender, { url })).toMatchObject({ outcome: 'blocked', isSent: false });
    sender.replace({ rules: compileEgressRules({ allowHttp: true, allowPrivate: ['127.0.0.1'], deny: [] }) });
    expect((await sendTo(sender, { url })).outcome).toBe('delivered');
    expect(connections()).toBe(2);
  });

  test('that are refused, or never accepted, fail without a request', async () => {
    const free = createServer();
    const port = await new Promise<number>((resolve) =>
      free.listen(0, '127.0.0.1', () => resolve((free.address() as AddressInfo).port)),
    );
    await new Promise((resolve) => free.close(resolve));
    expect(await sendTo(openSender(), { url: `http://127.0.0.1:${port}/` })).toMatchObject({
      outcome: 'connect',
      isSent: false,
      detail: 'the connection failed (ECONNREFUSED)',
    });
    const deaf = await startDeafApp();
    onTestFinished(() => deaf.close());
    const result = await sendTo(openSender(), { url: `http://127.0.0.1:${deaf.port}/`, connectTimeout: 200 });
    expect(result).toMatchObject({ outcome: 'connect', isSent: false, detail: 'no connection within 200 ms' });
  });

  test('are tried at the next address of the name', async () => {
    const { resolve } = toResolve({ 'acme.example': ['127.0.0.9', '127.0.0.1'] });
    const { url } = await countConnections(replying(OK));
    // Nobody listens at the first, as the receiver listens only at 127.0.0.1.
    expect((await sendTo(openSender({ resolve }), { url: url.replace('127.0.0.1', 'acme.example') })).outcome).toBe('delivered');
  });

  test('reach IPv6 addresses', async () => {
    const server = createServer((socket) => socket.on('data', () => socket.end(OK)));
    await new Promise<void>((resolve) => server.listen(0, '::1', resolve));
    onTestFinished(() => {
      server.close();
    });
    const { port } = server.address() as AddressInfo;
    const sender = openSender({ egress: { allowPrivate: ['::1'] } });
    expect(await sendTo(sender, { url: `http://[::1]:${port}/` })).toMatchObject({ outcome: 'delivered' });
  });

  test('wait for the name server at most as long as for the connection', async () => {
    const sender = openSender({ resolve: () => new Promise(() => undefined) });
    expect(await sendTo(sender, { url: 'http://acme.example/', connectTimeout: 200 })).toMatchObject({
      outcome: 'dns',
      isSent: false,
      detail: 'no connection within 200 ms',
    });
    expect(await sendTo(openSender(), { url: 'http://acme.example/' })).toMatchObject({
      outcome: 'dns',
      isSent: false,
      detail: 'acme.example cannot be resolved (ENOTFOUND)',
    });
  });
});

describe('TLS', () => {
  let authority: Authority;
  let other: Authority;
  const listen = async (pair: Pair, options: object = {}): Promise<{ server: TlsServer; url: string; port: number }> => {
    const server = createTlsServer(
      { cert: readFileSync(pair.cert), key: readFileSync(pair.key), ...options },
      (request, response) => {
        const socket = request.socket as TLSSocket;
        const client = socket.getPeerCertificate().subject?.CN ?? 'none';
        response.end(`${socket.servername} ${socket.isSessionReused()} ${client}`);
        seen.push({ servername: String(socket.servername), isResumed: socket.isSessionReused(), client: String(client) });
      },
    );
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => {
      server.close();
      server.closeAllConnections();
    });
    const { port } = server.address() as AddressInfo;
    return { server, url: `https://acme.example:${port}/`, port };
  };
  const seen: { servername: string; isResumed: boolean; client: string }[] = [];
  const { resolve } = toResolve({ 'acme.example': ['127.0.0.1'], 'other.example': ['127.0.0.1'] });
  const open = (over: object = {}) => openSender({ resolve, ca: readFileSync(authority.ca, 'utf8'), ...over });
  let pair: Pair;

  beforeAll(() => {
    authority = makeAuthority(folder, 'ca');
    other = makeAuthority(folder, 'other-ca');
    pair = authority.issue('server', 'DNS:acme.example,IP:127.0.0.1');
  });
  beforeEach(() => {
    seen.length = 0;
  });

  test('is verified by the host name, which the server gets as SNI, though the address is dialled', async () => {
    const { url } = await listen(pair);
    expect(await sendTo(open(), { url })).toMatchObject({ outcome: 'delivered', status: 200 });
    expect(seen).toEqual([{ servername: 'acme.example', isResumed: false, client: 'none' }]);
  });

  test('is verified by the address, without SNI, if the URL has one', async () => {
    const { port } = await listen(pair);
    expect(await sendTo(open(), { url: `https://127.0.0.1:${port}/` })).toMatchObject({ outcome: 'delivered' });
    expect(seen[0]?.servername).toBe('false');
  });

  test('follows changed CAs at once', async () => {
    const { url } = await listen(pair);
    const sender = open();
    const settings = { rules: compileEgressRules(LOCAL_EGRESS) };
    expect((await sendTo(sender, { url })).outcome).toBe('delivered');
    sender.replace({ ...settings, ca: readFileSync(other.ca, 'utf8') });
    expect((await sendTo(sender, { url })).outcome).toBe('tls');
    sender.replace({ ...settings, ca: readFileSync(authority.ca, 'utf8') });
    expect((await sendTo(sender, { url })).outcome).toBe('delivered');
  });

  test('resumes its session on the next connection', async () => {
    const { url, server } = await listen(pair);
    const sender = open();
    for (let i = 0; i < 3; i++) {
      await sendTo(sender, { url });
      await until(() => seen.length === i + 1);
      server.closeIdleConnections();
    }
    expect(seen.map(({ isResumed }) => isResumed)).toEqual([false, true, true]);
  });

  test('keeps a connection alive', async () => {
    let connections = 0;
    const { url, server } = await listen(pair);
    server.on('secureConnection', () => connections++);
    const sender = open();
    for (let i = 0; i < 3; i++) expect((await sendTo(sender, { url })).outcome).toBe('delivered');
    expect(connections).toBe(1);
  });

  const expectTlsFailure = async (result: Promise<AttemptResult>, code: RegExp) => {
    expect(await result).toMatchObject({ outcome: 'tls', isSent: false, detail: expect.stringMatching(code) });
    expect(seen).toHaveLength(0);
  };

  test('fails for another name, another CA, and an expired certificate', async () => {
    const { port } = await listen(pair);
    await expectTlsFailure(sendTo(open(), { url: `https://other.example:${port}/` }), /ERR_TLS_CERT_ALTNAME_INVALID/);
    const foreign = await listen(other.issue('foreign', 'DNS:acme.example'));
    await expectTlsFailure(
      sendTo(open(), { url: foreign.url }),
      /UNABLE_TO_VERIFY_LEAF_SIGNATURE|SELF_SIGNED|UNABLE_TO_GET_ISSUER/,
    );
    const expired = await listen(authority.issue('expired', 'DNS:acme.example', -1));
    await expectTlsFailure(sendTo(open(), { url: expired.url }), /CERT_HAS_EXPIRED/);
    // Without caFile, the CAs of Node count.
    await expectTlsFailure(sendTo(openSender({ resolve }), { url: `https://acme.example:${port}/` }), /UNABLE_TO|SELF_SIGNED/);
  });

  test('fails for TLS 1.1, for plain HTTP, and for a server that says nothing', async () => {
    const old = await listen(pair, { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' });
    await expectTlsFailure(sendTo(open(), { url: old.url }), /ERR_SSL|ECONNRESET/);
    const plain = await startScript((socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'));
    await expectTlsFailure(sendTo(open(), { url: plain.replace('http:', 'https:') }), /ERR_SSL|ECONNRESET/);
    const silent = (await startScript(() => undefined)).replace('http:', 'https:');
    await expectTlsFailure(sendTo(open(), { url: silent, connectTimeout: 300 }), /no connection within 300 ms/);
  });

  test('shows the client certificate of the endpoint', async () => {
    const client = authority.issue('client', 'DNS:sender.example');
    const { url } = await listen(pair, { ca: readFileSync(authority.ca), requestCert: true, rejectUnauthorized: true });
    const clientCertificate = { cert: readFileSync(client.cert, 'utf8'), key: new Secret(readFileSync(client.key)) };
    expect(await sendTo(open(), { url, clientCertificate })).toMatchObject({ outcome: 'delivered' });
    expect(seen[0]?.client).toBe('client');
    expect(await sendTo(open(), { url })).toMatchObject({ outcome: expect.stringMatching(/^(?:tls|reset)$/) });
    const broken = { cert: 'no PEM', key: new Secret(Buffer.from('no PEM')) };
    expect(await sendTo(open(), { url, clientCertificate: broken })).toMatchObject({ outcome: 'blocked', isSent: false });
  });

  describe('through an egress proxy', () => {
    const credentials = { username: PROXY_USER, password: new Secret(Buffer.from(PROXY_PASSWORD)) };
    const startGate = async (allow: readonly string[], tls = false, names = { 'acme.example': ['127.0.0.1'] }) => {
      const sections = tls ? { requireTls: true, tls: { certFile: pair.cert, keyFile: pair.key } } : {};
      const gate = await startProxyGate({ allow, names, proxy: sections });
      onTestFinished(async () => {
        await gate.stop();
      });
      return `${tls ? 'https' : 'http'}://127.0.0.1:${gate.proxyPort}`;
    };
    const ca = (): string => readFileSync(authority.ca, 'utf8');
    const unresolved = toResolve({});

    test.each([false, true])('reaches endpoints with our own forward proxy (TLS to the proxy: %s)', async (isTls) => {
      const { url, port } = await listen(pair);
      const proxyUrl = await startGate([`acme.example:${port}`, `acme.example:${app.port}`], isTls);
      const proxy = createEgressProxy({ url: proxyUrl, ...credentials }, ca());
      const sender = openSender({ proxy, ca: ca(), resolve: unresolved.resolve });
      for (let i = 0; i < 2; i++) expect(await sendTo(sender, { url })).toMatchObject({ outcome: 'delivered' });
      expect(seen.map(({ servername }) => servername)).toEqual(['acme.example', 'acme.example']);
      const plain = { id: 'plain', url: `http://acme.example:${app.port}/x` };
      for (let i = 0; i < 2; i++) expect(await sendTo(sender, plain)).toMatchObject({ outcome: 'delivered' });
      expect(app.received).toHaveLength(2);
      // The proxy resolves the names.
      expect(unresolved.counts).toEqual({});
    });

    test('verifies the endpoint, not only the proxy', async () => {
      const foreign = await listen(other.issue('foreign-2', 'DNS:acme.example'));
      const proxy = createEgressProxy({ url: await startGate([`acme.example:${foreign.port}`]), ...credentials }, ca());
      await expectTlsFailure(sendTo(openSender({ proxy, ca: ca() }), { url: foreign.url }), /UNABLE_TO|SELF_SIGNED/);
    });

    test('reports what the proxy rejects, without credentials', async () => {
      const { url, port } = await listen(pair);
      const proxyUrl = await startGate([`other.example:${port}`]);
      const send = async (username: string) => {
        const proxy = createEgressProxy({ url: proxyUrl, ...credentials, username }, ca());
        return sendTo(openSender({ proxy, ca: ca() }), { url });
      };
      expect(await send(PROXY_USER)).toMatchObject({
        outcome: 'blocked',
        isSent: false,
        detail: 'egress proxy: responded 403: the destination is not allowed',
      });
      expect(await send('nobody')).toMatchObject({ outcome: 'connect', isSent: false, detail: 'egress proxy: responded 407' });
    });

    test('still checks addresses in URLs, which need no name server', async () => {
      const proxy = createEgressProxy({ url: 'http://127.0.0.1:1' }, undefined);
      const sender = openSender({ proxy, egress: { allowPrivate: [] } });
      expect(await sendTo(sender, { url: 'https://10.0.0.1/' })).toMatchObject({ outcome: 'blocked', isSent: false });
      expect(await sendTo(sender, { url: 'https://8.8.8.8/' })).toMatchObject({
        outcome: 'connect',
        isSent: false,
        detail: 'egress proxy: the connection failed (ECONNREFUSED)',
      });
    });

    test.each([
      ['garbage', 'SSH-2.0-x\r\n\r\n', 'the response is malformed: the status line is malformed'],
      ['a huge head', `HTTP/1.1 200 OK\r\nX: ${'x'.repeat(20_000)}`, 'the response is too large'],
      ['bytes that could pass as a response', `HTTP/1.1 200 OK\r\n\r\n${OK}`, 'it sent bytes before the tunnel was used'],
    ])('rejects a proxy that sends %s', async (_, text, problem) => {
      const url = await startScript((socket) => socket.on('data', () => socket.write(text)));
      const sender = openSender({ proxy: createEgressProxy({ url: url.slice(0, -1) }, undefined) });
      expect(await sendTo(sender, { url: 'http://acme.example/' })).toMatchObject({
        outcome: 'connect',
        isSent: false,
        detail: `egress proxy: ${problem}`,
      });
    });
  });
});
