/** The examples of docs/outbox.md, each against a real PostgreSQL with the roles of the page. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { usePostgres } from '../support/fixtures.ts';
import { until } from '../support/gate.ts';
import { countRows, createOutboxDatabase, insertEvents, readOutboxBlock, startOutbox } from '../support/outbox.ts';

const ROOT = resolve(import.meta.dirname, '..', '..');
const NODE_LIBRARIES = resolve(ROOT, '.cache', 'outbox-node');
const PYTHON = resolve(ROOT, '.cache', 'outbox-python', 'bin', 'python');
const server = usePostgres();
const run = promisify(execFile);

/** A database with the table that the examples change in the same transaction. */
function createAppDatabase(): string {
  const database = createOutboxDatabase(server);
  server.sql(
    'CREATE TABLE invoice (number int, paid boolean); GRANT SELECT, UPDATE ON invoice TO billing; INSERT INTO invoice VALUES (42, false)',
    database,
  );
  return database;
}

/** Runs a block as an ECMAScript module that finds its packages from this folder. */
async function runModule(file: string, cwd: string, database: string): Promise<void> {
  const env = { ...process.env, DATABASE_URL: server.url({ role: 'billing', database }) };
  await run(process.execPath, ['--input-type=module', '--eval', readOutboxBlock(file)], { cwd, env });
}

/** Expects the event of the example, and the change of the app. */
async function expectEvent(database: string): Promise<void> {
  const { queue } = await startOutbox(server.url({ role: 'sidegate', database }));
  const [event] = await until(() => queue.events.size > 0 && [...queue.events.values()]);
  expect(event).toMatchObject({ type: 'invoice.paid', id: expect.stringMatching(/^msg_[0-9a-f]{32}$/) });
  expect(JSON.parse(String(event?.body)).data).toEqual({ invoice: 42 });
  await until(() => countRows(server, database) === 0);
  expect(server.sql('SELECT paid FROM invoice', database)).toBe('t');
}

test('SQL', async () => {
  const database = createAppDatabase();
  server.sql(`SET ROLE billing; ${readOutboxBlock('event.sql')}`, database);
  await expectEvent(database);
});

test('pg', async () => {
  const database = createAppDatabase();
  await runModule('event.mjs', ROOT, database);
  await expectEvent(database);
});

test.skipIf(!existsSync(NODE_LIBRARIES))('Drizzle', async () => {
  const database = createAppDatabase();
  await runModule('event_drizzle.mjs', NODE_LIBRARIES, database);
  await expectEvent(database);
});

test.skipIf(!existsSync(PYTHON))('SQLAlchemy', async () => {
  const database = createAppDatabase();
  const env = { ...process.env, DATABASE_URL: server.url({ role: 'billing', database }) };
  await run(PYTHON, ['-c', readOutboxBlock('event_sqlalchemy.py')], { env });
  await expectEvent(database);
});

test.skipIf(!existsSync(PYTHON))('Django', async () => {
  const database = createAppDatabase();
  const { hostname, port, username, password } = new URL(server.url({ role: 'billing' }));
  const settings = {
    ENGINE: 'django.db.backends.postgresql',
    NAME: database,
    HOST: hostname,
    PORT: port,
    USER: username,
    PASSWORD: decodeURIComponent(password),
  };
  const setUp = `import django\nfrom django.conf import settings\nsettings.configure(DATABASES={"default": ${JSON.stringify(settings)}})\ndjango.setup()\n`;
  await run(PYTHON, ['-c', setUp + readOutboxBlock('event_django.py')]);
  await expectEvent(database);
});

test('the repair of a rejected row', async () => {
  const database = createOutboxDatabase(server);
  insertEvents(server, database, 1, 'e', 'invoice..paid');
  const { queue } = await startOutbox(server.url({ role: 'sidegate', database }));
  await until(() => countRows(server, database, 'sidegate_outbox_rejected') === 1);
  server.sql(readOutboxBlock('repair.sql'), database);
  await until(() => queue.events.get('e1')?.type === 'invoice.paid');
  expect(countRows(server, database, 'sidegate_outbox_rejected')).toBe(0);
});
