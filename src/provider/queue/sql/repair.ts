/** Changes to many deliveries and events: retries, cancellations and purges, the erasure of payloads, and pruning. */
import type { EpochMilliseconds } from '../../../core/clock.ts';
import type { SidegateError } from '../../../core/errors.ts';
import type { DeliveryFilter, QueueBounds, RepairAction } from '../delivery-queue.ts';
import type { Position, PrunePosition, RepairPosition } from '../messages.ts';
import { Usage } from './append.ts';
import type { LaneRow, Parameter, Sql } from './database.ts';
import { FigureChanges, lockLanes, readStored, removeEmptyLanes, removeEmptyTenants } from './lanes.ts';
import { AGAIN, BLOCKED, DUE, SKIPPED, toTenant } from './schema.ts';
import { type Condition, findStep, type Selection, select, toValues, toWaiting, toWhere } from './select.ts';
import { begin, change, end, type FoundRow, PLACE, type RemovedRow, toPlaces, unblock, uncountFailed } from './settle.ts';

const CHANGED_PER_STEP = 500;
/** Deliveries of lanes that one step compares with the clock, or with a schedule. */
const LANE_ROWS_PER_STEP = 2_000;
const LANES_PER_STEP = 50;
/** Events that one step of pruning reads, to find those of a tenant. */
const EVENTS_PER_STEP = 2_000;

/** Nothing is left to send of an event that was erased. */
const HAS_BODY = 'EXISTS (SELECT 1 FROM payload p WHERE p.event = d.event AND p.body IS NOT NULL)';

/** Deliveries that were settled after `now`, when the repair began, and not later than `until` are not part of it. */
interface Repair {
  readonly action: RepairAction;
  readonly filter: DeliveryFilter;
  readonly now: EpochMilliseconds;
  readonly until: EpochMilliseconds;
}

async function selectRepaired(sql: Sql, { action, filter, now, until }: Repair): Promise<Selection | undefined> {
  // The other actions change deliveries in every state.
  const selection = await select(sql, filter, action === 'cancel' ? ['waiting'] : undefined);
  const isOld: Condition = ['(d.settled IS NULL OR d.settled <= ? OR d.settled > ?)', now, until];
  const more: readonly Condition[] = action === 'retry' ? [isOld, [HAS_BODY]] : [isOld];
  return selection && { ...selection, conditions: [...selection.conditions, ...more] };
}

/** Whether all that waits for an endpoint is canceled, as when it is disabled. */
function isOfWholeLane({ action, filter: { endpoint, states: _, ...others } }: Repair): boolean {
  return action === 'cancel' && endpoint !== undefined && Object.values(others).every((value) => value === undefined);
}

/** Counts what matches in a bounded number of rows; `position` is undefined in the first step. */
export async function countStep(sql: Sql, operation: Repair & { readonly position: RepairPosition | undefined }) {
  const { position } = operation;
  const last = position?.end ?? (await sql.all<{ seq: number | null }>('SELECT max(seq) AS seq FROM event'))[0]?.seq ?? 0;
  const selection = await selectRepaired(sql, operation);
  const from = position ?? { event: 0, lane: 0, end: last };
  if (selection === undefined) return { count: 0, position: from, isDone: true };
  if (isOfWholeLane(operation)) {
    const [lane] = await sql.all<{ waiting: number }>('SELECT waiting FROM lane WHERE num = ?', toValues(selection.range));
    return { count: lane?.waiting ?? 0, position: from, isDone: true };
  }
  const step = await findStep(sql, selection, 'oldest', from, last);
  const [{ count } = { count: 0 }] = await sql.all<{ count: number }>(
    `SELECT count(*) AS count FROM ${step.source} JOIN event e ON e.seq = d.event WHERE ${toWhere(selection.conditions)}`,
    [...step.parameters, ...toValues(selection.conditions)],
  );
  return { count, position: { ...(step.end ?? from), end: last }, isDone: step.end === undefined };
}

/**
 * Changes what matches in a bounded number of rows. `rejected`: deliveries that would have exceeded a bound or a share, and `reason`: what the first one
 * would have exceeded. `endpoints`: those with deliveries that are due now, or that waited before. `position`: undefined at the end.
 */
