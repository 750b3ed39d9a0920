/** Records what attempts led to. */
import type { EpochMilliseconds } from '../../../core/clock.ts';
import type { Position, SettleMessage } from '../messages.ts';
import type { LaneRow, Parameter, Sql } from './database.ts';
import { type FigureChanges, type Locked, parseState } from './lanes.ts';
import { AGAIN, BLOCKED, DEAD, DELIVERED, DUE, FIRST, FIRST_OF_FAILING_TYPE, NO_TENANT, SKIPPED } from './schema.ts';

/** Attempts that are kept in `attempt`, besides the newest one in the delivery's row. */
const MAX_OLDER_ATTEMPTS = 19;
/** Deliveries whose rank is looked at, of all lanes together: everybody waits for the transaction of a settlement. */
const RANKED_PER_SECOND = 2_000;
const RANKED_AT_ONCE = 500;
/** A search that finds fewer counts for so many. */
const RANKED_PER_SEARCH = 20;
const FINAL_STATES = { delivered: DELIVERED, dead: DEAD, skipped: SKIPPED } as const;

export interface Settle {
  readonly endpoint: string;
  readonly run: number;
  /** The run began with the lease of this replica. If another one has the lane now, that one decides. */
  readonly holder: string | null;
  readonly settled: readonly SettleMessage[];
  /** JSON of the LaneState; undefined: it did not change, or the run has ended and no longer decides about it. */
  readonly state: string | undefined;
}

export interface SettleResult {
  /** When the first of the deliveries becomes due that were made due again; undefined: none. */
  readonly next: number | undefined;
  /** The lane has another holder: only acknowledged deliveries were settled. */
  readonly isLost: boolean;
}

/** A delivery with the figures of its event. */
export interface FoundRow {
  readonly event: number;
  readonly lane: number;
  readonly state: number;
  readonly order_key: string | null;
  readonly bytes: number;
  readonly tenant: string;
  /** Deliveries of the event that waited when it was read. */
  readonly waiting: number;
}

export const PLACE = 'event bigint, lane bigint';

/** The parameter for deliveries as a table. */
export function toPlaces(rows: readonly Position[]): string {
  return JSON.stringify(rows.map(({ event, lane }) => ({ event, lane })));
}

/** `changes`: of each delivery `d`, with `values`. Returns how many were changed. */
export async function change(sql: Sql, rows: readonly Position[], changes: string, values: readonly Parameter[]) {
  if (rows.length === 0) return 0;
  const places = sql.dialect.rows(PLACE);
  const statement = `UPDATE delivery AS d SET ${changes} FROM ${places} WHERE d.event = r.event AND d.lane = r.lane`;
  return sql.run(statement, [...values, toPlaces(rows)]);
}

/**
 * Settles the deliveries of several runs, in a transaction of the caller. The number of the attempt is the fence of each delivery: a late
 * settlement changes no row, and neither does one of an event that the database lost. Only the holder of the lane decides what happens next. A replica that lost the lane still records which
 * deliveries the endpoint acknowledged, because that is a fact.
 */
export async function settle(sql: Sql, settlements: readonly Settle[], ranker: Ranker, { lanes, figures }: Locked) {
  const { rows, held } = selectRows(settlements, lanes);
  const nexts = rows.length === 0 ? new Map<number, number>() : await settleRows(sql, rows, figures);
  await saveStates(sql, held, lanes, ranker);
  const results: SettleResult[] = [];
  for (const { endpoint, holder } of settlements) {
    const { num, owner } = lanes.get(endpoint) as LaneRow;
    results.push({ next: nexts.get(num), isLost: owner !== holder });
  }
  return results;
}

