/** A sidecar that accepts and sends events, in the memory of a container, while its app posts large events as fast as it can. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, onTestFinished, test } from 'vitest';
import { makeFolder, useApp } from '../support/fixtures.ts';
import { findFreePort } from '../support/free-port.ts';
import { type Sections, until } from '../support/gate.ts';
import { type CgroupGate, NO_CGROUPS, startGateInCgroup } from '../support/memory-cgroup.ts';
import { floodPipelined } from '../support/pipelined-flood.ts';
import { startPostgres } from '../support/postgres.ts';
import { call } from '../support/provider/client.ts';

/** 192 is the default; `check` warns about less, which must survive, too. */
const LIMITS = [128, 192, 256];
const FLOOD_MS = 3_000;
const CONNECTIONS = 64;
const DATA = { text: 'x'.repeat(250 * 1024) };
const app = useApp();
let gate: CgroupGate | undefined;

afterEach(async () => {
  await gate?.stop();
  gate = undefined;
});

type Engine = 'SQLite' | 'PostgreSQL';

async function toSections(engine: Engine, port: number, count = 20): Promise<Sections> {
  const endpoints = Array.from({ length: count }, (_, index) => ({
    name: `endpoint-${index}`,
    url: `http://127.0.0.1:${app.port}/hooks/${index}`,
    secret: { file: 'secret' },
  }));
  const egress = { allowHttp: true, allowPrivate: ['127.0.0.0/8'] };
  const provider = { address: `127.0.0.1:${port}`, egress, endpoints };
  if (engine === 'SQLite')
    return { provider: { ...provider, queue: { sqlite: { path: join(makeFolder(), 'queue.db'), allowVolatile: true } } } };
  const server = await startPostgres({ config: ['fsync = on'] });
  onTestFinished(() => server.stop());
  const file = join(makeFolder(), 'url');
  writeFileSync(file, server.url());
  return { provider: { ...provider, queue: { postgres: { url: { file } } } } };
}

/** Posts events on all connections until the time is over; returns how many got each status. */
async function flood(port: number): Promise<ReadonlyMap<number, number>> {
  const end = performance.now() + FLOOD_MS;
  const statuses = new Map<number, number>();
  const postAll = async (): Promise<void> => {
    while (performance.now() < end) {
      const { status } = await call(port, 'POST', '/v1/events', { type: 'invoice.paid', data: DATA });
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, postAll));
  return statuses;
}

/** The most that the provider's API lets one client have. */
const READERS = 450;
const HEADERS = Object.fromEntries(Array.from({ length: 20 }, (_, index) => [`X-${index}-${'n'.repeat(50)}`, 'v']));

describe.skipIf(NO_CGROUPS !== undefined)('a sidecar with 192 MiB', () => {
  test('survives clients that request long lists and read nothing', async () => {
    const port = await findFreePort();
    gate = await startGateInCgroup(192, await toSections('SQLite', port));
    for (let index = 0; index < 250; index++) {
      const url = `https://a.example/${'p'.repeat(2_000)}`;
      const { status } = await call(port, 'POST', '/v1/endpoints', { id: `e${index}`, url, headers: HEADERS });
      expect(status).toBe(201);
    }
    const request = 'GET /v1/endpoints?limit=250 HTTP/1.1\r\nHost: localhost\r\n\r\n';
    await floodPipelined({ port, connections: READERS, milliseconds: FLOOD_MS, request, reads: false });
    await until(async () => (await call(port, 'GET', '/v1/endpoints?limit=1')).status === 200);
    expect({ isAlive: gate.isAlive(), oomKills: gate.oomKills() }).toEqual({ isAlive: true, oomKills: 0 });
  });
});

/** Endpoints of one tenant that get each of its events. */
const FAN_OUT = 100;
const LARGE_EVENTS = 8;

describe.skipIf(NO_CGROUPS !== undefined)('a sidecar with 128 MiB', () => {
  test('survives large events for many endpoints of a tenant that respond, and then hang, while others get theirs', async () => {
    let [large, small, isHanging] = [0, 0, false];
    app.handler = (request, response) => {
      app.received.length = 0;
      if (request.url === '/small') small++;
      else large++;
      if (request.url === '/small' || !isHanging) response.end();
    };
    const port = await findFreePort();
    gate = await startGateInCgroup(128, await toSections('SQLite', port, 0));
    const reach = (look: () => boolean) =>
      until(() => {
        if (gate?.isAlive() !== true) throw new Error('the sidecar was killed');
        return look();
      });
    const create = async (id: string, tenant: string, path: string): Promise<void> => {
      const { status } = await call(port, 'POST', '/v1/endpoints', { id, tenant, url: `http://127.0.0.1:${app.port}${path}` });
      expect(status).toBe(201);
    };
    for (let index = 0; index < FAN_OUT; index++) await create(`large-${index}`, 'large', `/large/${index}`);
    await create('small', 'other', '/small');
    const post = async (tenant: string, data: object): Promise<void> => {
      const { status } = await call(port, 'POST', '/v1/events', { type: 'invoice.paid', tenant, data });
      expect(status).toBe(202);
    };
    await post('other', {});
    await reach(() => small === 1);
    for (let count = 1; count <= LARGE_EVENTS; count++) {
      await post('large', DATA);
      // The first one proves the endpoints; the others come at once.
      if (count === 1 || count === LARGE_EVENTS) await reach(() => large === count * FAN_OUT);
    }
    isHanging = true;
    const waits: number[] = [];
    for (let count = 0; count < LARGE_EVENTS; count++) {
      await post('large', DATA);
      const before = small;
      await post('other', {});
      const start = performance.now();
      await reach(() => small === before + 1);
      waits.push(performance.now() - start);
    }
    expect(Math.max(...waits)).toBeLessThan(2_000);
    expect({ isAlive: gate.isAlive(), oomKills: gate.oomKills() }).toEqual({ isAlive: true, oomKills: 0 });
  });
});

describe.skipIf(NO_CGROUPS !== undefined).each<Engine>(['SQLite', 'PostgreSQL'])('a sidecar with its queue in %s', (engine) => {
  test.each(LIMITS)('survives a flood of large events with %i MiB, and accepts a small one afterwards', async (mebibytes) => {
    app.handler = (_request, response) => {
      app.received.length = 0;
      response.end();
    };
    const port = await findFreePort();
    gate = await startGateInCgroup(mebibytes, await toSections(engine, port));
    const statuses = await flood(port);
    // Those that do not fit get 503 and can be posted again.
    expect([...statuses.keys()].filter((status) => status !== 202 && status !== 503)).toEqual([]);
    await until(async () => (await call(port, 'POST', '/v1/events', { type: 'invoice.paid', data: {} })).status === 202);
    expect({ isAlive: gate.isAlive(), oomKills: gate.oomKills() }).toEqual({ isAlive: true, oomKills: 0 });
  });
});