export async function repairStep(
  sql: Sql,
  operation: Repair & { readonly position: RepairPosition },
  { bounds }: { readonly bounds: QueueBounds },
) {
  const { action, position, now } = operation;
  const selection = await selectRepaired(sql, operation);
  if (selection === undefined) return { changed: 0, rejected: 0, endpoints: [] };
  const step = isOfWholeLane(operation)
    ? toWaiting(selection, position.end, CHANGED_PER_STEP)
    : await findStep(sql, selection, 'oldest', position, position.end);
  const locked = await lockLanesOf(sql, step.source, step.parameters);
  const rows = await sql.all<FoundRow>(
    `SELECT d.event, d.lane, d.state, d.order_key, e.bytes, e.tenant, e.waiting FROM ${step.source} JOIN event e ON e.seq = d.event
     WHERE ${toWhere(selection.conditions)} ORDER BY d.event, d.lane LIMIT ?`,
    [...step.parameters, ...toValues(selection.conditions), CHANGED_PER_STEP],
  );
  const { fitting, reason } =
    action === 'retry' ? await selectFitting(sql, rows, locked, bounds) : { fitting: rows, reason: undefined };
  const figures = new FigureChanges();
  const changed = fitting.length === 0 ? [] : await ACTIONS[action](sql, fitting, now, figures);
  await figures.write(sql);
  const next = rows.length === CHANGED_PER_STEP ? rows.at(-1) : step.end;
  return {
    changed: fitting.length,
    rejected: rows.length - fitting.length,
    reason,
    endpoints: toNames(changed, locked),
    position: next && { event: next.event, lane: next.lane, end: position.end },
  };
}

/** Locks the lanes of the deliveries `d`. */
async function lockLanesOf(sql: Sql, source: string, parameters: readonly Parameter[]) {
  const found = `SELECT DISTINCT l.name FROM ${source} JOIN lane l ON l.num = d.lane`;
  const lanes = await sql.all<{ name: string }>(found, parameters);
  return lockLanes(sql, new Set(lanes.map(({ name }) => name)));
}

/** Omits deliveries that do not wait and would exceed a bound of the queue. */
async function selectFitting(sql: Sql, rows: readonly FoundRow[], lanes: ReadonlyMap<string, LaneRow>, bounds: QueueBounds) {
  const tenants = rows.map(({ tenant }) => tenant);
  const usage = await Usage.read(sql, bounds, lanes, tenants);
  const names = new Map([...lanes.values()].map(({ num, name }) => [num, name]));
  const begun = new Set<number>();
  let reason: string | undefined;
  const fitting = rows.filter((row) => {
    if (row.state <= BLOCKED) return true;
    const isCounted = row.waiting > 0 || begun.has(row.event);
    const rejection = usage.add([
      { tenant: toTenant(row.tenant), bytes: row.bytes, endpoints: [names.get(row.lane) ?? ''], isCounted },
    ]);
    if (rejection === undefined) begun.add(row.event);
    reason ??= rejection?.message;
    return rejection === undefined;
  });
  return { fitting, reason };
}

function toNames(rows: readonly { readonly lane: number }[], lanes: ReadonlyMap<string, LaneRow>): readonly string[] {
  const nums = new Set(rows.map(({ lane }) => lane));
  return [...lanes.values()].filter(({ num }) => nums.has(num)).map(({ name }) => name);
}

/** Changes deliveries; returns those that are due now, or that waited: what lanes took of them is outdated. */
type Change = (sql: Sql, rows: readonly FoundRow[], now: number, figures: FigureChanges) => Promise<readonly FoundRow[]>;

/**
 * Makes deliveries due now. Each that waits keeps its place in the schedule and in the order of its key. It can be in flight, so it becomes due
 * earlier than it was in any case: its settlement sees that.
 */
async function retry(sql: Sql, rows: readonly FoundRow[], now: number, figures: FigureChanges): ReturnType<Change> {
  const waiting = rows.filter(({ state }) => state <= BLOCKED);
  await change(sql, waiting, 'due = CASE WHEN d.due > ? THEN ? ELSE d.due - 1 END, delay = 0', [now, now]);
  const settled = rows.filter(({ state }) => state > BLOCKED);
  if (settled.length === 0) return rows;
  // Blocked at first: `unblock` then finds the first one of each key.
  const state = `CASE WHEN d.order_key IS NULL THEN ${DUE} ELSE ${BLOCKED} END`;
  const again = `state = ${state}, due = ?, delay = 0, tries = 0, replay = d.replay + 1, rank = ${AGAIN}, settled = NULL`;
  await change(sql, settled, again, [now]);
  await block(sql, settled);
  await unblock(sql, settled);
  await begin(sql, settled, figures);
  return rows;
}