/** Returns the rows that are recorded, and the settlements whose run still has the lane. */
function selectRows(settlements: readonly Settle[], lanes: ReadonlyMap<string, LaneRow>) {
  const rows: SettledRow[] = [];
  const held: Settle[] = [];
  for (const settlement of settlements) {
    const { num, owner } = lanes.get(settlement.endpoint) as LaneRow;
    const isHeld = owner === settlement.holder;
    if (isHeld) held.push(settlement);
    for (const each of settlement.settled) if (isHeld || each.settlement.kind === 'delivered') rows.push(toRow(num, each));
  }
  return { rows, held };
}

/** Returns, of each lane, when the first of the deliveries becomes due that were made due again. */
async function settleRows(sql: Sql, rows: readonly SettledRow[], figures: FigureChanges): Promise<ReadonlyMap<number, number>> {
  const current = await update(sql, rows);
  const isMissing = current.length < rows.length;
  const changed = isMissing && (await reopen(sql, rows, figures)) ? [...current, ...(await update(sql, rows))] : current;
  await end(sql, changed, figures);
  const nexts = new Map<number, number>();
  for (const { lane, state, next } of changed) if (state === DUE) noteNext(nexts, lane, next);
  for (const { lane, due } of await unblock(sql, changed)) noteNext(nexts, lane, due);
  return nexts;
}

function noteNext(nexts: Map<number, number>, lane: number, due: number): void {
  nexts.set(lane, Math.min(nexts.get(lane) ?? due, due));
}

const SETTLED_COLUMNS = `event bigint, lane bigint, fence bigint, taken bigint, state bigint, next bigint, pause bigint, made bigint, at bigint,
  replay bigint, id text, record text`;

/** Its newest attempt is still the one that `r` settles. */
const IS_TAKEN = 'd.event = r.event AND d.lane = r.lane AND d.attempt = r.fence';
/** Not EXISTS: PostgreSQL would join all deliveries of the event. */
const IS_EVENT = '(SELECT e.id FROM event e WHERE e.seq = r.event) = r.id';

interface SettledRow extends FoundRow, Readonly<Record<'fence' | 'next' | 'pause' | 'made', number>> {
  /** When it was due as it was taken, if it failed. */
  readonly taken: number | null;
  /** As it was taken; null if it was delivered. */
  readonly replay: number | null;
  /** Of the event. */
  readonly id: string;
  readonly record: string | null;
  readonly at: number | null;
}

function toRow(lane: number, { seq, event, attempt, due, at, settlement, record, facts }: SettleMessage): SettledRow {
  const { key, tenant, bytes, waiting, replay } = facts;
  const figures = { event: seq, lane, order_key: key, tenant: tenant ?? NO_TENANT, bytes, waiting };
  const isDelivered = settlement.kind === 'delivered';
  const found = { replay: isDelivered ? null : replay, taken: isDelivered || settlement.kind === 'skipped' ? null : due };
  const common = { ...figures, ...found, id: event, fence: attempt, record: record ?? null };
  if (settlement.kind === 'postponed') return { ...common, state: DUE, next: settlement.due, pause: 0, made: 0, at: null };
  if (settlement.kind === 'retry') {
    const wait = Math.max(0, settlement.due - at);
    return { ...common, state: DUE, next: settlement.due, pause: settlement.isAsked === true ? -wait : wait, made: 1, at: null };
  }
  const made = settlement.kind === 'skipped' ? 0 : 1;
  return { ...common, state: FINAL_STATES[settlement.kind], next: 0, pause: 0, made, at };
}

