/** Records what attempts led to. */
import type { Operations, Results, SettleMessage } from '../operations.ts';
import type { Sql } from './database.ts';
import { LaneChanges, type LaneRow, lockLanes, parseState, TenantChanges } from './lanes.ts';
import { AGAIN, BLOCKED, DEAD, DELIVERED, DUE, FIRST, FIRST_OF_FAILING_TYPE, SKIPPED } from './schema.ts';

/** Attempts that are kept in `attempt`, besides the newest one in the delivery's row. */
const MAX_OLDER_ATTEMPTS = 19;
/** Waiting deliveries whose rank one settlement looks at. */
const RANKED_PER_SETTLEMENT = 2_000;
const FINAL_STATES = { delivered: DELIVERED, dead: DEAD, skipped: SKIPPED } as const;

/** A delivery that a statement ended. */
export interface EndedRow {
  readonly event: number;
  readonly lane: number;
  readonly state: number;
  readonly order_key: string | null;
}

/** A delivery with the figures of its event. */
export interface FoundRow extends EndedRow {
  readonly bytes: number;
  readonly tenant: string;
  readonly waiting: number;
}

/** The columns of `toPlaces`. */
export const PLACE = { event: 'integer', lane: 'integer' } as const;

/** The parameter for deliveries as a table. */
export function toPlaces(rows: readonly Pick<EndedRow, 'event' | 'lane'>[]): string {
  return JSON.stringify(rows.map(({ event, lane }) => ({ event, lane })));
}

/**
 * Settles the deliveries of several runs, in a transaction of the caller. The number of the attempt is the fence of each delivery: a late
 * settlement changes no row. Only the holder of the lane decides what happens next. A replica that lost the lane still records which
 * deliveries the endpoint acknowledged, because that is a fact.
 */
export async function settle(sql: Sql, settlements: readonly Operations['settle'][]): Promise<readonly Results['settle'][]> {
  const lanes = await lockLanes(
    sql,
    settlements.map(({ endpoint }) => endpoint),
  );
  const isLost = ({ endpoint, holder }: Operations['settle']): boolean => lanes.get(endpoint)?.owner !== holder;
  const rows = settlements.flatMap((settlement) => {
    const { num } = lanes.get(settlement.endpoint) as LaneRow;
    const valid = isLost(settlement)
      ? settlement.settled.filter((each) => each.settlement.kind === 'delivered')
      : settlement.settled;
    return valid.map((each) => toRow(num, each));
  });
  const nexts = new Map<number, number>();
  if (rows.length > 0) {
    const current = await update(sql, rows);
    const isMissing = current.length < rows.length;
    const changed = isMissing && (await reopen(sql, rows)) ? [...current, ...(await update(sql, rows))] : current;
    await end(
      sql,
      changed.filter(({ state }) => state > BLOCKED),
    );
    for (const { lane, state, due } of changed) if (state === DUE) noteNext(nexts, lane, due);
    for (const { lane, due } of await unblock(sql, changed)) noteNext(nexts, lane, due);
  }
  await saveStates(
    sql,
    settlements.filter((each) => !isLost(each)),
    lanes,
  );
  return settlements.map((each) => ({ next: nexts.get((lanes.get(each.endpoint) as LaneRow).num), isLost: isLost(each) }));
}

function noteNext(nexts: Map<number, number>, lane: number, due: number): void {
  nexts.set(lane, Math.min(nexts.get(lane) ?? due, due));
}

/** The columns of `toRow`. */
const SETTLED_COLUMNS = {
  seq: 'integer',
  num: 'integer',
  fence: 'integer',
  record: 'text',
  becomes: 'integer',
  next: 'integer',
  pause: 'integer',
  made: 'integer',
  at: 'integer',
} as const;
type SettledRow = { readonly [Name in keyof typeof SETTLED_COLUMNS]: number | string | null };

/** Its names differ from those of the table, so that RETURNING can name columns in both databases. */
function toRow(num: number, { seq, attempt, at, settlement, record }: SettleMessage): SettledRow {
  const common = { seq, num, fence: attempt, record: record ?? null };
  if (settlement.kind === 'postponed') return { ...common, becomes: DUE, next: settlement.due, pause: 0, made: 0, at: null };
  if (settlement.kind === 'retry')
    return { ...common, becomes: DUE, next: settlement.due, pause: Math.max(0, settlement.due - at), made: 1, at: null };
  const made = settlement.kind === 'skipped' ? 0 : 1;
  return { ...common, becomes: FINAL_STATES[settlement.kind], next: 0, pause: 0, made, at };
}

