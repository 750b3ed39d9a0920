/** A sidecar that accepts and sends events, in the memory of a container, while clients ask its store for more than they send. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { makeFolder } from '../support/fixtures.ts';
import { findFreePort } from '../support/free-port.ts';
import { type Sections, until } from '../support/gate.ts';
import { type CgroupGate, NO_CGROUPS, startGateInCgroup } from '../support/memory-cgroup.ts';
import { createDatabase } from '../support/outbox.ts';
import { floodPipelined } from '../support/pipelined-flood.ts';
import { type PostgresServer, startPostgres } from '../support/postgres.ts';
import { call } from '../support/provider/client.ts';

const MEBIBYTES = 192;
const CLIENTS = 400;
const EVENTS = 10;
/** One after the other by each client. */
const REPEATS = 3;
/** The endpoints that get each event. */
const FAN_OUT = 1_000;
const CREATED_AT_ONCE = 50;
const UNREAD_MS = 2_000;
const LARGE = { text: 'x'.repeat(250 * 1024) };
let gate: CgroupGate | undefined;
let server: PostgresServer;
let database = '';

beforeAll(async () => {
  server = await startPostgres({ config: ['fsync = on'] });
});
afterAll(() => server.stop());
afterEach(async () => {
  await gate?.stop();
  gate = undefined;
});

type Engine = 'SQLite' | 'PostgreSQL';

/** Starts a sidecar with `endpoints` that nothing can be delivered to, and its outbox in PostgreSQL; returns the port of its API. */
async function start(engine: Engine, endpoints: number): Promise<number> {
  database = createDatabase(server);
  const port = await findFreePort();
  const folder = makeFolder();
  const file = join(folder, 'url');
  writeFileSync(file, server.url({ database }));
  const queue =
    engine === 'SQLite' ? { sqlite: { path: join(folder, 'queue.db'), allowVolatile: true } } : { postgres: { url: { file } } };
  const sections: Sections = {
    provider: {
      address: `127.0.0.1:${port}`,
      egress: { allowHttp: true, allowPrivate: ['127.0.0.0/8'] },
      queue,
      outbox: { postgres: { url: { file } }, pollInterval: '200ms' },
    },
  };
  gate = await startGateInCgroup(MEBIBYTES, sections);
  const endpoint = { url: 'http://127.0.0.1:9/', orderBy: '$.data.key' };
  for (let first = 0; first < endpoints; first += CREATED_AT_ONCE)
    await sendAll(
      (index) => call(port, 'POST', '/v1/endpoints', { id: `ep${first + index}`, ...endpoint }),
      Math.min(endpoints, CREATED_AT_ONCE),
    );
  return port;
}

/** Sends requests on many connections at once; returns the statuses; 0: the connection broke. */
async function sendAll(
  send: (index: number) => Promise<{ readonly status: number }>,
  clients = CLIENTS,
  repeats = 1,
): Promise<Set<number>> {
  const statuses = new Set<number>();
  const sendEach = async (index: number): Promise<void> => {
    for (let n = 0; n < repeats; n++)
      statuses.add(
        await send(index + n).then(
          ({ status }) => status,
          () => 0,
        ),
      );
  };
  await Promise.all(Array.from({ length: clients }, (_, index) => sendEach(index)));
  return statuses;
}

async function expectAlive(port: number): Promise<void> {
  await until(
    async () => (await call(port, 'GET', '/v1/endpoints?limit=1').catch(() => undefined))?.status === 200 || !isAlive(),
  );
  expect({ isAlive: isAlive(), oomKills: gate?.oomKills() }).toEqual({ isAlive: true, oomKills: 0 });
}

function isAlive(): boolean {
  return gate?.isAlive() === true;
}

describe.skipIf(NO_CGROUPS !== undefined).each<Engine>(['SQLite', 'PostgreSQL'])('a sidecar with its queue in %s', (engine) => {
  test('survives parallel requests that read large events, retry them, or do not read the response', async () => {
    const port = await start(engine, 1);
    for (let index = 0; index < EVENTS; index++)
      expect((await call(port, 'POST', '/v1/events', { id: `e${index}`, type: 'a', data: LARGE })).status).toBe(202);
    const retried = await sendAll((index) => call(port, 'POST', `/v1/deliveries/e${index % EVENTS}~ep0/retry`), CLIENTS, REPEATS);
    const read = await sendAll((index) => call(port, 'GET', `/v1/events/e${index % EVENTS}`));
    // Those for which there is no memory can be repeated.
    expect([...retried, ...read].filter((status) => ![200, 202, 503].includes(status))).toEqual([]);
    const request = 'GET /v1/events/e0 HTTP/1.1\r\nHost: localhost\r\n\r\n';
    await floodPipelined({ port, connections: CLIENTS, milliseconds: UNREAD_MS, request, reads: false });
    await expectAlive(port);
  });

  test('survives small events for many endpoints, from the API and from the outbox', async () => {
    const port = await start(engine, FAN_OUT);
    server.sql(
      `INSERT INTO sidegate_outbox (type, data) SELECT 'a', json_build_object('key', n) FROM generate_series(1, 1000) AS n`,
      database,
    );
    const statuses = await sendAll((key) => call(port, 'POST', '/v1/events', { type: 'a', data: { key } }));
    expect([...statuses].filter((status) => ![202, 503].includes(status))).toEqual([]);
    await expectAlive(port);
  });
});

test.skipIf(NO_CGROUPS !== undefined)(
  'a sidecar drains before endpoints of a replica with more memory fill its heap',
  async () => {
    const port = await start('PostgreSQL', 1);
    server.sql(
      `INSERT INTO sidegate.endpoint SELECT 'x' || n, n, json FROM sidegate.endpoint, generate_series(1, 40000) AS n`,
      database,
    );
    const { child, log, oomKills } = gate as CgroupGate;
    // Another one than it knows: it reads all.
    await call(port, 'GET', '/v1/endpoints/x1').catch(() => undefined);
    await until(() => !isAlive());
    expect([child.exitCode, oomKills()]).toEqual([1, 0]);
    const ends = ['endpoints_too_large', 'draining', 'stopped'];
    expect(
      log()
        .map(({ msg }) => msg)
        .filter((msg) => ends.includes(String(msg))),
    ).toEqual(ends);
    expect(log().find(({ msg }) => msg === 'endpoints_too_large')).toMatchObject({
      level: 'error',
      error: expect.stringContaining('Raise the memory limit'),
    });
  },
  60_000,
);
