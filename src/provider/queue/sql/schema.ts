/** The tables of the queue. */
import { SidegateError } from '../../../core/errors.ts';
import { STATE_PREFIX } from '../../endpoints/endpoint.ts';
import type { Dialect, Sql } from './database.ts';

/** States of a delivery. `DUE` is due now or later; `BLOCKED` waits behind an earlier one with the same order key. Both are `waiting` outside. */
export const DUE = 0;
export const BLOCKED = 1;
export const DELIVERED = 2;
export const DEAD = 3;
export const SKIPPED = 4;

/** In which order a lane takes due deliveries: first attempts before those of types that fail, and these before all retries. */
export const FIRST = 0;
export const FIRST_OF_FAILING_TYPE = 1;
export const AGAIN = 2;
export const RANKS = [FIRST, FIRST_OF_FAILING_TYPE, AGAIN] as const;

/** For `EndpointStore.readVersion`, twice with its parameter. PostgreSQL needs longer to plan a sum. */
export const ENDPOINT_VERSION = ['?', `'${STATE_PREFIX}' || ?`]
  .map((id) => `coalesce((SELECT version FROM endpoint WHERE id = ${id}), 0)`)
  .join(' + ');

/** For events without a tenant. */
export const NO_TENANT = '';

export function toTenant(name: string): string | undefined {
  return name === NO_TENANT ? undefined : name;
}

/**
 * The statements of each version add to the one before; an entry that was released never changes. Old replicas can run beside new ones, so a version only
 * adds what they do not need to know.
 */
const MIGRATIONS: readonly ((dialect: Dialect) => readonly string[])[] = [
  ({ integer, bytes, numberedKey, tableOptions, keyedTableOptions }) => [
    // The body has a separate table: a row that changes is written again as a whole.
    `CREATE TABLE event (
      seq ${numberedKey}, id TEXT NOT NULL UNIQUE, type TEXT NOT NULL, tenant TEXT NOT NULL, created ${integer} NOT NULL,
      bytes ${integer} NOT NULL, digest TEXT NOT NULL, targets ${integer} NOT NULL, waiting ${integer} NOT NULL, failed ${integer} NOT NULL
    ) ${tableOptions}`,
    'CREATE INDEX event_delivered ON event (created, seq) WHERE waiting = 0 AND failed = 0',
    'CREATE INDEX event_failed ON event (created, seq) WHERE waiting = 0 AND failed > 0',
    `CREATE INDEX event_tenant ON event (tenant, seq) WHERE tenant <> ''`,
    'CREATE INDEX event_unrouted ON event (seq) WHERE targets = 0',
    `CREATE TABLE payload (event ${integer} PRIMARY KEY, metadata TEXT NOT NULL, body ${bytes}) ${tableOptions}`,
    `CREATE TABLE lane (
      num ${numberedKey}, name TEXT NOT NULL UNIQUE, state TEXT, waiting ${integer} NOT NULL, bytes ${integer} NOT NULL,
      dead ${integer} NOT NULL, skipped ${integer} NOT NULL, owner TEXT, lease ${integer} NOT NULL
    ) ${tableOptions}`,
    // "events" and "bytes" are those with a delivery that waits.
    `CREATE TABLE tenant (
      name TEXT PRIMARY KEY, events ${integer} NOT NULL, bytes ${integer} NOT NULL, stored_events ${integer} NOT NULL,
      stored_bytes ${integer} NOT NULL
    ) ${keyedTableOptions}`,
    // "delay" is the time that a retry was given: no step of a clock makes it wait longer. Negative: the endpoint asked for it. "replay" is 0 until the
    // delivery is replayed or recovered, and another number each time: attempts from before do not end it.
    `CREATE TABLE delivery (
      event ${integer} NOT NULL, lane ${integer} NOT NULL, state ${integer} NOT NULL, rank ${integer} NOT NULL, due ${integer} NOT NULL,
      delay ${integer} NOT NULL, attempt ${integer} NOT NULL, tries ${integer} NOT NULL, replay ${integer} NOT NULL, settled ${integer},
      order_key TEXT, last TEXT, PRIMARY KEY (event, lane)
    ) ${keyedTableOptions}`,
    'CREATE INDEX delivery_due ON delivery (lane, rank, due, event) WHERE state = 0',
    'CREATE INDEX delivery_order ON delivery (lane, order_key, event) WHERE state < 2 AND order_key IS NOT NULL',
    'CREATE INDEX delivery_lane ON delivery (lane, event)',
    'CREATE INDEX delivery_failed ON delivery (event, lane) WHERE state > 2',
    'CREATE INDEX delivery_failed_lane ON delivery (lane, event) WHERE state > 2',
    `CREATE TABLE attempt (
      event ${integer} NOT NULL, lane ${integer} NOT NULL, n ${integer} NOT NULL, record TEXT NOT NULL, PRIMARY KEY (event, lane, n)
    ) ${keyedTableOptions}`,
    `CREATE TABLE endpoint (id TEXT PRIMARY KEY, version ${integer} NOT NULL, json TEXT NOT NULL) ${keyedTableOptions}`,
  ],
  // JSON of the delays that the deliveries of the lane follow, once they were compared with the schedule of the endpoint.
  () => ['ALTER TABLE lane ADD COLUMN schedule TEXT'],
  // When the newest event was created that was pruned.
  ({ integer }) => [`ALTER TABLE version ADD COLUMN pruned ${integer} NOT NULL DEFAULT 0`],
];

/** Creates the tables or brings them up to date, in a transaction of the caller, who makes sure that no other process does the same. */
export async function migrate(sql: Sql, place: string): Promise<void> {
  await sql.run(`CREATE TABLE IF NOT EXISTS version (number ${sql.dialect.integer} NOT NULL) ${sql.dialect.tableOptions}`);
  const [{ number: current } = { number: 0 }] = await sql.all<{ number: number }>('SELECT number FROM version');
  if (current > MIGRATIONS.length) {
    const text = `${place} was written by a newer sidegate (format ${current}, this one knows ${MIGRATIONS.length}); start the newer sidegate, or give the queue another place`;
    throw new SidegateError('user', 'queue_newer', text);
  }
  for (const statements of MIGRATIONS.slice(current)) for (const statement of statements(sql.dialect)) await sql.run(statement);
  if (current === 0) await sql.run('INSERT INTO version (number) VALUES (?)', [MIGRATIONS.length]);
  // Nothing to write: a queue whose disk is full can be opened.
  else if (current < MIGRATIONS.length) await sql.run('UPDATE version SET number = ?', [MIGRATIONS.length]);
}
