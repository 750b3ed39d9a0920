/** A sidecar with events for receivers that present certificates which nobody needs: OpenSSL keeps them while a connection is open. */
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterEach, describe, expect, onTestFinished, test } from 'vitest';
import { readPair } from '../support/certificates.ts';
import { makeFolder, useAuthority } from '../support/fixtures.ts';
import { findFreePort } from '../support/free-port.ts';
import { until } from '../support/gate.ts';
import { type CgroupGate, NO_CGROUPS, startGateInCgroup } from '../support/memory-cgroup.ts';
import { call } from '../support/provider/client.ts';

const ENDPOINTS = 300;
const EVENTS = 5;
const authority = useAuthority();
const pair = readPair(authority.issue('receiver', 'IP:127.0.0.1'));
let gate: CgroupGate | undefined;
afterEach(() => gate?.stop());

/** Responds to the first requests at once, and to no other. */
async function listen(certificates: number, responds: number): Promise<{ readonly port: number; readonly count: () => number }> {
  let requests = 0;
  const server = createServer({ ...pair, cert: pair.cert.toString().repeat(certificates) }, (_request, response) => {
    if (++requests <= responds) response.end();
  });
  server.keepAliveTimeout = 60_000;
  server.on('secureConnection', (socket) => socket.on('error', () => undefined));
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  return { port: (server.address() as AddressInfo).port, count: () => requests };
}

describe.skipIf(NO_CGROUPS !== undefined).each([96, 192])('a gate of %i MiB', (mebibytes) => {
  test.each([
    ['200 certificates', 200, Number.POSITIVE_INFINITY],
    ['60 certificates', 60, Number.POSITIVE_INFINITY],
    ['20 certificates, and hang after the first response', 20, ENDPOINTS],
    ['1 certificate', 1, Number.POSITIVE_INFINITY],
  ])('survives receivers with %s, and serves others', { timeout: 120_000 }, async (_name, certificates, responds) => {
    const receiver = await listen(certificates, responds);
    const usual = await listen(1, Number.POSITIVE_INFINITY);
    const port = await findFreePort();
    const egress = { allowPrivate: ['127.0.0.0/8'], caFile: 'ca.crt' };
    const queue = { sqlite: { path: join(makeFolder(), 'queue.db'), allowVolatile: true } };
    const files = { 'ca.crt': readFileSync(authority.ca, 'utf8') };
    gate = await startGateInCgroup(mebibytes, { provider: { address: `127.0.0.1:${port}`, egress, queue } }, files);
    const add = (id: string, tenant: string, to: number): Promise<unknown> =>
      call(port, 'POST', '/v1/endpoints', { id, tenant, url: `https://127.0.0.1:${to}/${id}` });
    for (let i = 0; i < ENDPOINTS; i++) await add(`receiver-${i}`, 'evil', receiver.port);
    await add('usual', 'usual', usual.port);
    const post = (tenant: string): Promise<unknown> => call(port, 'POST', '/v1/events', { type: 'a.b', tenant, data: {} });
    for (let i = 0; i < EVENTS; i++) await post('evil');
    await post('usual');
    expect(await until(() => !gate?.isAlive() || usual.count() > 0)).toBe(true);
    await post('evil');
    await post('usual');
    await until(() => !gate?.isAlive() || usual.count() > 1);
    expect({ alive: gate.isAlive(), oomKills: gate.oomKills() }).toEqual({ alive: true, oomKills: 0 });
  });
});
