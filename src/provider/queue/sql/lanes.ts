/** The rows of endpoints and tenants, which a transaction locks before it changes anything else. */
import type { EpochMilliseconds } from '../../../core/clock.ts';
import { INBOX_PREFIX } from '../../events/event.ts';
import type { EndpointBacklog, InboxBacklog, LaneState, QueueBounds, QueueStats } from '../delivery-queue.ts';
import type { LaneChange, LaneRow, Sql, Stored, TenantChange } from './database.ts';
import { BLOCKED, DEAD, RANKS, SKIPPED } from './schema.ts';

/** How the figures of lanes and tenants change, which a transaction writes at its end. */
export class FigureChanges {
  readonly #lanes = new Map<number, LaneChange>();
  readonly #tenants = new Map<string, TenantChange>();

  /** `by`: 1 for a delivery that now is in this state, -1 for one that was. `bytes`: of its event. */
  countDelivery(lane: number, state: number, bytes: number, by: 1 | -1): void {
    const change = this.#lanes.get(lane) ?? { num: lane, waiting: 0, bytes: 0, dead: 0, skipped: 0 };
    this.#lanes.set(lane, change);
    if (state === DEAD) change.dead += by;
    else if (state === SKIPPED) change.skipped += by;
    else if (state <= BLOCKED) {
      change.waiting += by;
      change.bytes += by * bytes;
    }
  }

  /** An event of which a delivery waits now, or no longer. */
  countWaiting(tenant: string, bytes: number, by: 1 | -1): void {
    const change = this.#ofTenant(tenant);
    change.events += by;
    change.bytes += by * bytes;
  }

  countStored(tenant: string, bytes: number, by: 1 | -1): void {
    const change = this.#ofTenant(tenant);
    change.stored_events += by;
    change.stored_bytes += by * bytes;
  }

