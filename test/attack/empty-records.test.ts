import { readFileSync } from 'node:fs';
import { connect as connectTcp, createServer, type Socket } from 'node:net';
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
/** As many as are allowed at once, and far more. */
const [ALLOWED, FLOOD] = [30, 2_000];
let gate: TestGate | undefined;
const sockets: Socket[] = [];
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await gate?.stop();
});

const start = async (): Promise<TestGate> => {
  const routes = [{ name: 'open', match: { pathPrefix: '/' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' }];
  const listen = { address: '127.0.0.1:0', tls: { certFile: 'tls.crt', keyFile: 'tls.key', http2: true } };
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
  const { tcp, records } = await open(port, { ALPNProtocols: [...protocols, 'http/1.1'] });
  tcp.write(update(records, FLOOD));
  await new Promise((resolve) => tcp.once('close', resolve));
  expect(await countClosed()).toBe(1);
});

test('a connection is closed that hides KeyUpdate in a body, however it arrives', async () => {
  const { port } = await start();
  const { tcp, records } = await open(port);
  tcp.setNoDelay(true).write(records.data(HEAD));
  const flood = Buffer.concat(Array.from({ length: 500 }, () => [records.data('x'), update(records, 1)]).flat());
  // No packet has whole records.
  for (let at = 0; at < flood.length && !tcp.destroyed; at += 50) {
    tcp.write(flood.subarray(at, at + 50));
    await new Promise(setImmediate);
  }
  await until(() => tcp.destroyed);
  expect(await countClosed()).toBe(1);
});

test.each([1, 2])('a connection is closed that splits each KeyUpdate after %i bytes', async (first) => {
  const { port } = await start();
  const { tcp, records } = await open(port);
  tcp.setNoDelay(true);
  const flood = update(records, 500);
  // Each packet has the end of a record, and the start of the next one.
  for (let at = first - 27; at < flood.length && !tcp.destroyed; at += 27) {
    tcp.write(flood.subarray(Math.max(at, 0), at + 27));
    await new Promise((resolve) => setTimeout(resolve, 2));
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
