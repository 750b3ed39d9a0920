/** TLS handshakes that never end, on each port that has TLS: no request, and so no limit on requests, but memory for each. */
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { afterEach, describe, expect, test } from 'vitest';
import { makeAuthority, readPair, toTlsFiles } from '../support/certificates.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp, useFolder } from '../support/fixtures.ts';
import { toRoute, until } from '../support/gate.ts';
import { sendDelivery } from '../support/memory-attacks.ts';
import { type CgroupGate, NO_CGROUPS, startGateInCgroup } from '../support/memory-cgroup.ts';
import { makeEntry } from '../support/users.ts';

const MEBIBYTES = 96;
const FLOOD_MS = 5_000;
/** Two clients, as one may have only half of the connections. */
const ADDRESSES = ['127.0.0.3', '127.0.0.4'];
/** Begun at once. */
const BATCH = 256;
/** A record of 16,383 bytes that begins a ClientHello, and most of it. */
const BEGUN = Buffer.concat([Buffer.from('1603013fff01003ffb0303', 'hex'), Buffer.alloc(16_000)]);

const app = useApp();
const folder = useFolder();
let gate: CgroupGate | undefined;
const sockets = new Set<Socket>();
afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  await gate?.stop();
});

/** Begins handshakes as fast as the gate accepts connections, and leaves it to the gate to close them. */
async function flood(port: number, isAlive: () => boolean): Promise<void> {
  const end = performance.now() + FLOOD_MS;
  let count = 0;
  const run = async (): Promise<void> => {
    while (performance.now() < end && isAlive())
      await new Promise<void>((resolve) => {
        const socket = connect({ port, host: '127.0.0.1', localAddress: ADDRESSES[count++ % 2] }, () => {
          socket.write(BEGUN);
          resolve();
        });
        socket.on('error', () => resolve());
        sockets.add(socket.once('close', () => sockets.delete(socket)));
      });
  };
  await Promise.all(Array.from({ length: BATCH }, run));
}

/** A ClientHello of the largest size that OpenSSL takes, without its last bytes, in records of 16 KiB. */
const LARGE = (() => {
  const message = Buffer.concat([Buffer.from('0101ffb80303', 'hex'), Buffer.alloc(130_900, 'r')]);
  const records = Array.from({ length: 8 }, (_, index) => message.subarray(index * 16_384, (index + 1) * 16_384));
  return Buffer.concat(records.flatMap((record) => [Buffer.from([22, 3, 1, record.length >> 8, record.length & 255]), record]));
})();
const CONNECTIONS = 500;
const SILENT = 400;
/** As many certificates as OpenSSL takes, and as many as one handshake may have here. */
const LARGE_CHAIN = 200;
const SMALL_CHAIN = 26;
/** Withheld from the end of the client's last flight. */
const WITHHELD_BYTES = 20;

const open = async (port: number, localAddress: string): Promise<Socket> => {
  const socket = connect({ port, host: '127.0.0.1', localAddress });
  socket.on('error', () => undefined);
  sockets.add(socket.once('close', () => sockets.delete(socket)));
  await new Promise<void>((resolve) => {
    socket.once('connect', resolve);
    socket.once('close', () => resolve());
  });
  return socket;
};

/** A connection that passes on all but the end of what follows the first flight. */
function withhold(socket: Socket): Duplex {
  let flights = 0;
  const duplex = new Duplex({
    read: () => undefined,
    writev(chunks, done) {
      const bytes = Buffer.concat(chunks.map(({ chunk }) => chunk as Buffer));
      socket.write(flights++ === 0 ? bytes : bytes.subarray(0, -WITHHELD_BYTES));
      done();
    },
  });
  socket.on('data', (chunk) => duplex.push(chunk));
  return duplex;
}

/** The ClientHello of Node. */
function recordHello(): Promise<Buffer> {
  return new Promise((resolve) => {
    const socket = new Duplex({ read: () => undefined, write: (chunk: Buffer) => resolve(chunk) });
    connectTls({ socket: socket as Socket, rejectUnauthorized: false }).on('error', () => undefined);
  });
}

interface Chain {
  readonly cert: Buffer;
  readonly key: Buffer;
}

/** Resolves once the handshake is over, or the gate has the chain without its end, or the gate has closed the connection. */
async function shake(socket: Socket, chain: Chain, isWithheld: boolean): Promise<void> {
  const tls: TLSSocket = connectTls({
    ...chain,
    socket: isWithheld ? (withhold(socket) as Socket) : socket,
    rejectUnauthorized: false,
  });
  tls.on('error', () => undefined);
  await new Promise<void>((resolve) => {
    tls.once('secureConnect', resolve);
    tls.once('close', () => resolve());
    socket.once('close', () => resolve());
  });
}