/** Returns the deliveries that were changed, as they are now. */
async function update(sql: Sql, rows: readonly SettledRow[]): Promise<readonly SettledRow[]> {
  const isCurrent = `${IS_TAKEN} AND d.state < 2 AND ${IS_EVENT}`;
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
      `DELETE FROM attempt WHERE (event, lane, n) IN (SELECT r.event, r.lane, r.fence - ${MAX_OLDER_ATTEMPTS} FROM ${from} WHERE ${IS_EVENT})`,
      [json],
    );
  }
  // One that was retried during its attempt, and is not delivered, is due now. One that waits stays blocked if an earlier one of its key was retried.
  const isReplayed = 'd.replay <> r.replay';
  const isRetried = `(d.due < r.taken OR ${isReplayed})`;
  const changed = await sql.change(
    `UPDATE delivery AS d SET state = CASE WHEN r.state = ${DUE} OR ${isRetried} THEN d.state ELSE r.state END,
       due = CASE WHEN ${isRetried} THEN d.due ELSE r.next END, delay = CASE WHEN ${isRetried} THEN 0 ELSE r.pause END,
       settled = CASE WHEN ${isRetried} THEN NULL ELSE r.at END, attempt = d.attempt + r.made,
       tries = CASE WHEN ${isReplayed} THEN d.tries ELSE d.tries + r.made END,
       rank = CASE WHEN r.made = 1 THEN ${AGAIN} ELSE d.rank END, last = coalesce(r.record, d.last)
     FROM rows r WHERE ${isCurrent}`,
    SETTLED_COLUMNS,
    rows,
  );
  const others = changed.filter(({ replay }) => replay !== null);
  return others.length === 0 ? changed : [...changed.filter(({ replay }) => replay === null), ...(await readAgain(sql, others))];
}

async function readAgain(sql: Sql, rows: readonly SettledRow[]): Promise<readonly SettledRow[]> {
  const found = await sql.each<Pick<FoundRow, 'event' | 'lane' | 'state'> & { readonly due: number }>(
    'SELECT d.event, d.lane, d.state, d.due FROM delivery d, rows r WHERE d.event = r.event AND d.lane = r.lane',
    PLACE,
    rows.map(({ event, lane }) => ({ event, lane })),
  );
  const current = new Map(found.map(({ event, lane, state, due }) => [`${event} ${lane}`, { state, next: due }]));
  return rows.map((row) => ({ ...row, ...current.get(`${row.event} ${row.lane}`) }));
}

/** Makes deliveries wait that were canceled while the request was sent, and that the endpoint acknowledged. Whether there were any. */
async function reopen(sql: Sql, rows: readonly object[], figures: FigureChanges): Promise<boolean> {
  const canceled = await sql.all<FoundRow>(
    `SELECT d.event, d.lane, d.state, d.order_key, e.bytes, e.tenant, e.waiting
     FROM ${sql.dialect.rows(SETTLED_COLUMNS)} JOIN delivery d ON ${IS_TAKEN} AND ${IS_EVENT} JOIN event e ON e.seq = d.event
     WHERE r.state = ${DELIVERED} AND d.state = ${SKIPPED}${sql.dialect.forUpdate}`,
    [JSON.stringify(rows)],
  );
  if (canceled.length === 0) return false;
  await change(sql, canceled, `state = ${DUE}`, []);
  await begin(sql, canceled, figures);
  return true;
}

/**
 * Counts deliveries that wait again. Whether their event waited before is known only once its row is changed: other transactions change it, too.
 * Deliveries of an event that was pruned meanwhile do not count.
 */
export async function begin(sql: Sql, rows: readonly Omit<FoundRow, 'waiting'>[], figures: FigureChanges): Promise<void> {
  const events = new Map<number, { event: number; begun: number; failed: number }>();
  for (const { event, state } of rows) {
    const counted = events.get(event) ?? { event, begun: 0, failed: 0 };
    events.set(event, counted);
    counted.begun++;
    if (state > DELIVERED) counted.failed++;
  }
  const changed = await sql.each<{ seq: number; waiting: number; bytes: number; tenant: string }>(
    `UPDATE event AS e SET waiting = e.waiting + r.begun, failed = e.failed - r.failed
     FROM rows r WHERE e.seq = r.event RETURNING seq, waiting, bytes, tenant`,
    'event bigint, begun bigint, failed bigint',
    [...events.values()],
  );
  for (const { seq, waiting, bytes, tenant } of changed)
    if (waiting === events.get(seq)?.begun) figures.countWaiting(tenant, bytes, 1);
  const seqs = new Set(changed.map(({ seq }) => seq));
  for (const { event, lane, state, bytes } of rows) {
    if (!seqs.has(event)) continue;
    figures.countDelivery(lane, DUE, bytes, 1);
    if (state > DELIVERED) figures.countDelivery(lane, state, bytes, -1);
  }
}

