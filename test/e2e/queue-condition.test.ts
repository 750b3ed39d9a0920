/** A gate whose queue cannot be written: /readyz, the metric and the log say so, the rest goes on, and it recovers by itself. */
import { copyFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished, type TestContext, test } from 'vitest';
import { holdResponses } from '../support/app.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { makeFolder, useApp } from '../support/fixtures.ts';
import { startGate, toRoute, until } from '../support/gate.ts';
import { type PostgresServer, startPostgres } from '../support/postgres.ts';
import { type ApiReply, call, listDeliveries } from '../support/provider/client.ts';
import { openSqliteQueue } from '../support/queue/sqlite-store.ts';
import { mountSmallDisk, type SmallDisk } from '../support/small-disk.ts';

const LIMIT_MS = 60_000;
const DISK_MIB = 160;
/** The log of transactions is smaller than the disk. */
const SMALL_LOG = ['min_wal_size = 32MB', 'max_wal_size = 48MB'];
const app = useApp();

/** A gate with its queue in this server, and an endpoint at the app. */
async function startSending(server: PostgresServer) {
  const file = join(makeFolder(), 'queue-url');
  writeFileSync(file, server.url());
  const gate = await startGate({
    provider: {
      address: '127.0.0.1:0',
      queue: { postgres: { url: { file }, statementTimeout: '3s' } },
      egress: { allowHttp: true, allowPrivate: ['127.0.0.0/8'] },
      endpoints: [{ name: 'acme', url: `http://127.0.0.1:${app.port}/`, secret: { file: 'secret' }, concurrency: 60 }],
    },
  });
  onTestFinished(async () => void (await gate.stop()));
  return {
    ...gate,
    readiness: async (): Promise<string> => {
      const response = await fetch(`http://127.0.0.1:${gate.adminPort}/readyz`);
      return `${response.status} ${(await response.text()).trim()}`;
    },
    post: (id: string, bytes = 0): Promise<ApiReply> =>
      call(gate.providerPort, 'POST', '/v1/events', { id, type: 'invoice.paid', data: { text: 'x'.repeat(bytes) } }),
    queueLog: () =>
      gate
        .log()
        .map(({ msg }) => String(msg))
        .filter((msg) => msg.startsWith('queue_')),
  };
}

/** The IDs of what the app got, in alphabetical order. */
const toReceived = (): string[] => app.received.map(({ headers }) => String(headers['webhook-id'])).toSorted();

test('a PostgreSQL that became a read-only standby costs events a 503 and nobody the readiness', async () => {
  const server = await startPostgres({ config: ['fsync = on'] });
  onTestFinished(server.stop);
  const { post, readiness, metric, queueLog } = await startSending(server);
  expect((await post('before')).status).toBe(202);
  expect(await readiness()).toBe('200 ready');
  await server.restart('standby');
  await until(async () => (await post('during')).status === 503 && (await readiness()).includes('but'));
  expect(await readiness()).toBe('200 ready, but the queue cannot store events');
  expect(await metric('sidegate_provider_queue_up')).toBe(0);
  await server.restart();
  await until(async () => (await post('after')).status === 202 && (await readiness()) === '200 ready');
  expect(await metric('sidegate_provider_queue_up')).toBe(1);
  expect(await metric('sidegate_provider_queue_went_back_total')).toBe(0);
  expect(queueLog()).toEqual(['queue_down', 'queue_up']);
});