const toAddress = (index: number): string => `127.0.0.${3 + (index % 3)}`;

describe.skipIf(NO_CGROUPS !== undefined)(`a gate of ${MEBIBYTES} MiB`, { timeout: 120_000 }, () => {
  test.each(['port', 'proxyPort'])('survives a flood of handshakes that never end on its %s', async (name) => {
    const pair = makeAuthority(folder, 'root').issue('server', 'DNS:localhost');
    const tls = { certFile: 'tls.crt', keyFile: 'tls.key' };
    const sections = {
      routes: [toRoute(app.port)],
      listen: { address: '127.0.0.1:0', tls },
      proxy: { address: '127.0.0.1:0', tls, allow: ['app.example:80'], basic: { realm: 'egress', users: { file: 'users' } } },
    };
    const running = await startGateInCgroup(MEBIBYTES, sections, { ...toTlsFiles(pair), users: makeEntry('Aladdin', 'open') });
    gate = running;
    const port = Number(running.log().find(({ msg }) => msg === 'listening')?.[name]);
    await flood(port, running.isAlive);
    expect({ alive: running.isAlive(), oomKills: running.oomKills() }).toEqual({ alive: true, oomKills: 0 });
    expect(await sendDelivery(running.port, makeDelivery(), true)).toBe(200);
  });

  const authority = makeAuthority(folder, 'clients');
  const server = authority.issue('local', 'DNS:localhost');
  const client = readPair(makeAuthority(folder, 'strangers').issue('client', 'DNS:client.example'));
  const start = async (tls: Readonly<Record<string, string>> = {}): Promise<CgroupGate> => {
    const listen = { address: '127.0.0.1:0', tls: { certFile: 'tls.crt', keyFile: 'tls.key', ...tls } };
    const files = { ...toTlsFiles(server), 'ca.crt': readFileSync(authority.ca, 'utf8') };
    gate = await startGateInCgroup(MEBIBYTES, { routes: [toRoute(app.port)], listen }, files);
    return gate;
  };
  const expectServed = async (running: CgroupGate): Promise<void> => {
    expect({ alive: running.isAlive(), oomKills: running.oomKills() }).toEqual({ alive: true, oomKills: 0 });
    expect(await until(async () => (await sendDelivery(running.port, makeDelivery(), true)) === 200)).toBe(true);
  };

  test('closes connections with a large ClientHello, and serves others meanwhile', async () => {
    const running = await start();
    const opened = await Promise.all(Array.from({ length: CONNECTIONS }, (_, index) => open(running.port, toAddress(index))));
    for (const socket of opened) socket.write(LARGE);
    await expectServed(running);
    await until(() => sockets.size === 0);
  });

  test('serves others while clients send nothing after their ClientHello', async () => {
    const running = await start();
    const hello = await recordHello();
    // At the address of the honest client, as behind a balancer: limits for each client do not help it.
    const opened = await Promise.all(Array.from({ length: SILENT }, () => open(running.port, '127.0.0.1')));
    for (const socket of opened) socket.write(hello);
    expect(await sendDelivery(running.port, makeDelivery(), true, { host: '127.0.0.1', from: '127.0.0.1' })).toBe(200);
    // It did not wait for all of them.
    expect(sockets.size).toBeGreaterThan(SILENT / 2);
  });

  test.each([
    ['a large chain, of which the end is missing', LARGE_CHAIN, true],
    ['a large chain', LARGE_CHAIN, false],
    ['a chain, of which the end is missing', SMALL_CHAIN, true],
    ['a chain', SMALL_CHAIN, false],
  ])('serves others while clients present %s', async (_name, certificates, isWithheld) => {
    const running = await start({ clientCaFile: 'ca.crt', clientCertificate: 'request' });
    const chain = { key: client.key, cert: Buffer.concat(Array.from({ length: certificates }, () => client.cert)) };
    const pending: Promise<void>[] = [];
    for (let index = 0; index < CONNECTIONS && running.isAlive(); index++)
      pending.push(shake(await open(running.port, toAddress(index)), chain, isWithheld));
    await expectServed(running);
    if (isWithheld) return;
    await Promise.all(pending);
    await expectServed(running);
    await expectServed(running);
  });
});