/** A later delivery of a key that was the first one waits behind an earlier one that is due again. `+ 0`: by the index of keys, whose others are blocked. */
async function block(sql: Sql, rows: readonly FoundRow[]): Promise<void> {
  const keys = rows.flatMap(({ lane, order_key: key }) => (key === null ? [] : [{ lane, key }]));
  if (keys.length === 0) return;
  await sql.run(
    `UPDATE delivery AS d SET state = ${BLOCKED} FROM (SELECT r.lane, (SELECT d.event FROM delivery d
         WHERE d.lane = r.lane AND d.order_key = r.key AND d.state < 2 AND d.state + 0 = ${DUE} ORDER BY d.event LIMIT 1) AS event
       FROM (SELECT DISTINCT r.lane, r.key FROM ${sql.dialect.rows('lane bigint, key text')}) r) h
     WHERE d.event = h.event AND d.lane = h.lane`,
    [JSON.stringify(keys)],
  );
}

/** Waiting deliveries are no longer sent; they can be retried later. */
async function cancel(sql: Sql, rows: readonly FoundRow[], now: number, figures: FigureChanges): ReturnType<Change> {
  await change(sql, rows, `state = ${SKIPPED}, due = 0, delay = 0, settled = ?`, [now]);
  const canceled = rows.map((row) => ({ ...row, state: SKIPPED }));
  await end(sql, canceled, figures);
  await unblock(sql, rows);
  return rows;
}

/** Removes deliveries. Their events stay until their time is over, so that they are not accepted again. */
async function purge(sql: Sql, rows: readonly FoundRow[], now: number, figures: FigureChanges): ReturnType<Change> {
  const waiting = rows.filter(({ state }) => state <= BLOCKED);
  if (waiting.length > 0) await cancel(sql, waiting, now, figures);
  const places = toPlaces(rows);
  const match = `(event, lane) IN (SELECT r.event, r.lane FROM ${sql.dialect.rows(PLACE)})`;
  await sql.run(`DELETE FROM attempt WHERE ${match}`, [places]);
  const removed = await sql.all<RemovedRow>(`DELETE FROM delivery WHERE ${match} RETURNING event, lane, state`, [places]);
  await uncountFailed(sql, removed, figures);
  return waiting;
}

const ACTIONS: Readonly<Record<RepairAction, Change>> = { retry, cancel, purge };

/** Creates the delivery of an event to an endpoint if it did not exist. Returns the bound of the queue that it would exceed. */
export async function addDelivery(
  sql: Sql,
  operation: Record<'event' | 'endpoint', string> & { readonly now: number; readonly orderKey: string | null },
  { bounds }: { readonly bounds: QueueBounds },
): Promise<boolean | SidegateError> {
  const { event, endpoint, now, orderKey } = operation;
  const lanes = await lockLanes(sql, new Set([endpoint]));
  const lane = lanes.get(endpoint) as LaneRow;
  const [found] = await sql.all<{ seq: number; bytes: number; tenant: string; waiting: number }>(
    `SELECT seq, bytes, tenant, waiting FROM event WHERE id = ?${sql.dialect.forUpdate}`,
    [event],
  );
  if (found === undefined) return false;
  // After the lock: it may have waited for an erasure.
  const missing = await sql.all(
    `SELECT 1 FROM payload p WHERE p.event = ? AND p.body IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.event = p.event AND d.lane = ?)`,
    [found.seq, lane.num],
  );
  if (missing.length === 0) return false;
  const tenant = toTenant(found.tenant);
  const usage = await Usage.read(sql, bounds, lanes, [tenant]);
  const rejection = usage.add([{ tenant, bytes: found.bytes, endpoints: [endpoint], isCounted: found.waiting > 0 }]);
  if (rejection !== undefined) return rejection;
  // Blocked at first: `unblock` then finds the first one of the key.
  await sql.run(
    `INSERT INTO delivery VALUES (?, ?, ${orderKey === null ? DUE : BLOCKED}, ${AGAIN}, ?, 0, 0, 0, ?, NULL, ?, NULL)`,
    [found.seq, lane.num, now, now, orderKey],
  );
  const figures = new FigureChanges();
  const row = { ...found, event: found.seq, lane: lane.num, state: DUE, order_key: orderKey };
  await block(sql, [row]);
  await unblock(sql, [row]);
  await sql.run('UPDATE event SET targets = targets + 1 WHERE seq = ?', [found.seq]);
  await begin(sql, [row], figures);
  await figures.write(sql);
  return true;
}

