import { readFileSync } from 'node:fs';
import { connect as connectHttp2 } from 'node:http2';
import { get } from 'node:https';
import { connect as connectTcp, createServer, type Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { type ConnectionOptions, connect, createServer as createTlsServer, type TLSSocket } from 'node:tls';
import { afterEach, expect, onTestFinished, test } from 'vitest';
import { readPair, toTlsFiles } from '../support/certificates.ts';
import { useApp, useAuthority } from '../support/fixtures.ts';
import { startGate, type TestGate, until } from '../support/gate.ts';
import { openSender, sendTo, toResolve } from '../support/sender.ts';
import { findSecret, RECORD_CIPHER, TlsRecords } from '../support/tls-records.ts';

const app = useApp();
const authority = useAuthority();
const pair = authority.issue('local', 'DNS:localhost,DNS:acme.example');
/** Of 27 bytes each: as many as are allowed at once, and far more. */
const [ALLOWED, FLOOD] = [30, 5_000];
let gate: TestGate | undefined;
const sockets: Socket[] = [];
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await gate?.stop();
});

const start = async (trustedProxies: readonly string[] = []): Promise<TestGate> => {
  const routes = [{ name: 'open', match: { pathPrefix: '/' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' }];
  const listen = { address: '127.0.0.1:0', trustedProxies, tls: { certFile: 'tls.crt', keyFile: 'tls.key', http2: true } };
  gate = await startGate({ routes, listen }, undefined, toTlsFiles(pair));
  return gate;
};
const countClosed = (): Promise<number | undefined> | undefined =>
  gate?.metric('sidegate_limit_hits_total{limit="empty_records"}');

/** A connection below whose TLS own records can be written. */
async function open(
  port: number,
  options: ConnectionOptions = {},
): Promise<{ tcp: Socket; tls: TLSSocket; records: TlsRecords }> {
  const tcp = connectTcp(port, '127.0.0.1');
  sockets.push(tcp.on('error', () => undefined));
  const only = { minVersion: 'TLSv1.3', ciphers: RECORD_CIPHER } as const;
  const tls = connect({ socket: tcp, ca: readFileSync(authority.ca), servername: 'localhost', ...only, ...options });
  tls.on('error', () => undefined);
  const secret = findSecret(tls, 'CLIENT');
  await new Promise((resolve) => tls.once('secureConnect', resolve));
  // OpenSSL's last bytes of the handshake are written now.
  await new Promise(setImmediate);
  return { tcp, tls, records: new TlsRecords(secret(), 0) };
}
const update = (records: TlsRecords, count: number): Buffer =>
  Buffer.concat(Array.from({ length: count }, () => records.keyUpdate()));
const HEAD = 'POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n';

test.each([
  ['before any request', []],
  ['with HTTP/2', ['h2']],
])('a connection is closed that floods KeyUpdate %s', async (_name, protocols) => {
  const { port } = await start();
  const { tcp, tls, records } = await open(port, { ALPNProtocols: [...protocols, 'http/1.1'] });
  // A connection that is not read does not report its end.
  tls.resume();
  tcp.write(update(records, FLOOD));
  await new Promise((resolve) => tcp.once('close', resolve));
  expect(await countClosed()).toBe(1);
});

test('a connection is closed that hides KeyUpdate in a body, however it arrives', async () => {
  const { port } = await start();
  const { tcp, records } = await open(port);
  tcp.setNoDelay(true).write(records.data(HEAD.replace('1000', '9000')));
  const flood = Buffer.concat(Array.from({ length: 3_000 }, () => [records.data('x'), update(records, 1)]).flat());
  // No packet has whole records.
  for (let at = 0; at < flood.length && !tcp.destroyed; at += 500) {
    tcp.write(flood.subarray(at, at + 500));
    await new Promise(setImmediate);
  }
  await until(() => tcp.destroyed);
  expect(await countClosed()).toBe(1);
});

test('some KeyUpdates, small records and records that arrive byte by byte are served', async () => {
  const { port } = await start();
  const { tcp, tls, records } = await open(port);
  tcp.setNoDelay(true).write(records.data(HEAD.slice(0, -2)));
  tcp.write(update(records, ALLOWED));
  for (const byte of records.data('\r\n')) tcp.write(Buffer.of(byte));
  tcp.write(Buffer.concat(Array.from({ length: 1_000 }, () => records.data('x'))));
  const text = await new Promise<string>((resolve) => tls.once('data', (chunk) => resolve(String(chunk))));
  expect(text).toContain('200 OK');
  expect(app.received.at(-1)?.body.length).toBe(1_000);
  expect(await countClosed()).toBe(0);
});

test('many small records of a proxy are served: they are those of many clients', async () => {
  const { port } = await start(['127.0.0.1']);
  const { tcp, tls, records } = await open(port);
  tcp.write(records.data(HEAD.replace('1000', '20000')));
  tcp.write(Buffer.concat(Array.from({ length: 20_000 }, () => records.data('x'))));
  const text = await new Promise<string>((resolve) => tls.once('data', (chunk) => resolve(String(chunk))));
  expect(text).toContain('200 OK');
  expect(await countClosed()).toBe(0);
});

test.each(['http/1.1', 'h2'])('a client that pauses gets the whole of a large response over %s', async (protocol) => {
  const size = 32 * 1024 * 1024;
  app.handler = (_request, response) => void response.end(Buffer.alloc(size));
  const { port } = await start();
  const url = `https://localhost:${port}`;
  const ca = readFileSync(authority.ca);
  let body: Readable;
  if (protocol === 'h2') {
    const session = connectHttp2(url, { ca });
    onTestFinished(() => session.destroy());
    body = session.request({ ':path': '/' });
  } else
    body = await new Promise<Readable>((resolve) => {
      get(url, { ca, agent: false }, resolve);
    });
  // Meanwhile the buffers of the kernel fill up.
  await until(() => app.received.length > 0);
  await new Promise((resolve) => setTimeout(resolve, 300));
  let length = 0;
  for await (const chunk of body) length += (chunk as Buffer).length;
  expect(length).toBe(size);
});

test('the end of a connection without its TLS end is noticed', async () => {
  const { port } = await start();
  const { tcp } = await open(port);
  tcp.end();
  await new Promise((resolve) => tcp.once('close', resolve));
  expect(await until(async () => (await gate?.metric('sidegate_connections')) === 0)).toBe(true);
});

test('an attempt ends if the endpoint floods KeyUpdate', async () => {
  const server = createTlsServer({ ...readPair(pair), ciphers: RECORD_CIPHER, minVersion: 'TLSv1.3' });
  const listener = createServer((tcp) => {
    sockets.push(tcp.on('error', () => undefined));
    const secret = findSecret(server, 'SERVER');
    server.once('secureConnection', (tls: TLSSocket) => {
      // Two session tickets were sent.
      const records = new TlsRecords(secret(), 2);
      tls.on('error', () => undefined).once('data', () => setImmediate(() => tcp.write(update(records, FLOOD))));
    });
    server.emit('connection', tcp);
  });
  await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void listener.close());
  const { port } = listener.address() as { port: number };
  const sender = openSender({
    ca: readFileSync(authority.ca, 'utf8'),
    resolve: toResolve({ 'acme.example': ['127.0.0.1'] }).resolve,
  });
  const result = await sendTo(sender, { url: `https://acme.example:${port}/`, timeout: 10_000 });
  expect(result).toMatchObject({ outcome: 'tls', isSent: true, detail: expect.stringContaining('ERR_TLS_EMPTY_RECORDS') });
});
