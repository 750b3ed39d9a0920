/** Removes events of which no delivery waits: those whose time is over, and the oldest ones if the store is too large. */
import type { EpochMilliseconds } from '../../../core/clock.ts';
import type { QueueBounds } from '../delivery-queue.ts';
import type { Sql } from './database.ts';
import { readStored, removeEmptyLanes, removeEmptyTenants, TenantChanges } from './lanes.ts';
import { type RemovedRow, takeStep, uncountFailed } from './repair.ts';

interface EventRow {
  readonly seq: number;
  readonly bytes: number;
  readonly tenant: string;
  readonly targets: number;
}

/** In the order in which they leave a store that is too large. */
const KINDS = ['failed = 0', 'failed > 0'] as const;

/** Removes at most `most` events; returns how many. 0: no more. */
export async function pruneStep(
  sql: Sql,
  { settledBefore, deadBefore, most }: Record<'settledBefore' | 'deadBefore', EpochMilliseconds> & { readonly most: number },
  { bounds: { maxBytes } }: { readonly bounds: QueueBounds },
): Promise<number> {
  for (const [kind, before] of [
    [KINDS[0], settledBefore],
    [KINDS[1], deadBefore],
  ] as const) {
    const old = await remove(sql, await find(sql, kind, most, before));
    if (old > 0) return old;
  }
  const excess = (await readStored(sql)).storedBytes - maxBytes;
  for (const kind of KINDS) {
    const gone = excess <= 0 ? 0 : await remove(sql, takeBytes(await find(sql, kind, most), excess));
    if (gone > 0) return gone;
  }
  return 0;
}

async function find(sql: Sql, kind: string, most: number, before?: number): Promise<readonly EventRow[]> {
  const [condition, parameters] = before === undefined ? ['', []] : [' AND created < ?', [before]];
  const found = await sql.all<EventRow>(
    `SELECT seq, bytes, tenant, targets FROM event WHERE waiting = 0 AND ${kind}${condition} ORDER BY created, seq LIMIT ?`,
    [...parameters, most],
  );
  return takeStep(found);
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

/** Returns how many were removed: one that is due again meanwhile stays. */
async function remove(sql: Sql, events: readonly EventRow[]): Promise<number> {
  if (events.length === 0) return 0;
  const list = sql.dialect.list('integer');
  const removed = await sql.all<Omit<EventRow, 'targets'>>(
    `DELETE FROM event WHERE seq IN ${list} AND waiting = 0 RETURNING seq, bytes, tenant`,
    [JSON.stringify(events.map(({ seq }) => seq))],
  );
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
  return removed.length;
}