/** Counts those of the deliveries that no longer wait. */
export async function end(sql: Sql, deliveries: readonly FoundRow[], figures: FigureChanges): Promise<void> {
  const events = new Map<number, EndedEvent>();
  for (const { event, lane, state, bytes, tenant, waiting } of deliveries) {
    if (state <= BLOCKED) continue;
    const counted = events.get(event) ?? { event, bytes, tenant, waiting, ended: 0, failed: 0 };
    events.set(event, counted);
    counted.ended++;
    if (state > DELIVERED) counted.failed++;
    figures.countDelivery(lane, DUE, bytes, -1);
    figures.countDelivery(lane, state, bytes, 1);
  }
  if (events.size === 0) return;
  for (const { tenant, bytes } of await countEnded(sql, events)) figures.countWaiting(tenant, bytes, -1);
}

type EndedEvent = Pick<FoundRow, 'event' | 'bytes' | 'tenant' | 'waiting'> & Record<'ended' | 'failed', number>;

/** Returns the events of which no delivery waits any more. */
async function countEnded(sql: Sql, events: ReadonlyMap<number, EndedEvent>): Promise<readonly EndedEvent[]> {
  const statement =
    'UPDATE event AS e SET waiting = e.waiting - r.ended, failed = e.failed + r.failed FROM rows r WHERE e.seq = r.event';
  const columns = 'event bigint, ended bigint, failed bigint';
  const others = new Map(events);
  // Most events have one target. They need no RETURNING.
  const last: EndedEvent[] = [];
  for (const event of events.values()) if (event.waiting === event.ended) last.push(event);
  const done = [...(await sql.change(`${statement} AND e.waiting = r.ended`, columns, last))];
  for (const { event } of done) others.delete(event);
  if (others.size === 0) return done;
  const counted = `${statement} RETURNING seq, waiting`;
  const rest = [...others.values()];
  // Other transactions count deliveries of the same events to other endpoints.
  const lock = `SELECT e.seq FROM event e, rows r WHERE e.seq = r.event ORDER BY e.seq${sql.dialect.forUpdate}`;
  if (sql.dialect.forUpdate !== '') await sql.each(lock, columns, rest);
  const rows = await sql.each<{ seq: number; waiting: number }>(counted, columns, rest);
  for (const { seq, waiting } of rows) if (waiting === 0) done.push(others.get(seq) as EndedEvent);
  return done;
}

/** Only the first waiting delivery of an order key is not blocked. Returns these, for the keys of `changed`. */
export async function unblock(
  sql: Sql,
  changed: readonly Pick<FoundRow, 'lane' | 'order_key'>[],
): Promise<readonly { readonly lane: number; readonly due: number }[]> {
  const keys = new Map<string, { readonly lane: number; readonly key: string }>();
  for (const { lane, order_key: key } of changed) if (key !== null) keys.set(`${lane} ${key}`, { lane, key });
  if (keys.size === 0) return [];
  const parameters = [JSON.stringify([...keys.values()])];
  const heads = `SELECT r.lane, (SELECT min(d.event) FROM delivery d WHERE d.lane = r.lane AND d.order_key = r.key AND d.state < 2) AS event
    FROM ${sql.dialect.rows('lane bigint, key text')}`;
  await sql.run(
    `UPDATE delivery AS d SET state = ${DUE} FROM (${heads}) h WHERE d.event = h.event AND d.lane = h.lane AND d.state = ${BLOCKED}`,
    parameters,
  );
  return sql.all(`SELECT d.lane, d.due FROM (${heads}) h JOIN delivery d ON d.event = h.event AND d.lane = h.lane`, parameters);
}

