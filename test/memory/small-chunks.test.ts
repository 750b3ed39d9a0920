/** Responses in many small chunks, as of an app that writes a table row by row, with more clients than the gate could buffer them for. */
import { connect as connectHttp2 } from 'node:http2';
import { connect } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { makeAuthority, toTlsFiles } from '../support/certificates.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useFolder, useScriptApp } from '../support/fixtures.ts';
import { type Sections, toRoute } from '../support/gate.ts';
import { sendDelivery } from '../support/memory-attacks.ts';
import { type CgroupGate, NO_CGROUPS, startGateInCgroup } from '../support/memory-cgroup.ts';

const HEAD = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';
const SMALL = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
const MIB = 1_048_576;
/** The chunks of one response to /rows. */
let rows: Buffer = Buffer.alloc(0);
const folder = useFolder();
const app = useScriptApp((socket) => {
  socket.on('data', (bytes) => {
    if (!bytes.includes('GET /rows')) return socket.write(SMALL);
    socket.write(HEAD);
    socket.write(rows);
    return socket.end('0\r\n\r\n');
  });
});
let gate: CgroupGate | undefined;
afterEach(async () => {
  await gate?.stop();
  gate = undefined;
});

/** Rows of `size` bytes, `bytes` in all without the framing. */
function toRows(size: number, bytes: number): Buffer {
  return Buffer.from(`${size.toString(16)}\r\n${'x'.repeat(size)}\r\n`.repeat(bytes / size));
}

async function start(mebibytes: number, sections: Sections, files: Readonly<Record<string, string>> = {}): Promise<CgroupGate> {
  const open = { name: 'open', match: { pathPrefix: '/rows' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' };
  gate = await startGateInCgroup(mebibytes, { ...sections, routes: [open, toRoute(app.port)] }, files);
  return gate;
}

/** The number of bytes of a response with its framing, to a client that reads all of it. */
function readResponse(port: number): Promise<number> {
  const socket = connect({ port, host: '127.0.0.1', localAddress: '127.0.0.3' });
  socket.on('error', () => undefined).on('data', () => undefined);
  socket.write('GET /rows HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
  return new Promise((resolve) => {
    socket.once('close', () => resolve(socket.bytesRead));
  });
}

async function expectAlive(running: CgroupGate, isTls = false): Promise<void> {
  expect({ alive: running.isAlive(), oomKills: running.oomKills() }).toEqual({ alive: true, oomKills: 0 });
  expect(await sendDelivery(running.port, makeDelivery(), isTls)).toBe(200);
}

describe.skipIf(NO_CGROUPS !== undefined)('responses in small chunks', { timeout: 120_000 }, () => {
  test('of 24 bytes reach 60 clients that read, in 96 MiB', async () => {
    rows = toRows(24, 24 * 100_000);
    const running = await start(96, {});
    const sizes = await Promise.all(Array.from({ length: 60 }, () => readResponse(running.port)));
    await expectAlive(running);
    expect(Math.min(...sizes)).toBeGreaterThan(24 * 100_000);
    expect(running.workingSet()).toBeLessThan(96 * MIB);
  });

  test('of one byte wait for a client that reads none of the 96 streams of its session, in 192 MiB', async () => {
    rows = toRows(1, 400_000);
    const tls = { certFile: 'tls.crt', keyFile: 'tls.key' };
    const pair = makeAuthority(folder, 'root').issue('server', 'DNS:localhost');
    const running = await start(192, { listen: { address: '127.0.0.1:0', tls } }, toTlsFiles(pair));
    const session = connectHttp2(`https://127.0.0.1:${running.port}`, { rejectUnauthorized: false });
    session.on('error', () => undefined);
    const heads = Array.from({ length: 96 }, () => {
      const stream = session.request({ ':path': '/rows' });
      stream.on('error', () => undefined).pause();
      return new Promise((resolve) => {
        stream.once('response', resolve).once('close', resolve);
      });
    });
    await Promise.all(heads);
    for (let i = 0; i < 20; i++) await expectAlive(running, true);
    session.destroy();
    expect(running.peak()).toBeLessThan(96 * MIB);
  });
});
