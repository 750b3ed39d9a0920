import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { until } from '../support/gate.ts';
import { type PostgresServer, startPostgres } from '../support/postgres.ts';
import { newEvent } from '../support/queue/events.ts';
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

test('a list reads no more than its page of tables that were never analyzed', async () => {
  const [url, schema] = [server.url(), 'unanalyzed'];
  const queue = await openPostgresQueue(url, schema);
  for (const table of ['event', 'delivery']) server.sql(`ALTER TABLE ${schema}.${table} SET (autovacuum_enabled = false)`);
  for (let at = 0; at < 20_000; at += 500)
    await queue.append(Array.from({ length: 500 }, (_, i) => newEvent(['a'], { tenant: `t${(at + i) % 200}` })));
  await queue.close();
  /** What a process reads by indexes; PostgreSQL knows it once the connections are closed. */
  const countReads = async (lists: number): Promise<number> => {
    const read = () => Number(server.sql(`SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = '${schema}'`));
    const before = read();
    const reader = await openPostgresQueue(url, schema);
    for (let i = 0; i < lists; i++) expect((await reader.find({ tenant: 't7' }, { limit: 50 })).found).toHaveLength(50);
    await reader.close();
    await until(() => server.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sidegate'") === '0');
    return read() - before;
  };
  const opening = await countReads(0);
  expect((await countReads(10)) - opening).toBeLessThan(10 * 1_000);
}, 60_000);
