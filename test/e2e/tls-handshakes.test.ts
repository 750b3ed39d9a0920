import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { connect as connectTcp, type Socket } from 'node:net';
import { join } from 'node:path';
import { Duplex } from 'node:stream';
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls';
import { afterEach, expect, onTestFinished, test } from 'vitest';
import { toTlsFiles } from '../support/certificates.ts';
import { send } from '../support/client.ts';
import { useApp, useAuthority, useFolder } from '../support/fixtures.ts';
import { startGate, type TestGate, until } from '../support/gate.ts';
import { FRAME, PREFACE, toFrame } from '../support/h2-frames.ts';
import { startGateProcess } from '../support/process.ts';

const GET = 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n';
const app = useApp();
const folder = useFolder();
const authority = useAuthority();
const pair = authority.issue('local', 'DNS:localhost');
let gate: TestGate;
const sockets: Socket[] = [];
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await gate.stop();
});

const start = async (tls: Readonly<Record<string, string>> = {}): Promise<void> => {
  const open = { name: 'open', match: { pathPrefix: '/' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' };
  const listen = { address: '127.0.0.1:0', tls: { certFile: 'tls.crt', keyFile: 'tls.key', ...tls } };
  gate = await startGate({ routes: [open], listen }, undefined, toTlsFiles(pair));
};
const countClosed = (): Promise<number> => gate.metric('sidegate_limit_hits_total{limit="handshake_bytes"}');

/** Resolves with the socket and the response; rejects if the gate closes the connection before. */
const ask = (options: ConnectionOptions = {}, request = GET): Promise<[TLSSocket, string]> =>
  new Promise((resolve, reject) => {
    const at = { port: gate.port, host: '127.0.0.1', ca: readFileSync(authority.ca), servername: 'localhost' };
    const socket = connect({ ...at, ...options });
    sockets.push(socket);
    socket.on('error', reject);
    socket.on('close', () => reject(new Error('closed')));
    socket.on('data', (chunk) => resolve([socket, String(chunk)]));
    socket.write(request);
  });

/** Each byte in its own packet. */
function toSlow(socket: Socket): Duplex {
  socket.setNoDelay(true);
  const send = async (bytes: Buffer): Promise<void> => {
    for (const byte of bytes) {
      socket.write(Buffer.of(byte));
      await new Promise(setImmediate);
    }
  };
  const duplex = new Duplex({
    read: () => undefined,
    write: (chunk: Buffer, _encoding, done) => void send(chunk).then(() => done()),
  });
  socket.on('data', (chunk) => duplex.push(chunk));
  return duplex;
}

/** Sends the ClientHello, and passes all bytes after it to `hold` instead, each time that there are more. */
function holdAfterHello(socket: Socket, hold: (all: Buffer) => void): Duplex {
  const held: Buffer[] = [];
  let isHello = true;
  const duplex = new Duplex({
    read: () => undefined,
    write: (chunk: Buffer, _encoding, done) => {
      if (isHello) socket.write(chunk);
      else {
        held.push(chunk);
        hold(Buffer.concat(held));
      }
      isHello = false;
      done();
    },
  });
  socket.on('data', (chunk) => duplex.push(chunk));
  return duplex;
}

/** All bytes after the ClientHello in one write, once there are as many as `length`. */
function toJoined(socket: Socket, length: number): Duplex {
  return holdAfterHello(socket, (all) => {
    if (all.length > length) socket.write(all);
  });
}

/** A certificate with RSA 4096, and its key. */
function makeLarge(): { readonly cert: Buffer; readonly key: Buffer } {
  const [cert, key] = [join(folder, 'large.crt'), join(folder, 'large.key')];
  const made = [
    'req',
    '-x509',
    '-newkey',
    'rsa:4096',
    '-nodes',
    '-days',
    '2',
    '-subj',
    '/CN=large',
    '-keyout',
    key,
    '-out',
    cert,
  ];
  execFileSync('openssl', made, { stdio: 'ignore' });
  return { cert: readFileSync(cert), key: readFileSync(key) };
}

test('a client is served whose ClientHello has many protocols and arrives byte by byte', async () => {
  await start();
  const ALPNProtocols = [...Array.from({ length: 200 }, (_, index) => `protocol-${index}`), 'http/1.1'];
  const tcp = connectTcp(gate.port, '127.0.0.1');
  sockets.push(tcp);
  const [, text] = await ask({ ALPNProtocols, socket: toSlow(tcp) as Socket });
  expect(text).toContain('200 OK');
  expect(await countClosed()).toBe(0);
});

test('a session is resumed', async () => {
  await start();
  const sessions: Buffer[] = [];
  const [first] = await ask({ maxVersion: 'TLSv1.2' });
  sessions.push(first.getSession() ?? Buffer.alloc(0));
  const [second, text] = await ask({ maxVersion: 'TLSv1.2', session: sessions[0] });
  expect([second.isSessionReused(), text]).toEqual([true, expect.stringContaining('200 OK')]);
});

test('a client with four certificates of RSA 4096 is served, one with forty is not', async () => {
  await start({ clientCaFile: authority.ca, clientCertificate: 'request' });
  const { cert, key } = makeLarge();
  const toChain = (length: number): ConnectionOptions => ({ key, cert: Buffer.concat(Array.from({ length }, () => cert)) });
  expect((await ask(toChain(4)))[1]).toContain('200 OK');
  expect(await countClosed()).toBe(0);
  await expect(ask(toChain(40))).rejects.toThrow();
  expect(await countClosed()).toBe(1);
  expect((await ask())[1]).toContain('200 OK');
});

test('a client is served whose body arrives with the last bytes of its handshake', async () => {
  await start();
  const tcp = connectTcp(gate.port, '127.0.0.1');
  sockets.push(tcp);
  const body = 'x'.repeat(60_000);
  const [, text] = await ask(
    { socket: toJoined(tcp, body.length) as Socket },
    `POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  );
  expect(text).toContain('200 OK');
  expect(await countClosed()).toBe(0);
});

test.each([
  ['says in its first bytes that it is too large', Buffer.from('160301400001004000', 'hex')],
  [
    'has too many small records',
    Buffer.concat([Buffer.from('1603010004010020000', 'hex'), Buffer.alloc(20_000, '160301000100', 'hex')]),
  ],
])('a connection is closed whose ClientHello %s', async (_name, bytes) => {
  await start();
  const socket = connectTcp(gate.port, '127.0.0.1');
  sockets.push(socket.on('error', () => undefined));
  socket.write(bytes);
  await new Promise((resolve) => socket.once('close', resolve));
  expect(await countClosed()).toBe(1);
});

test('a connection has no second handshake', async () => {
  await start();
  const [socket] = await ask({ maxVersion: 'TLSv1.2' });
  const error = await new Promise<Error | null>((resolve) => {
    socket.once('error', resolve);
    socket.renegotiate({}, resolve);
  });
  expect(error?.message).toMatch(/renegotiation/);
});

test('a client that ends its handshake after `headTimeout` neither gets a response nor opens a session, and the process goes on', async () => {
  const open = { name: 'open', match: { pathPrefix: '/' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' };
  const own = await startGateProcess({
    listen: { address: '127.0.0.1:0', tls: { certFile: pair.cert, keyFile: pair.key } },
    limits: { headTimeout: '1s' },
    routes: [open],
  });
  onTestFinished(() => void own.child.kill('SIGKILL'));
  const bare = Array.from({ length: 4 }, () => connectTcp(own.port, '127.0.0.1'));
  sockets.push(...bare);
  const closed = bare.map(
    (socket) => new Promise<void>((resolve) => socket.on('error', () => resolve()).on('close', () => resolve())),
  );
  const held: Buffer[] = [];
  for (const [i, socket] of bare.entries()) {
    const duplex = holdAfterHello(socket, (all) => {
      held[i] = all;
    });
    const tls = connect({ socket: duplex, rejectUnauthorized: false, ALPNProtocols: ['h2'] }).on('error', () => undefined);
    tls.on('secureConnect', () => tls.write(Buffer.concat([PREFACE, toFrame(FRAME.ping, 0, 0, Buffer.alloc(8))])));
  }
  // A gate that responds logs the request; one that closes the connection does not.
  const isLate = (): boolean => own.log().some(({ msg }) => msg === 'request');
  let isClosed = false;
  void Promise.all(closed).then(() => {
    isClosed = true;
  });
  await until(() => isClosed || isLate());
  for (const [i, socket] of bare.entries()) socket.write(held[i] as Buffer);
  await Promise.all(closed);
  expect(isLate()).toBe(false);
  const { text } = await send(own.adminPort, { method: 'GET', path: '/metrics' });
  expect(text).toContain('sidegate_limit_hits_total{limit="head_timeout"} 4');
});
