/** Receivers whose TLS would cost the process its CPU or its memory. */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { type AddressInfo, connect, createServer as createTcpServer, type Server } from 'node:net';
import { join } from 'node:path';
import type { TLSSocket, TlsOptions } from 'node:tls';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createEgressProxy } from '../../src/http/client/proxy-tunnel.ts';
import { NO_PRESSURE } from '../../src/http/server/memory-guard.ts';
import { readPair } from '../support/certificates.ts';
import { makeFolder, useAuthority } from '../support/fixtures.ts';
import { until } from '../support/gate.ts';
import { openSender, sendTo, toResolve } from '../support/sender.ts';

const authority = useAuthority();
const pair = readPair(authority.issue('receiver', 'DNS:acme.example'));
const { resolve } = toResolve({ 'acme.example': ['127.0.0.1'] });
/** Certificates that nobody needs, of 450 bytes: as many as OpenSSL takes, and as many as are allowed. */
const [MANY, SOME] = [200, 40];
const ca = readFileSync(authority.ca, 'utf8');
const open = (over: Parameters<typeof openSender>[0] = {}) => openSender({ resolve, ca, ...over });

/** A receiver that responds 200; `onRequest` gets its connection first. */
const listen = async (options: TlsOptions, onRequest: (socket: TLSSocket) => unknown = () => undefined) => {
  const server = createServer({ ...pair, ...options }, async (request, response) => {
    await onRequest(request.socket as TLSSocket);
    response.end();
  });
  server.on('secureConnection', (socket) => socket.on('error', () => undefined));
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  return { server, url: `https://acme.example:${(server.address() as AddressInfo).port}/` };
};

test.each<[string, TlsOptions]>([
  ['DHE with TLS 1.2, whose group the receiver chooses', { ciphers: 'DHE', dhparam: 'auto', maxVersion: 'TLSv1.2' }],
  ['a finite field with TLS 1.3', { ecdhCurve: 'ffdhe2048' }],
])('a receiver that offers only %s gets no connection', async (_name, options) => {
  const rsa = readPair(authority.issue('rsa', 'DNS:acme.example', 2, ['-newkey', 'rsa:2048']));
  const { url } = await listen({ ...rsa, ...options });
  expect(await sendTo(open(), { url })).toMatchObject({ outcome: 'tls', isSent: false });
});

test('a receiver cannot ask for another handshake', async () => {
  let handshakes = 0;
  const { url } = await listen({ maxVersion: 'TLSv1.2' }, async (socket) => {
    socket.renegotiate({}, () => handshakes++);
    await new Promise((done) => setImmediate(done));
  });
  const sender = open();
  for (let i = 0; i < 2; i++) expect((await sendTo(sender, { url })).outcome).toBe('delivered');
  expect(handshakes).toBe(0);
});

test.each<[string, TlsOptions]>([
  ['TLS 1.2', { maxVersion: 'TLSv1.2' }],
  ['TLS 1.3', {}],
  ['TLS 1.3 and P-384', { ecdhCurve: 'P-384' }],
  ['RSA and TLS 1.2', { maxVersion: 'TLSv1.2', ciphers: 'ECDHE-RSA-AES128-GCM-SHA256' }],
])('a receiver with %s gets its delivery', async (name, options) => {
  const rsa = readPair(authority.issue('rsa', 'DNS:acme.example', 2, ['-newkey', 'rsa:2048']));
  const { url } = await listen({ ...(name.startsWith('RSA') && rsa), ...options });
  expect((await sendTo(open(), { url })).outcome).toBe('delivered');
});

const withExtra = (count: number): TlsOptions => ({ cert: pair.cert.toString().repeat(1 + count) });

