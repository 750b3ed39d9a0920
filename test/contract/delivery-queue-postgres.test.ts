import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { DeliveryQueue, DeliveryState, NewEvent } from '../../src/provider/queue/delivery-queue.ts';
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
  server.sql(
    'ALTER TABLE old.lane DROP COLUMN schedule; ALTER TABLE old.version DROP COLUMN pruned; UPDATE old.version SET number = 1',
  );
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
  server.sql('SELECT schedule FROM old.lane; SELECT pruned FROM old.version');
}, 60_000);

/** Reads of a process by indexes; PostgreSQL knows them once its connections are closed. */
async function countReads(schema: string, use: (queue: DeliveryQueue) => Promise<void>): Promise<number> {
  const read = () => Number(server.sql(`SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = '${schema}'`));
  const before = read();
  const queue = await openPostgresQueue(server.url(), schema);
  await use(queue);
  await queue.close();
  await until(() => server.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sidegate'") === '0');
  return read() - before;
}

/** A schema whose tables were never analyzed. */
async function fillUnanalyzed(schema: string, toEvents: (at: number) => NewEvent): Promise<void> {
  const queue = await openPostgresQueue(server.url(), schema);
  for (const table of ['event', 'delivery']) server.sql(`ALTER TABLE ${schema}.${table} SET (autovacuum_enabled = false)`);
  for (let at = 0; at < 20_000; at += 500) await queue.append(Array.from({ length: 500 }, (_, i) => toEvents(at + i)));
  await queue.close();
}

test('a list reads no more than its page of tables that were never analyzed', async () => {
  await fillUnanalyzed('unanalyzed', (at) => newEvent(['a'], { tenant: `t${at % 200}` }));
  const list = (lists: number) =>
    countReads('unanalyzed', async (queue) => {
      for (let i = 0; i < lists; i++) expect((await queue.find({ tenant: 't7' }, { limit: 50 })).found).toHaveLength(50);
    });
  const opening = await list(0);
  expect((await list(10)) - opening).toBeLessThan(10 * 1_000);
}, 60_000);

test('a new schedule reads each delivery a few times, also of tables that were never analyzed', async () => {
  await fillUnanalyzed('rescheduled', () => newEvent(['a']));
  const reads = await countReads('rescheduled', (queue) => queue.reschedule('a', [60_000], Date.now()));
  expect(reads).toBeLessThan(4 * 20_000);
}, 60_000);

test('a list of events by state reads no more deliveries than a step has room for', async () => {
  const targets = Array.from({ length: 500 }, (_, i) => ({ endpoint: `e${i}`, isSkipped: true }));
  const queue = await openPostgresQueue(server.url(), 'fanout');
  for (let i = 0; i < 40; i++) await queue.append([newEvent(targets)]);
  await queue.close();
  const list = (states: readonly DeliveryState[], limit: number) =>
    countReads('fanout', async (opened) => {
      for (let i = 0; limit > 0 && i < 10; i++) await opened.findEvents({ states }, { limit });
    });
  const opening = await list([], 0);
  for (const states of [['waiting'], ['delivered'], ['dead', 'skipped']] as const)
    expect((await list(states, 50)) - opening).toBeLessThan(10 * 200);
  expect((await list(['skipped'], 1)) - opening).toBeLessThan(10 * 200);
}, 60_000);

test('a delivery that is due again finds the one of its key that was, without a read of all that are due', async () => {
  await fillUnanalyzed('keyed', (at) => newEvent([{ endpoint: 'a', orderKey: `k${at}` }]));
  const add = (ids: readonly string[]) =>
    countReads('keyed', async (queue) => {
      await queue.append(ids.map((id) => newEvent([], { id })));
      for (const id of ids) expect(await queue.addDelivery(id, 'a', Date.now(), 'k7')).toBe(true);
    });
  const opening = await add([]);
  expect((await add(Array.from({ length: 10 }, (_, i) => `late-${i}`))) - opening).toBeLessThan(10 * 200);
}, 60_000);

test('a lease that a clock which was ahead has set ends as if it had been set now', async () => {
  const queue = await openPostgresQueue(server.url(), 'ahead');
  await queue.append([newEvent(['a', 'b'])]);
  await queue.close();
  const now = '(extract(epoch FROM clock_timestamp()) * 1000)::bigint';
  server.sql(`UPDATE ahead.lane SET owner = 'gone', lease = ${now} + CASE WHEN name = 'a' THEN 7200000 ELSE 20000 END`);
  const another = await openPostgresQueue(server.url(), 'ahead');
  const readRest = (name: string): number => Number(server.sql(`SELECT lease - ${now} FROM ahead.lane WHERE name = '${name}'`));
  await until(() => readRest('a') <= 30_000);
  expect(readRest('a')).toBeGreaterThan(readRest('b'));
  await another.close();
});

test('the defaults of the database for transactions do not change those of the queue', async () => {
  server.sql('CREATE DATABASE defaults');
  server.sql("ALTER DATABASE defaults SET default_transaction_isolation = 'serializable'");
  const queue = await openPostgresQueue(server.url({ database: 'defaults' }), 'queue');
  const sql = (text: string): string => server.sql(text, 'defaults');
  sql(`CREATE TABLE levels (level text); CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN INSERT INTO public.levels VALUES (current_setting('transaction_isolation')); RETURN NULL; END$$;
    CREATE TRIGGER note AFTER INSERT ON queue.event FOR EACH STATEMENT EXECUTE FUNCTION note()`);
  await queue.append([newEvent(['a'])]);
  expect(sql('SELECT DISTINCT level FROM levels')).toBe('read committed');
  await queue.close();
});
