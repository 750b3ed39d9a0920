/** Removes events of which no delivery waits: those whose time is over, and the oldest ones if the store is too large. */
import type { QueueBounds } from '../delivery-queue.ts';
import type { Operations } from '../operations.ts';
import type { Sql } from './database.ts';
import { readStored, removeEmptyLanes, removeEmptyTenants, TenantChanges } from './lanes.ts';
import { type RemovedRow, uncountFailed } from './repair.ts';

interface EventRow {
  readonly seq: number;
  readonly bytes: number;
  readonly tenant: string;
}

/** In the order in which they leave a store that is too large. */
const KINDS = ['failed = 0', 'failed > 0'] as const;

/** Removes at most `most` events; returns how many. */
export async function pruneStep(
  sql: Sql,
  { settledBefore, deadBefore, most }: Operations['pruneStep'],
  { maxBytes }: QueueBounds,
): Promise<number> {
  let excess = (await readStored(sql)).storedBytes - maxBytes;
  let removed = 0;
  for (const [kind, before] of [
    [KINDS[0], settledBefore],
    [KINDS[1], deadBefore],
  ] as const) {
    const old = await remove(sql, await find(sql, kind, most - removed, before));
    removed += old.length;
    excess -= sumBytes(old);
  }
  for (const kind of KINDS) {
    if (excess <= 0 || removed >= most) break;
    const oldest = await find(sql, kind, most - removed);
    const gone = await remove(sql, takeBytes(oldest, excess));
    removed += gone.length;
    excess -= sumBytes(gone);
  }
  return removed;
}

function find(sql: Sql, kind: string, most: number, before?: number): Promise<readonly EventRow[]> {
  if (most <= 0) return Promise.resolve([]);
  const [condition, parameters] = before === undefined ? ['', []] : [' AND created < ?', [before]];
  return sql.all(`SELECT seq, bytes, tenant FROM event WHERE waiting = 0 AND ${kind}${condition} ORDER BY created, seq LIMIT ?`, [
    ...parameters,
    most,
  ]);
}

/** The first events that have so many bytes together. */
function takeBytes(events: readonly EventRow[], bytes: number): readonly EventRow[] {
  let sum = 0;
  const end = events.findIndex((event) => {
    sum += event.bytes;
    return sum >= bytes;
  });
  return end === -1 ? events : events.slice(0, end + 1);
}

function sumBytes(events: readonly EventRow[]): number {
  return events.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** Returns those that were removed: one that is due again meanwhile stays. */
async function remove(sql: Sql, events: readonly EventRow[]): Promise<readonly EventRow[]> {
  if (events.length === 0) return [];
  const list = sql.dialect.list('integer');
  const removed = await sql.all<EventRow>(`DELETE FROM event WHERE seq IN ${list} AND waiting = 0 RETURNING seq, bytes, tenant`, [
    JSON.stringify(events.map(({ seq }) => seq)),
  ]);
  const seqs = JSON.stringify(removed.map(({ seq }) => seq));
  await sql.run(`DELETE FROM payload WHERE event IN ${list}`, [seqs]);
  await sql.run(`DELETE FROM attempt WHERE event IN ${list}`, [seqs]);
  const deliveries = await sql.all<RemovedRow>(`DELETE FROM delivery WHERE event IN ${list} RETURNING event, lane, state`, [
    seqs,
  ]);
  await uncountFailed(sql, deliveries);
  await removeEmptyLanes(sql, [...new Set(deliveries.map(({ lane }) => lane))]);
  const tenants = new TenantChanges();
  for (const { tenant, bytes } of removed) {
    const change = tenants.of(tenant);
    change.stored_events--;
    change.stored_bytes -= bytes;
  }
  await tenants.write(sql);
  await removeEmptyTenants(sql, [...new Set(removed.map(({ tenant }) => tenant))]);
  return removed;
}