const PASSED_BYTES = 40_000;
/** Passes connections on to `server`, but only the first bytes that it sends: the handshakes do not end. */
const withhold = async (server: Server): Promise<string> => {
  const relay = createTcpServer((socket) => {
    const { port } = server.address() as AddressInfo;
    const upstream = connect(port, '127.0.0.1');
    socket.on('data', (chunk) => upstream.write(chunk)).on('error', () => undefined);
    let left = PASSED_BYTES;
    upstream.on('data', (chunk) => {
      socket.write(chunk.subarray(0, left));
      left = Math.max(0, left - chunk.length);
    });
    upstream.on('error', () => undefined);
    socket.on('close', () => upstream.destroy());
  });
  await new Promise<void>((listening) => relay.listen(0, '127.0.0.1', listening));
  onTestFinished(() => void relay.close());
  return `https://acme.example:${(relay.address() as AddressInfo).port}/`;
};

describe('a receiver that presents far more certificates than it needs', () => {
  const TOO_LARGE = { outcome: 'tls', isSent: false, detail: 'the TLS handshake failed (ERR_TLS_HANDSHAKE_TOO_LARGE)' };
  const VERSIONS = ['TLSv1.2', 'TLSv1.3'] as const;

  test.each(VERSIONS)('gets no delivery over %s', async (maxVersion) => {
    const { url } = await listen({ ...withExtra(MANY), maxVersion });
    expect(await sendTo(open(), { url })).toMatchObject(TOO_LARGE);
  });

  test.each(VERSIONS)('loses its connection before the end of the handshake over %s', async (maxVersion) => {
    const { server } = await listen({ ...withExtra(MANY), maxVersion });
    const { duration, ...result } = await sendTo(open(), { url: await withhold(server), connectTimeout: 10_000 });
    expect(result).toMatchObject(TOO_LARGE);
    expect(duration).toBeLessThan(5_000);
  });

  test('keeps its connection if they are some, unless memory is tight', async () => {
    const memory = { ...NO_PRESSURE, isTight: false };
    const { url, server } = await listen(withExtra(SOME));
    let connections = 0;
    server.on('secureConnection', () => connections++);
    const sender = open({ memory });
    for (let i = 0; i < 2; i++) expect((await sendTo(sender, { url })).outcome).toBe('delivered');
    expect(connections).toBe(1);
    memory.isTight = true;
    await until(async () => (await countOpen(server)) === 0);
    const detail = 'the TLS handshake failed (ERR_TLS_HANDSHAKE_MEMORY)';
    // It says nothing about the receiver.
    expect(await sendTo(sender, { url: `${url}again` })).toMatchObject({ outcome: 'aborted', isSent: false, detail });
  });

  test('is no failure of the endpoint if it is the egress proxy and memory is tight', async () => {
    const proxyPair = readPair(authority.issue('proxy', 'IP:127.0.0.1'));
    const { server } = await listen({ ...proxyPair, cert: proxyPair.cert.toString().repeat(1 + SOME) });
    const proxy = createEgressProxy({ url: `https://127.0.0.1:${(server.address() as AddressInfo).port}` }, ca);
    const sender = open({ proxy, memory: { ...NO_PRESSURE, isTight: true } });
    const detail = 'egress proxy: the connection failed (ERR_TLS_HANDSHAKE_MEMORY)';
    expect(await sendTo(sender, { url: 'https://acme.example/' })).toMatchObject({ outcome: 'aborted', isSent: false, detail });
  });

  test('loses the connection on which it does not respond once memory is tight', async () => {
    const memory = { ...NO_PRESSURE, isTight: false };
    const { url } = await listen(withExtra(SOME), () => {
      memory.isTight = true;
      return new Promise(() => undefined);
    });
    const sender = open({ memory });
    const hanging = sendTo(sender, { url, timeout: 20_000 });
    await until(() => memory.isTight);
    // Another handshake, of a usual receiver.
    const usual = await listen({});
    expect((await sendTo(sender, { url: usual.url })).outcome).toBe('delivered');
    // Repeated without end, it would close connections of others each time.
    expect(await hanging).toMatchObject({ outcome: 'tls', isSent: true });
  });
});