  #ofTenant(name: string): TenantChange {
    const change = this.#tenants.get(name) ?? { name, events: 0, bytes: 0, stored_events: 0, stored_bytes: 0 };
    this.#tenants.set(name, change);
    return change;
  }

  async write(sql: Sql): Promise<void> {
    await sql.each(
      `UPDATE lane SET waiting = lane.waiting + r.waiting, bytes = lane.bytes + r.bytes, dead = lane.dead + r.dead,
         skipped = lane.skipped + r.skipped FROM rows r WHERE lane.num = r.num`,
      'num bigint, waiting bigint, bytes bigint, dead bigint, skipped bigint',
      [...this.#lanes.values()],
    );
    for (const change of this.#lanes.values()) sql.memory?.changeLane(change);
    const tenants = [...this.#tenants.values()].toSorted((a, b) => (a.name < b.name ? -1 : 1));
    await sql.each(
      `INSERT INTO tenant SELECT r.name, r.events, r.bytes, r.stored_events, r.stored_bytes FROM rows r
       WHERE true ON CONFLICT (name) DO UPDATE SET events = tenant.events + excluded.events, bytes = tenant.bytes + excluded.bytes,
         stored_events = tenant.stored_events + excluded.stored_events, stored_bytes = tenant.stored_bytes + excluded.stored_bytes`,
      'name text, events bigint, bytes bigint, stored_events bigint, stored_bytes bigint',
      tenants,
    );
    for (const change of tenants) sql.memory?.changeTenant(change);
  }
}

/** The lanes that a transaction has locked, and the figures that it changes. */
export interface Locked {
  readonly lanes: ReadonlyMap<string, LaneRow>;
  readonly figures: FigureChanges;
}

/**
 * The lanes of these endpoints, which are created if they are new. So that no two transactions wait for each other, each locks all its lanes at once
 * by number, then events by number, and last the tenants, whose figures it writes at its end.
 */
export async function lockLanes(sql: Sql, names: ReadonlySet<string>): Promise<Map<string, LaneRow>> {
  const found = await readLanes(sql, names, sql.dialect.forUpdate);
  if (found.size === names.size) return found;
  const missing = [...names].filter((name) => !found.has(name));
  await addLanes(sql, missing);
  return readLanes(sql, names, sql.dialect.forUpdate);
}

/** Before the transaction locks any: another one may create the same lanes. */
export async function addLanes(sql: Sql, names: readonly string[]): Promise<void> {
  await sql.run(
    `INSERT INTO lane (name, waiting, bytes, dead, skipped, lease)
     SELECT r.name, 0, 0, 0, 0, 0 FROM ${sql.dialect.rows('name text')} WHERE true ORDER BY r.name ON CONFLICT (name) DO NOTHING`,
    [JSON.stringify(names.map((name) => ({ name })))],
  );
}

export async function readLanes(sql: Sql, names: Iterable<string>, lock = ''): Promise<Map<string, LaneRow>> {
  const { memory } = sql;
  const [lanes, unknown] = [new Map<string, LaneRow>(), new Set<string>()];
  for (const name of names) {
    const lane = memory?.findLane(name);
    if (lane === undefined) unknown.add(name);
    else lanes.set(name, lane);
  }
  if (unknown.size === 0) return lanes;
  const rows = await sql.each<LaneRow>(
    `SELECT l.num, l.name, l.state, l.waiting, l.bytes, l.owner FROM lane l, rows r WHERE l.name = r.name ORDER BY l.num${lock}`,
    'name text',
    [...unknown].map((name) => ({ name })),
  );
  for (const row of rows) {
    lanes.set(row.name, row);
    memory?.addLane(row);
  }
  return lanes;
}

/** Removes those of these tenants that have no event any more: each append reads all. */
export async function removeEmptyTenants(sql: Sql, names: readonly string[]): Promise<void> {
  await sql.run(`DELETE FROM tenant WHERE stored_events = 0 AND events = 0 AND name IN ${sql.dialect.list('text')}`, [
    JSON.stringify(names),
  ]);
}

/** Removes those of these lanes that have no delivery any more, unless a replica holds them: the endpoint may not exist any more. One that does starts as a new one. */
export async function removeEmptyLanes(sql: Sql, nums: readonly number[]): Promise<void> {
  await sql.run(
    `DELETE FROM lane WHERE waiting = 0 AND dead = 0 AND skipped = 0 AND owner IS NULL AND num IN ${sql.dialect.list('bigint')}
       AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.lane = lane.num)`,
    [JSON.stringify(nums)],
  );
  // It remembers the numbers of lanes.
  sql.memory?.clear();
}

/** When the first delivery of a lane that is not blocked is due, taken or not. In a statement with the lane as `l`. */
const FIRST_DUE = `(SELECT min(due) FROM (${RANKS.map(
  (rank) => `SELECT min(due) AS due FROM delivery WHERE lane = l.num AND state = 0 AND rank = ${rank}`,
).join(' UNION ALL ')}) firsts)`;

/** Figures of the store, without a scan of its deliveries. */
export async function readStats(
  sql: Sql,
  { now }: { readonly now: EpochMilliseconds },
  { bounds }: { readonly bounds: QueueBounds },
): Promise<QueueStats> {
  const { maxEvents, maxBytes, endpointShare, tenantShare } = bounds;
  type Sums = Record<'waiting' | 'dead' | 'skipped' | 'most' | 'bytes' | 'prunedUntil', number> & { readonly due: number | null };
  const [lanes] = await sql.all<Sums>(
    `SELECT (SELECT pruned FROM version) AS "prunedUntil", coalesce(sum(waiting), 0) AS waiting, coalesce(sum(dead), 0) AS dead, coalesce(sum(skipped), 0) AS skipped,
       max(waiting) AS most, max(bytes) AS bytes, min(CASE WHEN waiting > 0 THEN ${FIRST_DUE} END) AS due FROM lane l`,
  );
  const [tenants] = await sql.all<Record<'most' | 'bytes', number>>(
    `SELECT max(events) AS most, max(bytes) AS bytes FROM tenant WHERE name <> ''`,
  );
  const toUsed = (figures: typeof tenants, share: number): number =>
    Math.max((figures?.most ?? 0) / (share * maxEvents), (figures?.bytes ?? 0) / (share * maxBytes));
  const stored = await readStored(sql);
  const { waiting = 0, dead = 0, skipped = 0, due = null, prunedUntil = 0 } = lanes ?? {};
  const usedShares = { endpoint: toUsed(lanes, endpointShare), tenant: toUsed(tenants, tenantShare) };
  const oldest = due !== null && due <= now && { oldestDue: due };
  return { waiting, dead, skipped, prunedUntil, ...stored, maxEvents, maxBytes, usedShares, ...oldest };
}

export async function readStored(sql: Sql): Promise<Stored> {
  const { memory } = sql;
  if (memory?.stored !== undefined) return memory.stored;
  const [stored] = (await sql.all<Stored>(
    `SELECT coalesce(sum(events), 0) AS events, coalesce(sum(bytes), 0) AS bytes, coalesce(sum(stored_events), 0) AS "storedEvents",
       coalesce(sum(stored_bytes), 0) AS "storedBytes" FROM tenant`,
  )) as [Stored];
  if (memory !== undefined) memory.stored = stored;
  return stored;
}

export async function readBacklogs(
  sql: Sql,
  { endpoints, now }: { readonly endpoints: readonly string[]; readonly now: EpochMilliseconds },
): Promise<readonly EndpointBacklog[]> {
  const rows = await sql.all<{ name: string; waiting: number; bytes: number; due: number | null }>(
    `SELECT name, waiting, bytes, ${FIRST_DUE} AS due FROM lane l WHERE name IN ${sql.dialect.list('text')}`,
    [JSON.stringify(endpoints)],
  );
  const byName = new Map(rows.map((row) => [row.name, row]));
  return endpoints.map((name) => {
    const { waiting = 0, due = null } = byName.get(name) ?? {};
    return { waiting, ...(due !== null && due <= now && { oldestDue: due }) };
  });
}

/** The inboxes with deliveries that were not handled. */
export function readInboxes(sql: Sql): Promise<readonly InboxBacklog[]> {
  return sql.all('SELECT name AS endpoint, waiting FROM lane WHERE name LIKE ? AND waiting + dead + skipped > 0 ORDER BY name', [
    `${INBOX_PREFIX}%`,
  ]);
}

/** The lanes that this replica may serve, as no other one has their lease at this time, and when the first delivery of each is due. */
export async function readDueLanes(sql: Sql, { owner, now }: { readonly owner: string; readonly now: EpochMilliseconds }) {
  const rows = await sql.all<{ endpoint: string; next: number | null }>(
    `SELECT name AS endpoint, ${FIRST_DUE} AS next FROM lane l WHERE waiting > 0 AND (owner IS NULL OR owner = ? OR lease < ?)`,
    [owner, now],
  );
  return rows.flatMap(({ endpoint, next }) => (next === null ? [] : [{ endpoint, next }]));
}

/** The state that the last run of each lane settled. */
export async function readStates(sql: Sql, { endpoints }: { readonly endpoints: readonly string[] }) {
  const lanes = await readLanes(sql, endpoints);
  return endpoints.map((name) => parseState(lanes.get(name)?.state));
}

export function parseState(text: string | null | undefined): LaneState | undefined {
  return text === undefined || text === null ? undefined : (JSON.parse(text) as LaneState);
}