/** The first of the events, at least one, that have few enough deliveries together for one step. */
function takeStep<Row extends { readonly targets: number }>(events: readonly Row[]): readonly Row[] {
  let deliveries = 0;
  return events.filter(({ targets }, index) => {
    deliveries += targets;
    return index === 0 || deliveries <= CHANGED_PER_STEP;
  });
}

/** Events with this ID, or all of a tenant. */
interface Erasure {
  readonly event?: string | undefined;
  readonly tenant?: string | undefined;
  readonly now: EpochMilliseconds;
  /** The number of the event with which the step before ended; 0 at first. */
  readonly after: number;
  /** Events that the step reads. */
  readonly most: number;
}

/**
 * Removes the bodies of events; waiting deliveries are canceled. Their IDs stay, so that they are not accepted again. Returns how many events, the
 * endpoints with deliveries that waited, and where the next step continues; undefined: at the end.
 */
export async function eraseStep(sql: Sql, { event, tenant, now, after, most }: Erasure) {
  const [condition, value] = event === undefined ? [`e.tenant = ? AND e.tenant <> ''`, tenant ?? ''] : ['e.id = ?', event];
  const found = await sql.all<{ seq: number; erased: number; targets: number }>(
    `SELECT e.seq, e.targets, CASE WHEN p.body IS NULL THEN 1 ELSE 0 END AS erased FROM event e JOIN payload p ON p.event = e.seq
     WHERE ${condition} AND e.seq > ? ORDER BY e.seq LIMIT ?`,
    [value, after, most],
  );
  const events = takeStep(found);
  const next = found.length < most && events.length === found.length ? undefined : events.at(-1)?.seq;
  const stored = events.filter(({ erased }) => erased === 0);
  if (stored.length === 0) return { erased: 0, endpoints: [], next };
  const seqs = JSON.stringify(stored.map(({ seq }) => seq));
  const locked = await lockErased(sql, seqs);
  const waiting = await sql.all<FoundRow>(
    `SELECT d.event, d.lane, d.state, d.order_key, e.bytes, e.tenant, e.waiting FROM delivery d JOIN event e ON e.seq = d.event
     WHERE d.state < 2 AND d.event IN ${sql.dialect.list('bigint')}`,
    [seqs],
  );
  const figures = new FigureChanges();
  if (waiting.length > 0) await cancel(sql, waiting, now, figures);
  await figures.write(sql);
  const isErased = `event IN ${sql.dialect.list('bigint')}`;
  await sql.run(`UPDATE delivery SET order_key = NULL WHERE order_key IS NOT NULL AND ${isErased}`, [seqs]);
  await sql.run(`UPDATE payload SET body = NULL, metadata = '{}' WHERE ${isErased}`, [seqs]);
  return { erased: stored.length, endpoints: toNames(waiting, locked), next };
}

/** Nothing else makes a delivery of these events wait before the end of the transaction. `seqs`: JSON of their numbers. Returns their lanes. */
async function lockErased(sql: Sql, seqs: string): Promise<ReadonlyMap<string, LaneRow>> {
  const list = sql.dialect.list('bigint');
  const deliveries = `(SELECT lane FROM delivery WHERE event IN ${list}) d`;
  // Those in which deliveries are retried. In none of the others can one be created once the events are locked.
  await lockLanesOf(sql, deliveries, [seqs]);
  await sql.all(`SELECT seq FROM event WHERE seq IN ${list} ORDER BY seq${sql.dialect.forUpdate}`, [seqs]);
  return lockLanesOf(sql, deliveries, [seqs]);
}

/** Deliveries that wait longer than the delay that they were given, because a clock was ahead, are due when that delay is over. */
export async function hastenStep(sql: Sql, { now, after }: { readonly now: EpochMilliseconds; readonly after: Position }) {
  const lanes = await sql.all<Pick<LaneRow, 'num' | 'name'>>(
    `SELECT num, name FROM lane WHERE num >= ? AND waiting > 0 ORDER BY num LIMIT ${LANES_PER_STEP}`,
    [after.lane],
  );
  const endpoints: string[] = [];
  let most = LANE_ROWS_PER_STEP;
  for (const { num, name } of lanes) {
    const rows = await sql.all<Position & Readonly<Record<'state' | 'due' | 'delay', number>>>(
      'SELECT event, lane, state, due, delay FROM delivery WHERE lane = ? AND event > ? ORDER BY event LIMIT ?',
      [num, num === after.lane ? after.event : 0, most],
    );
    const late = rows.filter(({ state, due, delay }) => state <= BLOCKED && due - Math.abs(delay) > now);
    if ((await change(sql, late, 'due = ? + abs(d.delay)', [now])) > 0) endpoints.push(name);
    most -= rows.length;
    if (most === 0) return { endpoints, next: rows.at(-1) };
  }
  return { endpoints, next: lanes.length < LANES_PER_STEP ? undefined : { event: 0, lane: (lanes.at(-1)?.num ?? 0) + 1 } };
}