const countOpen = (server: Server): Promise<number> =>
  new Promise((resolve) => server.getConnections((_error, count) => resolve(count)));

test('no connection is kept idle while memory is tight', async () => {
  const memory = { ...NO_PRESSURE, isTight: false };
  const { url, server } = await listen({});
  const sender = open({ memory });
  expect((await sendTo(sender, { url })).outcome).toBe('delivered');
  expect(await countOpen(server)).toBe(1);
  memory.isTight = true;
  await until(async () => (await countOpen(server)) === 0);
  expect((await sendTo(sender, { url })).outcome).toBe('delivered');
  await until(async () => (await countOpen(server)) === 0);
});

test('many handshakes at once end, although others never do, and each is read in turn', async () => {
  // So that eight are read at once.
  const memory = { ...NO_PRESSURE, limit: 96 * 1024 * 1024 };
  const silent = createTcpServer((socket) => void socket.on('error', () => undefined));
  await new Promise<void>((listening) => silent.listen(0, '127.0.0.1', listening));
  const sender = open({ memory });
  const silentUrl = `https://acme.example:${(silent.address() as AddressInfo).port}/`;
  const stop = new AbortController();
  const never = Array.from({ length: 20 }, (_, i) =>
    sendTo(sender, { id: `silent-${i}`, url: silentUrl, timeout: 60_000, connectTimeout: 60_000 }, {}, stop.signal),
  );
  const { url } = await listen({});
  const results = await Promise.all(
    Array.from({ length: 60 }, (_, i) => sendTo(sender, { id: `receiver-${i}`, url, timeout: 20_000, connectTimeout: 20_000 })),
  );
  expect(new Set(results.map(({ outcome }) => outcome))).toEqual(new Set(['delivered']));
  stop.abort();
  await Promise.all(never);
  silent.close();
});

test.each(['TLSv1.2', 'TLSv1.3'] as const)(
  'a receiver with four certificates of RSA 4096 gets its deliveries over %s, and resumes its session',
  async (maxVersion) => {
    const memory = { ...NO_PRESSURE, isTight: true };
    const reused: boolean[] = [];
    const { cert, key, ca: root } = rsaChain();
    const { url, server } = await listen({ cert, key, maxVersion }, (socket) => reused.push(socket.isSessionReused()));
    const sender = open({ memory, ca: root });
    for (let i = 0; i < 2; i++) {
      expect((await sendTo(sender, { url })).outcome).toBe('delivered');
      await until(async () => (await countOpen(server)) === 0);
    }
    expect(reused).toEqual([false, true]);
  },
);

/** Four certificates with one key of RSA 4096; the last one is that of an authority below the root. */
function rsaChain(): { readonly cert: string; readonly key: string; readonly ca: string } {
  const folder = makeFolder();
  const openssl = (...args: string[]): unknown => execFileSync('openssl', args, { cwd: folder, stdio: 'ignore' });
  openssl('req', '-x509', '-newkey', 'rsa:4096', '-nodes', '-days', '2', '-subj', '/CN=0', '-keyout', 'key', '-out', '0');
  for (const name of ['1', '2', '3', '4']) {
    writeFileSync(join(folder, 'extensions'), name === '4' ? 'subjectAltName=DNS:acme.example' : 'basicConstraints=CA:true');
    openssl('req', '-new', '-key', 'key', '-subj', `/CN=${name}`, '-out', 'request');
    const by = ['-CA', String(Number(name) - 1), '-CAkey', 'key', '-CAcreateserial', '-extfile', 'extensions', '-days', '2'];
    openssl('x509', '-req', '-in', 'request', ...by, '-out', name);
  }
  const read = (name: string): string => readFileSync(join(folder, name), 'latin1');
  return { cert: ['4', '3', '2', '1'].map(read).join(''), key: read('key'), ca: read('0') };
}