async function saveStates(sql: Sql, settlements: readonly Settle[], lanes: ReadonlyMap<string, LaneRow>, ranker: Ranker) {
  const states = new Map<number, string>();
  for (const { endpoint, state } of settlements) if (state !== undefined) states.set((lanes.get(endpoint) as LaneRow).num, state);
  if (states.size === 0) return;
  await sql.each(
    'UPDATE lane SET state = r.state FROM rows r WHERE lane.num = r.num',
    'num bigint, state text',
    [...states].map(([num, state]) => ({ num, state })),
  );
  for (const [num, state] of states) sql.memory?.changeState(num, state);
  ranker.refill(settlements.at(-1)?.settled.at(-1)?.at);
  for (const { num, state: before } of lanes.values()) {
    const state = states.get(num);
    if (state !== undefined) await ranker.rank(sql, num, before, state);
  }
}

/** Puts first attempts of types that fail behind those of others. Those that wait already and keep their rank are taken, only not in the best order. */
export class Ranker {
  #rows = RANKED_AT_ONCE;
  #at = 0;

  /** `before` and `after`: JSON of a LaneState. */
  async rank(sql: Sql, lane: number, before: string | null, after: string): Promise<void> {
    const [was, failing] = [parseState(before)?.failingTypes ?? [], parseState(after)?.failingTypes ?? []];
    const recovered = was.filter((type) => !failing.includes(type));
    await this.#change(sql, [lane, FIRST, FIRST_OF_FAILING_TYPE], failing);
    await this.#change(sql, [lane, FIRST_OF_FAILING_TYPE, FIRST], recovered);
  }

  refill(now: EpochMilliseconds = this.#at): void {
    this.#rows = Math.min(RANKED_AT_ONCE, this.#rows + (Math.max(0, now - this.#at) / 1_000) * RANKED_PER_SECOND);
    this.#at = now;
  }

  /** The oldest only, which would be taken next: later settlements go on with types that fail. */
  async #change(sql: Sql, [lane, from, to]: readonly [lane: number, from: number, to: number], types: readonly string[]) {
    if (types.length === 0 || this.#rows < RANKED_PER_SEARCH) return;
    const rows = await sql.all<Position & { readonly moves: number }>(
      `SELECT d.event, d.lane, CASE WHEN e.type IN ${sql.dialect.list('text')} THEN 1 ELSE 0 END AS moves FROM (
         SELECT event, lane FROM delivery WHERE lane = ? AND state = ${DUE} AND rank = ? ORDER BY due, event LIMIT ?) d
       JOIN event e ON e.seq = d.event`,
      [JSON.stringify(types), lane, from, Math.floor(this.#rows)],
    );
    this.#rows -= Math.max(RANKED_PER_SEARCH, rows.length);
    const moved = rows.filter(({ moves }) => moves === 1);
    await change(sql, moved, `rank = ${to}`, []);
  }
}

export type RemovedRow = Position & Pick<FoundRow, 'state'>;

/** Removed deliveries no longer count as dead or skipped. */
export async function uncountFailed(sql: Sql, removed: readonly RemovedRow[], figures: FigureChanges): Promise<void> {
  const events = new Map<number, { readonly event: number; failed: number }>();
  for (const { event, lane, state } of removed) {
    if (state <= DELIVERED) continue;
    figures.countDelivery(lane, state, 0, -1);
    const counted = events.get(event) ?? { event, failed: 0 };
    events.set(event, counted);
    counted.failed++;
  }
  if (events.size === 0) return;
  await sql.run(
    `UPDATE event AS e SET failed = e.failed - r.failed FROM ${sql.dialect.rows('event bigint, failed bigint')} WHERE e.seq = r.event`,
    [JSON.stringify([...events.values()])],
  );
}
