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