/** The rows that were changed, as they are now. */
async function update(sql: Sql, rows: readonly SettledRow[]): Promise<readonly (EndedRow & { readonly due: number })[]> {
  const isCurrent = 'd.event = r.seq AND d.lane = r.num AND d.attempt = r.fence AND d.state < 2';
  const again = rows.filter(({ fence }) => fence !== 0);
  if (again.length > 0) {
    const json = JSON.stringify(again);
    const from = sql.dialect.rows(SETTLED_COLUMNS);
    // The newest attempt so far moves out of the delivery's row.
    await sql.run(
      `INSERT INTO attempt SELECT d.event, d.lane, d.attempt, d.last FROM ${from} JOIN delivery d ON ${isCurrent}
       WHERE r.record IS NOT NULL AND d.last IS NOT NULL ON CONFLICT (event, lane, n) DO NOTHING`,
      [json],
    );
    await sql.run(
      `DELETE FROM attempt WHERE (event, lane, n) IN (SELECT r.seq, r.num, r.fence - ${MAX_OLDER_ATTEMPTS} FROM ${from})`,
      [json],
    );
  }
  return sql.each(
    `UPDATE delivery AS d SET state = r.becomes, due = r.next, delay = r.pause, attempt = d.attempt + r.made, tries = d.tries + r.made,
       rank = CASE WHEN r.made = 1 THEN ${AGAIN} ELSE d.rank END, settled = r.at, last = coalesce(r.record, d.last)
     FROM rows r WHERE ${isCurrent} RETURNING event, lane, state, due, order_key`,
    SETTLED_COLUMNS,
    rows,
  );
}

/** Makes deliveries wait that were canceled while the request was sent, and that the endpoint acknowledged. Whether there were any. */
async function reopen(sql: Sql, rows: readonly object[]): Promise<boolean> {
  const canceled = await sql.all<FoundRow>(
    `SELECT d.event, d.lane, d.state, d.order_key, e.bytes, e.tenant, e.waiting
     FROM ${sql.dialect.rows(SETTLED_COLUMNS)} JOIN delivery d ON d.event = r.seq AND d.lane = r.num AND d.attempt = r.fence JOIN event e ON e.seq = d.event
     WHERE r.becomes = ${DELIVERED} AND d.state = ${SKIPPED}${sql.dialect.forUpdate}`,
    [JSON.stringify(rows)],
  );
  if (canceled.length === 0) return false;
  await sql.run(
    `UPDATE delivery AS d SET state = ${DUE} FROM ${sql.dialect.rows(PLACE)} WHERE d.event = r.event AND d.lane = r.lane`,
    [toPlaces(canceled)],
  );
  await begin(sql, canceled);
  return true;
}

/** Counts deliveries that wait again. */
export async function begin(sql: Sql, rows: readonly FoundRow[]): Promise<void> {
  const [lanes, tenants] = [new LaneChanges(), new TenantChanges()];
  const events = new Map<number, { event: number; begun: number; failed: number }>();
  for (const { event, lane, state, bytes, tenant, waiting } of rows) {
    const change = lanes.of(lane);
    change.waiting++;
    change.bytes += bytes;
    if (state === DEAD) change.dead--;
    if (state === SKIPPED) change.skipped--;
    const known = events.get(event);
    const counted = known ?? { event, begun: 0, failed: 0 };
    events.set(event, counted);
    counted.begun++;
    if (state > DELIVERED) counted.failed++;
    if (known !== undefined || waiting > 0) continue;
    const ofTenant = tenants.of(tenant);
    ofTenant.events++;
    ofTenant.bytes += bytes;
  }
  await sql.run(
    `UPDATE event AS e SET waiting = e.waiting + r.begun, failed = e.failed - r.failed
     FROM ${sql.dialect.rows({ event: 'integer', begun: 'integer', failed: 'integer' })} WHERE e.seq = r.event`,
    [JSON.stringify([...events.values()])],
  );
  await lanes.write(sql);
  await tenants.write(sql);
}

