/** What the first requests take in the smallest container: of idle TLS connections that all send one at once, and of a process that has just started. */
import type { Socket } from 'node:net';
import { connect } from 'node:tls';
import { afterEach, expect, test } from 'vitest';
import { toTlsFiles } from '../support/certificates.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp, useAuthority } from '../support/fixtures.ts';
import { toRoute, until } from '../support/gate.ts';
import { sendDelivery } from '../support/memory-attacks.ts';
import { type CgroupGate, NO_CGROUPS, startGateInCgroup } from '../support/memory-cgroup.ts';

const MIB = 1024 * 1024;
const MEBIBYTES = 96;
const CONNECTIONS = 900;
const CLIENTS = 4;
const app = useApp();
const authority = useAuthority();
const sockets = new Set<Socket>();
let gate: CgroupGate | undefined;
afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  await gate?.stop();
});

/** Resolves once the connection is open, or closed. */
function dial(port: number, index: number): Promise<void> {
  const localAddress = `127.0.0.${66 + (index % CLIENTS)}`;
  return new Promise((resolve) => {
    const socket = connect(
      { port, host: '127.0.0.1', localAddress, rejectUnauthorized: false, ecdhCurve: 'X25519' } as object,
      () => resolve(),
    );
    sockets.add(socket);
    socket
      .on('error', () => undefined)
      .on('close', () => {
        sockets.delete(socket);
        resolve();
      });
  });
}

test.skipIf(NO_CGROUPS !== undefined)(
  `with ${MEBIBYTES} MiB a gate survives idle connections that all send a request at once`,
  {
    timeout: 30_000,
  },
  async () => {
    const open = { name: 'open', match: { path: '/open' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' };
    const listen = { address: '127.0.0.1:0', tls: { certFile: 'tls.crt', keyFile: 'tls.key' } };
    const files = toTlsFiles(authority.issue('server', 'DNS:localhost'));
    gate = await startGateInCgroup(MEBIBYTES, { routes: [toRoute(app.port), open], listen }, files);
    const running = gate;
    // One after the other, and with a small key share: the garbage of more would make the gate close connections that are idle.
    for (let index = 0; index < CONNECTIONS; index++) await dial(running.port, index);
    // As many as heads for them fit into the heap.
    expect(sockets.size).toBeGreaterThan(CONNECTIONS / 3);
    for (const socket of sockets) socket.write('GET /open HTTP/1.1\r\nHost: a\r\n\r\n');
    await until(async () => !running.isAlive() || (await sendDelivery(running.port, makeDelivery(), true)) === 200);
    expect({ alive: running.isAlive(), oomKills: running.oomKills() }).toEqual({ alive: true, oomKills: 0 });
  },
);

test.skipIf(NO_CGROUPS !== undefined)(
  `with ${MEBIBYTES} MiB a gate takes little memory to compile what the first requests use`,
  {
    timeout: 60_000,
  },
  async () => {
    gate = await startGateInCgroup(MEBIBYTES, { routes: [toRoute(app.port)] });
    const { port, peak } = gate;
    await deliver(port, 400);
    const before = peak();
    // V8 compiles a function after 400 calls or more.
    await deliver(port, 400);
    expect(peak() - before).toBeLessThan(12 * MIB);
  },
);

/** Sends deliveries, several at the same time; all are handled. */
async function deliver(port: number, count: number): Promise<void> {
  for (let sent = 0; sent < count; sent += CLIENTS) {
    const statuses = await Promise.all(Array.from({ length: CLIENTS }, () => sendDelivery(port, makeDelivery())));
    expect(new Set(statuses)).toEqual(new Set([200]));
  }
}