interface Reschedule {
  readonly endpoint: string;
  /** Of the schedule, in milliseconds. */
  readonly delays: readonly number[];
  readonly now: EpochMilliseconds;
  /** The number of the event with which the step before ended; 0 at first. */
  readonly after: number;
}

/**
 * Deliveries that wait for a retry follow another schedule: `delays[tries - 1]` after the last attempt. Those that the schedule could have
 * given, with its jitter of a fifth, keep their time, and those for which the endpoint asked. `next`: where the next step continues.
 */
export async function rescheduleStep(sql: Sql, { endpoint, delays, now, after }: Reschedule) {
  const schedule = JSON.stringify(delays);
  const [lane] = await sql.all<{ num: number; schedule: string | null }>(
    `SELECT num, schedule FROM lane WHERE name = ?${sql.dialect.forUpdate}`,
    [endpoint],
  );
  if (lane === undefined || (after === 0 && lane.schedule === schedule)) return { changed: 0, next: undefined };
  const [last] = await sql.all<{ event: number }>(
    `SELECT event FROM delivery WHERE lane = ? AND event > ? ORDER BY event LIMIT 1 OFFSET ${LANE_ROWS_PER_STEP - 1}`,
    [lane.num, after],
  );
  const table = JSON.stringify(delays.map((delay, i) => ({ tries: i + 1, delay })));
  const changed = await sql.run(
    `UPDATE delivery AS d SET delay = r.delay, due = CASE WHEN d.due - d.delay + r.delay > ? THEN d.due - d.delay + r.delay ELSE ? END
     FROM ${sql.dialect.rows('tries bigint, delay bigint')}
     WHERE d.lane = ? AND d.event > ? AND d.event <= ? AND d.state < 2 AND d.delay > 0 AND d.tries = r.tries
       AND (5 * d.delay < 4 * r.delay OR 5 * d.delay > 6 * r.delay)`,
    [now, now, table, lane.num, after, last?.event ?? Number.MAX_SAFE_INTEGER],
  );
  // At the end only: a schedule that was applied in part is applied again.
  if (last === undefined) await sql.run('UPDATE lane SET schedule = ? WHERE num = ?', [schedule, lane.num]);
  return { changed, next: last?.event };
}

/** An event of which no delivery waits. */
type EventRow = Readonly<Record<'seq' | 'created' | 'bytes' | 'targets', number>> & { readonly tenant: string };

/**
 * Removes at most `most` events of which no delivery waits: those whose time is over, and the oldest ones if the store is too large, first of a tenant that has
 * more than its share. Otherwise one tenant could push out the IDs of all others. Reads a bounded number of events; `after`: what the next step goes on with.
 */
export async function pruneStep(
  sql: Sql,
  operation: Record<'settledBefore' | 'deadBefore' | 'most', number> & { readonly after: PrunePosition | undefined },
  { bounds: { maxBytes, tenantShare } }: { readonly bounds: QueueBounds },
): Promise<{ readonly removed: number; readonly after: PrunePosition | undefined; readonly isDone: boolean }> {
  const { settledBefore, deadBefore, most, after } = operation;
  const old = await removeOldest(sql, [settledBefore, deadBefore], most, Number.POSITIVE_INFINITY);
  if (old > 0) return { removed: old, after, isDone: false };
  const excess = (await readStored(sql)).storedBytes - maxBytes;
  // Delivered events go before failed ones, also those that are delivered later.
  if (excess <= 0)
    return { removed: 0, after: after?.kind === 'failed = 0' ? { ...after, isWhole: false } : undefined, isDone: true };
  const share = Math.floor(tenantShare * maxBytes);
  const [largest] = await sql.all<{ tenant: string; bytes: number }>(
    // The one whose events were searched before, if it still has too much: the search would start again.
    `SELECT name AS tenant, stored_bytes AS bytes FROM tenant WHERE stored_bytes > ? AND stored_events > events
      ORDER BY CASE WHEN name = ? THEN 0 ELSE 1 END, stored_bytes DESC LIMIT 1`,
    [share, after?.tenant ?? null],
  );
  if (largest !== undefined) {
    const { tenant, bytes } = largest;
    const from = after?.tenant === tenant ? after : ({ tenant, kind: 'failed = 0', created: 0, seq: 0, isWhole: true } as const);
    const step = await removeOfTenant(sql, from, most, Math.min(excess, bytes - share));
    if (step !== undefined) return { ...step, isDone: false };
  }
  const removed = await removeOldest(sql, [Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER], most, excess);
  return { removed, after: undefined, isDone: removed === 0 };
}

