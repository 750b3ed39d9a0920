/** Brings the file of a queue from before the version table (format 1 in `user_version`) to the tables of today, in a transaction of the caller. */
import type { DatabaseSync } from 'node:sqlite';
import { toOrderKey } from '../../endpoints/endpoint.ts';
import { toDigest } from '../sql/append.ts';
import type { Sql } from '../sql/database.ts';
import { migrate } from '../sql/schema.ts';

const TABLES = ['event', 'lane', 'delivery', 'attempt', 'endpoint'] as const;
const INDEXES = [
  'event_created',
  'delivery_due',
  'delivery_order',
  'delivery_endpoint',
  'delivery_failed',
  'delivery_failed_endpoint',
] as const;

/** In this order: later ones count what the earlier ones copied. */
const COPIES = [
  'INSERT INTO endpoint SELECT id, version, json FROM old_endpoint',
  'INSERT INTO payload SELECT seq, metadata, body FROM old_event',
  'INSERT INTO attempt SELECT event, endpoint, n, record FROM old_attempt',
  `INSERT INTO delivery SELECT event, endpoint, state, CASE WHEN attempt > 0 OR replay = 1 THEN 2 ELSE 0 END, due,
     CASE WHEN state < 2 AND tries > 0 THEN max(0, due - coalesce(last ->> 'at', due)) ELSE 0 END,
     attempt, tries, replay, settled, to_order_key((SELECT name FROM old_lane WHERE num = endpoint), order_key), last FROM old_delivery`,
  `INSERT INTO event (seq, id, type, tenant, created, bytes, digest, targets, waiting, failed)
     SELECT e.seq, e.id, e.type, coalesce(e.tenant, ''), e.created, e.bytes, to_digest(e.type, e.tenant, e.body),
       count(d.event), count(CASE WHEN d.state < 2 THEN 1 END), count(CASE WHEN d.state > 2 THEN 1 END)
     FROM old_event e LEFT JOIN delivery d ON d.event = e.seq GROUP BY e.seq`,
  `INSERT INTO lane (num, name, state, waiting, bytes, dead, skipped, owner, lease)
     SELECT l.num, l.name, l.state, count(CASE WHEN d.state < 2 THEN 1 END), coalesce(sum(CASE WHEN d.state < 2 THEN e.bytes END), 0),
       count(CASE WHEN d.state = 3 THEN 1 END), count(CASE WHEN d.state = 4 THEN 1 END), NULL, 0
     FROM old_lane l LEFT JOIN delivery d ON d.lane = l.num LEFT JOIN event e ON e.seq = d.event GROUP BY l.num`,
  `INSERT INTO tenant SELECT tenant, count(CASE WHEN waiting > 0 THEN 1 END), coalesce(sum(CASE WHEN waiting > 0 THEN bytes END), 0),
     count(*), sum(bytes) FROM event GROUP BY tenant`,
] as const;

/** Creates the tables, and copies what the old ones have. */
export async function upgrade(db: DatabaseSync, sql: Sql, path: string): Promise<void> {
  db.function('to_digest', { deterministic: true }, (type, tenant, body) =>
    toDigest(String(type), tenant === null ? undefined : String(tenant), body instanceof Uint8Array ? body : new Uint8Array(0)),
  );
  db.function('to_order_key', { deterministic: true }, (endpoint, value) =>
    value === null ? null : toOrderKey(String(endpoint), String(value)),
  );
  for (const name of INDEXES) db.exec(`DROP INDEX ${name}`);
  for (const name of TABLES) db.exec(`ALTER TABLE ${name} RENAME TO old_${name}`);
  await migrate(sql, path);
  for (const statement of COPIES) db.exec(statement);
  for (const name of TABLES) db.exec(`DROP TABLE old_${name}`);
  db.exec('DROP TABLE counters; PRAGMA user_version = 0');
}