/** Counts deliveries that no longer wait. */
export async function end(sql: Sql, ended: readonly EndedRow[]): Promise<void> {
  if (ended.length === 0) return;
  const events = new Map<number, { event: number; ended: number; failed: number }>();
  for (const { event, state } of ended) {
    const change = events.get(event) ?? { event, ended: 0, failed: 0 };
    events.set(event, change);
    change.ended++;
    if (state > DELIVERED) change.failed++;
  }
  const rows = await sql.each<{ seq: number; waiting: number; bytes: number; tenant: string }>(
    `UPDATE event AS e SET waiting = e.waiting - r.ended, failed = e.failed + r.failed
     FROM rows r WHERE e.seq = r.event RETURNING seq, waiting, bytes, tenant`,
    { event: 'integer', ended: 'integer', failed: 'integer' },
    [...events.values()],
  );
  const tenants = new TenantChanges();
  const sizes = new Map<number, number>();
  for (const { seq, waiting, bytes, tenant } of rows) {
    sizes.set(seq, bytes);
    if (waiting > 0) continue;
    const change = tenants.of(tenant);
    change.events--;
    change.bytes -= bytes;
  }
  const lanes = new LaneChanges();
  for (const { event, lane, state } of ended) {
    const change = lanes.of(lane);
    change.waiting--;
    change.bytes -= sizes.get(event) ?? 0;
    if (state === DEAD) change.dead++;
    if (state === SKIPPED) change.skipped++;
  }
  await lanes.write(sql);
  await tenants.write(sql);
}

/** Only the first waiting delivery of an order key is not blocked. Returns these, for the keys of `changed`. */
export async function unblock(
  sql: Sql,
  changed: readonly Pick<EndedRow, 'lane' | 'order_key'>[],
): Promise<readonly { readonly lane: number; readonly due: number }[]> {
  const keys = new Map(
    changed.flatMap(({ lane, order_key: key }) => (key === null ? [] : [[`${lane} ${key}`, { lane, key }] as const])),
  );
  if (keys.size === 0) return [];
  const parameters = [JSON.stringify([...keys.values()])];
  const heads = `SELECT r.lane, (SELECT min(d.event) FROM delivery d WHERE d.lane = r.lane AND d.order_key = r.key AND d.state < 2) AS event
    FROM ${sql.dialect.rows({ lane: 'integer', key: 'text' })}`;
  await sql.run(
    `UPDATE delivery AS d SET state = ${DUE} FROM (${heads}) h WHERE d.event = h.event AND d.lane = h.lane AND d.state = ${BLOCKED}`,
    parameters,
  );
  return sql.all(`SELECT d.lane, d.due FROM (${heads}) h JOIN delivery d ON d.event = h.event AND d.lane = h.lane`, parameters);
}

async function saveStates(
  sql: Sql,
  settlements: readonly Operations['settle'][],
  lanes: ReadonlyMap<string, LaneRow>,
): Promise<void> {
  const states = new Map<number, string>();
  for (const { endpoint, state } of settlements) if (state !== undefined) states.set((lanes.get(endpoint) as LaneRow).num, state);
  if (states.size === 0) return;
  await sql.each(
    'UPDATE lane SET state = r.state FROM rows r WHERE lane.num = r.num',
    { num: 'integer', state: 'text' },
    [...states].map(([num, state]) => ({ num, state })),
  );
  for (const { num, state: before } of lanes.values()) {
    const state = states.get(num);
    if (state !== undefined) await rankTypes(sql, num, before, state);
  }
}

/** First attempts of types that fail go behind those of others, also those that wait already. */
async function rankTypes(sql: Sql, lane: number, before: string | null, after: string): Promise<void> {
  const [was, failing] = [parseState(before)?.failingTypes ?? [], parseState(after)?.failingTypes ?? []];
  if (failing.length > 0) await changeRank(sql, lane, failing, FIRST, FIRST_OF_FAILING_TYPE);
  const recovered = was.filter((type) => !failing.includes(type));
  if (recovered.length > 0) await changeRank(sql, lane, recovered, FIRST_OF_FAILING_TYPE, FIRST);
}

/** The oldest deliveries only, which would be taken next: later settlements go on. Those that keep their rank are taken, only not in the best order. */
async function changeRank(sql: Sql, lane: number, types: readonly string[], from: number, to: number): Promise<void> {
  await sql.run(
    `UPDATE delivery SET rank = ${to} WHERE lane = ? AND event IN (
       SELECT d.event FROM (
         SELECT event FROM delivery WHERE lane = ? AND state = ${DUE} AND rank = ${from} ORDER BY due, event LIMIT ${RANKED_PER_SETTLEMENT}) d
       JOIN event e ON e.seq = d.event WHERE e.type IN ${sql.dialect.list('text')})`,
    [lane, lane, JSON.stringify(types)],
  );
}