describe('a PostgreSQL whose disk is full', { timeout: LIMIT_MS }, () => {
  async function startOnSmallDisk({ skip }: TestContext): Promise<{ readonly disk: SmallDisk; readonly server: PostgresServer }> {
    const disk = (await mountSmallDisk(DISK_MIB)) ?? skip('this process may not mount a file system');
    onTestFinished(disk.unmount);
    const server = await startPostgres({ config: ['fsync = on', ...SMALL_LOG], parent: disk.path });
    onTestFinished(server.stop);
    return { disk, server };
  }

  /** Starts a gate with 60 attempts that run until `release`, and two deliveries that wait for them. */
  async function startRunning(server: PostgresServer) {
    const gate = await startSending(server);
    // After a success, the endpoint gets all that it may get at once.
    await gate.post('first');
    await until(() => app.received.length === 1);
    const next = holdResponses(app);
    const running = Array.from({ length: 60 }, (_, i) => `running${i}`);
    // All at once, as a run starts attempts for 5 s only.
    const events = running.map((id) => ({ id, type: 'invoice.paid', data: {} }));
    expect((await call(gate.providerPort, 'POST', '/v1/events:batch', { events })).status).toBe(202);
    await until(() => app.received.length === 1 + running.length);
    for (const id of ['waiting1', 'waiting2']) expect((await gate.post(id)).status).toBe(202);
    const release = (): void => {
      for (const _ of running) next();
      app.handler = (_request, response) => response.end();
    };
    const untilDelivered = async (count: number): Promise<void> => {
      await until(async () => (await listDeliveries(gate.providerPort, '?state=delivered&limit=250')).length === count);
    };
    return { ...gate, accepted: ['first', 'waiting1', 'waiting2', ...running], release, untilDelivered };
  }

  test('rejects events with the cause, delays the end of running deliveries, and sends nothing twice', async (context) => {
    const { disk, server } = await startOnSmallDisk(context);
    const { accepted, post, release, untilDelivered, readiness, metric, log, queueLog } = await startRunning(server);
    disk.fill();
    const rejected = await until(async () => {
      const reply = await post('large', 100_000);
      return reply.status === 503 && reply;
    });
    expect(rejected.headers.get('retry-after')).toBe('5');
    expect(rejected.body).toMatchObject({
      code: 'queue_unavailable',
      detail: 'the disk of the queue is full: post the event again later, with the same ID',
    });
    expect(await readiness()).toBe('200 ready, but the queue cannot store events: its disk is full');
    expect(await metric('sidegate_provider_queue_up')).toBe(0);
    expect(log().find(({ msg }) => msg === 'queue_down')).toMatchObject({
      error: expect.stringMatching(/No space left on device \(53100\); free or enlarge the disk of the server$/),
    });

    release();
    // Each attempt to settle them needs space.
    for (let i = 0; i < 20; i++) expect((await post('large', 100_000)).status).toBe(503);
    await untilDelivered(1);
    expect(app.received).toHaveLength(61);

    disk.free();
    await until(async () => (await post('large', 100_000)).status === 202 && (await readiness()) === '200 ready');
    await untilDelivered(accepted.length + 1);
    expect(toReceived()).toEqual(['large', ...accepted].toSorted());
    expect(await metric('sidegate_provider_queue_up')).toBe(1);
    expect(await metric('sidegate_provider_queue_went_back_total')).toBe(0);
    expect(queueLog().at(-1)).toBe('queue_up');
  });

  test('loses no event if PostgreSQL stops because its log of transactions has no space', async (context) => {
    const { disk, server } = await startOnSmallDisk(context);
    const { accepted, post, release, untilDelivered, readiness, metric } = await startRunning(server);
    disk.fill();
    // It needs a new file for the log, ends all sessions, and cannot recover.
    const write = "SELECT pg_logical_emit_message(false, 'test', repeat('x', 1000000)) FROM generate_series(1, 100)";
    expect(() => server.sql(write)).toThrow();
    await until(async () => (await post('during')).status === 503 && (await readiness()).includes('but'));
    expect(await metric('sidegate_provider_queue_up')).toBe(0);
    release();

    disk.free();
    await server.restart();
    await until(async () => (await post('during')).status === 202 && (await readiness()) === '200 ready');
    await untilDelivered(accepted.length + 1);
    // A run that could not settle for 25 s may be repeated, so attempts that ran are not counted.
    expect([...new Set(toReceived())]).toEqual(['during', ...accepted].toSorted());
    expect(toReceived().filter((id) => !id.startsWith('running'))).toEqual(['during', 'first', 'waiting1', 'waiting2']);
    expect(await metric('sidegate_provider_queue_went_back_total')).toBe(0);
  });
});