async function removeOldest(sql: Sql, [delivered, failed]: readonly [number, number], most: number, bytes: number) {
  const find = async (condition: string, before: number): Promise<readonly EventRow[]> =>
    takeBytes(takeStep(await findSettled(sql, `${condition} AND created < ?`, [before, most])), bytes);
  return (await remove(sql, await find('failed = 0', delivered))) || (await remove(sql, await find('failed > 0', failed)));
}

/** Undefined if the tenant has none. */
async function removeOfTenant(sql: Sql, from: PrunePosition, most: number, bytes: number) {
  const { tenant, kind, created, seq, isWhole } = from;
  const found = await findSettled(sql, `${kind} AND (created, seq) > (?, ?)`, [created, seq, EVENTS_PER_STEP]);
  const own = found.filter((event) => event.tenant === tenant);
  const events = takeBytes(takeStep(own.slice(0, most)), bytes);
  const removed = await remove(sql, events);
  const last = events.length < own.length ? events.at(-1) : found[EVENTS_PER_STEP - 1];
  if (last !== undefined) return { removed, after: { ...from, created: last.created, seq: last.seq } };
  if (kind === 'failed = 0') return { removed, after: { ...from, kind: 'failed > 0', created: 0, seq: 0 } as const };
  // Another search finds events before the position that settled meanwhile.
  return removed === 0 && isWhole ? undefined : { removed, after: undefined };
}

/** By the index of delivered events, or of failed ones: none that waits is read. */
function findSettled(sql: Sql, condition: string, values: readonly number[]): Promise<readonly EventRow[]> {
  const columns = 'seq, created, bytes, tenant, targets';
  return sql.all(`SELECT ${columns} FROM event WHERE waiting = 0 AND ${condition} ORDER BY created, seq LIMIT ?`, values);
}

/** The first events that have so many bytes together. */
function takeBytes(events: readonly EventRow[], bytes: number): readonly EventRow[] {
  let sum = 0;
  return events.filter((event) => {
    sum += event.bytes;
    return sum - event.bytes < bytes;
  });
}

/** Returns how many were removed: one that is due again meanwhile stays. */
async function remove(sql: Sql, events: readonly EventRow[]): Promise<number> {
  if (events.length === 0) return 0;
  const list = sql.dialect.list('bigint');
  const found = [JSON.stringify(events.map(({ seq }) => seq))];
  await lockLanesOf(sql, `(SELECT lane FROM delivery WHERE event IN ${list}) d`, found);
  const removed = await sql.all<Omit<EventRow, 'targets'>>(
    `DELETE FROM event WHERE seq IN ${list} AND waiting = 0 RETURNING seq, created, bytes, tenant`,
    found,
  );
  const seqs = JSON.stringify(removed.map(({ seq }) => seq));
  await sql.run(`DELETE FROM payload WHERE event IN ${list}`, [seqs]);
  await sql.run(`DELETE FROM attempt WHERE event IN ${list}`, [seqs]);
  const rows = await sql.all<RemovedRow>(`DELETE FROM delivery WHERE event IN ${list} RETURNING event, lane, state`, [seqs]);
  const figures = new FigureChanges();
  await uncountFailed(sql, rows, figures);
  for (const { tenant, bytes } of removed) figures.countStored(tenant, bytes, -1);
  await figures.write(sql);
  await removeEmptyLanes(sql, [...new Set(rows.map(({ lane }) => lane))]);
  await removeEmptyTenants(sql, [...new Set(removed.map(({ tenant }) => tenant))]);
  const newest = Math.max(0, ...removed.map(({ created }) => created));
  await sql.run('UPDATE version SET pruned = ? WHERE pruned < ?', [newest, newest]);
  return removed.length;
}
