import pg from 'pg';
import { afterAll, beforeAll, test } from 'vitest';
import { type PostgresServer, startPostgres } from '../support/postgres.ts';
import { createPostgresStores, openPostgresQueue } from '../support/queue/postgres-store.ts';
import { describeDeliveryQueue } from './delivery-queue.contract.ts';

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgres({ config: ['fsync = on'] });
});
afterAll(async () => {
  await server.stop();
});

describeDeliveryQueue(
  'the delivery queue in PostgreSQL',
  createPostgresStores(() => server),
);

test('an upgrade waits for a long transaction without stopping other replicas', async () => {
  const url = server.url();
  await (await openPostgresQueue(url, 'old')).close();
  server.sql('ALTER TABLE old.lane DROP COLUMN schedule; UPDATE old.version SET number = 1');
  const [backup, replica] = [new pg.Client(url), new pg.Client(url)];
  await Promise.all([backup.connect(), replica.connect()]);
  await backup.query('BEGIN; SELECT * FROM old.lane');
  const upgraded = openPostgresQueue(url, 'old');
  upgraded.catch(() => undefined);
  await replica.query('SET statement_timeout = 5000');
  for (let isWaiting = false; !isWaiting; ) {
    const { rows } = await replica.query<{ n: number }>('SELECT count(*)::int AS n FROM pg_locks WHERE NOT granted');
    isWaiting = (rows[0]?.n ?? 0) > 0;
  }
  for (let i = 0; i < 3; i++) await replica.query('SELECT * FROM old.lane');
  await backup.query('COMMIT');
  await (await upgraded).close();
  await Promise.all([backup.end(), replica.end()]);
  server.sql('SELECT schedule FROM old.lane');
}, 60_000);