test('starts again on a full disk after a crash, serves its routes, and accepts events once there is space', async ({ skip }) => {
  const disk = (await mountSmallDisk(24)) ?? skip('this process may not mount a file system');
  onTestFinished(disk.unmount);
  const start = async (name: string) => {
    const gate = await startGate({
      routes: [toRoute(app.port)],
      provider: {
        address: '127.0.0.1:0',
        queue: { sqlite: { path: join(disk.path, name), allowVolatile: true } },
        schedule: Array<string>(20).fill('1s'),
        egress: { allowHttp: true, allowPrivate: ['127.0.0.0/8'] },
        endpoints: [{ name: 'acme', url: `http://127.0.0.1:${app.port}/`, secret: { file: 'secret' } }],
      },
    });
    onTestFinished(async () => void (await gate.stop()));
    return gate;
  };
  const post = (port: number, id: string) =>
    call(port, 'POST', '/v1/events', { id, type: 'invoice.paid', data: { text: 'x'.repeat(20_000) } });
  app.handler = (_request, response) => response.writeHead(500).end();
  const first = await start('queue.db');
  for (let i = 0; i < 10; i++) expect((await post(first.providerPort, `before${i}`)).status).toBe(202);
  await until(async () => (await first.metric('sidegate_provider_attempts_total{endpoint="acme",outcome="server_error"}')) >= 10);
  // The files as a crash leaves them.
  for (const end of ['', '-wal']) copyFileSync(join(disk.path, `queue.db${end}`), join(disk.path, `crashed.db${end}`));
  await first.stop();
  disk.fill();

  const second = await start('crashed.db');
  const readiness = async () => (await fetch(`http://127.0.0.1:${second.adminPort}/readyz`)).text();
  expect(
    (
      await fetch(`http://127.0.0.1:${second.port}/hooks/billing`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: '{}',
      })
    ).status,
  ).toBe(401);
  expect(await post(second.providerPort, 'during')).toMatchObject({
    status: 503,
    body: { detail: 'the disk of the queue is full: post the event again later, with the same ID' },
  });
  expect((await readiness()).trim()).toBe('ready, but the queue cannot store events: its disk is full');
  disk.free();
  app.handler = (_request, response) => response.end();
  await until(async () => (await post(second.providerPort, 'after')).status === 202);
  await until(async () => !(await readiness()).includes('cannot store events'));
  await until(async () => (await listDeliveries(second.providerPort, '?state=delivered&limit=250')).length === 11);
});

test('sends what it has after the file of the queue was deleted, and accepts nothing more, which the next restart would lose', async () => {
  const path = join(makeFolder(), 'queue.db');
  const gate = await startGate({
    routes: [toRoute(app.port, { webhook: { ack: 'onAccept' } })],
    provider: {
      address: '127.0.0.1:0',
      queue: { sqlite: { path, allowVolatile: true } },
      schedule: Array<string>(20).fill('1s'),
      egress: { allowHttp: true, allowPrivate: ['127.0.0.0/8'] },
      endpoints: [{ name: 'acme', url: `http://127.0.0.1:${app.port}/`, secret: { file: 'secret' } }],
    },
  });
  onTestFinished(async () => void (await gate.stop()));
  const post = (id: string) => call(gate.providerPort, 'POST', '/v1/events', { id, type: 'invoice.paid', data: {} });
  const send = async () => {
    const { headers, body } = makeDelivery();
    return (await fetch(`http://127.0.0.1:${gate.port}/hooks/billing`, { method: 'POST', headers, body })).status;
  };
  app.handler = (_request, response) => response.writeHead(500).end();
  expect([(await post('before')).status, await send()]).toEqual([202, 202]);
  await until(() => app.received.length >= 2);
  for (const end of ['', '-wal']) rmSync(`${path}${end}`);
  for (const id of ['before', 'after']) {
    const rejected = await post(id);
    expect([rejected.status, rejected.body['code'], rejected.headers.get('retry-after')]).toEqual([
      503,
      'queue_unavailable',
      '5',
    ]);
  }
  expect(await send()).toBe(503);
  app.handler = (_request, response) => response.end();
  await until(async () => (await listDeliveries(gate.providerPort, '?state=delivered')).length === 2);
  const text = 'ready, but the file of the queue was deleted or replaced';
  await until(async () => (await (await fetch(`http://127.0.0.1:${gate.adminPort}/readyz`)).text()).trim() === text);
  expect(gate.log().find(({ msg }) => msg === 'queue_down')).toMatchObject({
    error: `${path} was deleted or replaced: no event is accepted until a restart`,
  });
});

test('names the full disk on which a new file of the queue does not fit', async ({ skip }) => {
  const disk = (await mountSmallDisk(16)) ?? skip('this process may not mount a file system');
  onTestFinished(disk.unmount);
  disk.fill();
  await expect(openSqliteQueue(join(disk.path, 'queue.db'))).rejects.toThrow(/is full \(SQLite 13\); free or enlarge the disk$/);
});
