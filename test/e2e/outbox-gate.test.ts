/** The outbox as a part of the gate: from the app's transaction to the receiver. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { stringify } from 'yaml';
import { checkFile } from '../../src/cli/check.ts';
import { makeFolder, useApp, useFolder, usePostgres } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, until } from '../support/gate.ts';
import { recordIo } from '../support/io.ts';
import { countRows, createDatabase, createOutboxDatabase } from '../support/outbox.ts';
import { runCrashes } from '../support/outbox-crashes.ts';
import { createRandom } from '../support/seeded.ts';

const app = useApp();
const folder = useFolder();
const server = usePostgres();

function toSections(outbox: Sections = {}): Sections {
  return {
    provider: {
      address: '127.0.0.1:0',
      queue: { sqlite: { path: join(folder, 'queue.db'), allowVolatile: true } },
      egress: { allowHttp: true, allowPrivate: ['127.0.0.0/8'] },
      outbox: { postgres: { url: { file: 'outbox-url' } }, ...outbox },
      endpoints: [{ name: 'acme', url: `http://127.0.0.1:${app.port}/hooks`, secret: { file: 'secret' } }],
    },
  };
}

async function start(url: string): Promise<TestGate> {
  const gate = await startGate(toSections(), undefined, { 'outbox-url': url });
  onTestFinished(async () => void (await gate.stop()));
  return gate;
}

test('delivers what the app committed, and shows it in the metrics', async () => {
  const database = createOutboxDatabase(server);
  const { metric } = await start(server.url({ role: 'sidegate', database }));
  server.sql(
    `INSERT INTO sidegate_outbox (id, type, data) VALUES ('e1', 'invoice.paid', '{"amount": 4200.00}'), ('bad', 'a..b', '{}')`,
    database,
  );
  const [request] = await until(() => app.received.length > 0 && app.received);
  expect(String(request?.body)).toContain('"data":{"amount": 4200.00}}');
  expect(request?.headers['webhook-id']).toBe('e1');
  await until(() => countRows(server, database) === 0);
  expect(await metric('sidegate_provider_events_total{result="stored"}')).toBe(1);
  await until(async () => (await metric('sidegate_provider_outbox_up')) === 1);
  expect(await metric('sidegate_provider_outbox_rejected_total')).toBe(1);
});

test('reports an event that no endpoint selects, as for the API', async () => {
  const database = createOutboxDatabase(server);
  const { metric, log } = await start(server.url({ role: 'sidegate', database }));
  server.sql(`INSERT INTO sidegate_outbox (type, tenant, data) VALUES ('lost', 'nobody', '{}')`, database);
  await until(async () => (await metric('sidegate_provider_unrouted_events_total')) === 1);
  expect(log().filter(({ msg }) => msg === 'events_unrouted')).toMatchObject([{ events: 1, type: 'lost' }]);
});

test('logs an outage once, and uses another password as soon as the file has it', async () => {
  const database = createDatabase(server);
  server.sql(
    "DROP ROLE IF EXISTS other; CREATE ROLE other LOGIN PASSWORD 'new'; GRANT CREATE ON SCHEMA public TO other",
    database,
  );
  const toUrl = (password: string): string => server.url({ role: 'other', database }).replace(/:[^:@]+@/, `:${password}@`);
  const { folder: files, log, metric, logText, adminPort } = await start(toUrl('old'));
  const readiness = async () => (await fetch(`http://127.0.0.1:${adminPort}/readyz`)).text();
  const find = (msg: string) => log().filter((line) => line['msg'] === msg);
  const [line] = await until(() => find('outbox_down').length > 0 && find('outbox_down'));
  expect(line).toMatchObject({
    error: `PostgreSQL at 127.0.0.1:${server.port}/${database}: password authentication failed for user "other"`,
    hint: 'correct the user or the password in the URL',
  });
  expect(await readiness()).toContain('ready, but events in the outbox are not taken');
  writeFileSync(join(files, 'outbox-url'), toUrl('new'));
  await until(() => find('outbox_up').length > 0);
  expect(await readiness()).not.toContain('but');
  expect(find('outbox_down')).toHaveLength(1);
  expect(await metric('sidegate_provider_outbox_up')).toBe(1);
  expect(logText()).not.toContain(':new@');
});

test('check --connect names what is missing', async () => {
  const database = createDatabase(server);
  createOutboxDatabase(server);
  const check = async (url: string): Promise<string> => {
    const file = join(folder, 'gate.yaml');
    writeFileSync(join(folder, 'outbox-url'), url);
    writeFileSync(join(folder, 'secret'), 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD');
    writeFileSync(file, stringify(toSections()));
    const { io, stdout } = recordIo();
    await checkFile(file, { format: 'text', connect: true }, io);
    return stdout();
  };
  const missing = await check(server.url({ role: 'sidegate', database }));
  expect(missing).toMatch(
    /gate\.yaml:\d+:\d+: error provider\.outbox\.postgres\.url: PostgreSQL at .* has no table sidegate_outbox/,
  );
  expect(missing).toContain('hint: run the SQL of docs/outbox.md as the owner of the schema');
  const ready = await check(server.url({ role: 'sidegate', database: createOutboxDatabase(server) }));
  expect(ready).toMatch(/note: PostgreSQL at 127\.0\.0\.1:\d+\/test\d+: connected/);
  expect(await check('postgres://a:top-secret@db.example.com/b?sslmode=prefer')).toMatch(
    /error provider\.outbox\.postgres\.url: sslmode=prefer is not supported\n.*\n.*\n {2}hint: set sslmode to disable, require, verify-ca or verify-full/,
  );
});

test('sends every event of 300 committed transactions, and none that was rolled back, while the gate is killed at random points', async () => {
  const plan = { events: 300, writers: 3, pause: 150, kills: 4, restartsServer: false, random: createRandom(Date.now()) };
  const { committed, received, storedEvents, waitingRows } = await runCrashes(server, app, makeFolder(), plan);
  expect(committed.size).toBe(300);
  expect([...committed].filter((id) => !received.has(id))).toEqual([]);
  expect([...received].filter((id) => !committed.has(id))).toEqual([]);
  expect([storedEvents, waitingRows]).toEqual([300, 0]);
}, 120_000);
