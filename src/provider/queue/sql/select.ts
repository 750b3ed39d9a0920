/** Lists: each statement reads a bounded part of an index, so that no list keeps other operations waiting, however little of the store matches. */
import { SidegateError } from '../../../core/errors.ts';
import { INBOX_METADATA, OWN_METADATA, toEventSource } from '../../events/event.ts';
import {
  type AttemptRecord,
  DELIVERY_STATES,
  type DeliveryFilter,
  type DeliveryRecord,
  type DeliveryState,
  type EventFilter,
  type EventHead,
  type EventPageRequest,
  type EventRecord,
  type Page,
} from '../delivery-queue.ts';
import type { Position } from '../messages.ts';
import type { Parameter, Sql } from './database.ts';
import { readLanes } from './lanes.ts';
import { BLOCKED, DEAD, DELIVERED, DUE, NO_TENANT, SKIPPED, toTenant } from './schema.ts';

/** Rows of events or deliveries that one step of a list reads, and the deliveries of one event: a few milliseconds. */
const ROWS_PER_STEP = 2_000;
const INDEX_ROWS_PER_STEP = 250;
const POSITION = /^(\d{1,15})\.(\d{1,15})$/;
const STATES: Readonly<Record<DeliveryState, readonly [number, ...number[]]>> = {
  waiting: [DUE, BLOCKED],
  delivered: [DELIVERED],
  dead: [DEAD],
  skipped: [SKIPPED],
};
const OF_TENANT = `e.tenant = ? AND e.tenant <> ''`;
const STATE_NAMES: readonly DeliveryState[] = ['waiting', 'waiting', 'delivered', 'dead', 'skipped'];

const hasOneIn = (state: number, index = 'true') =>
  `(SELECT 1 FROM delivery d WHERE d.event = e.seq AND ${index} AND d.state = ${state} LIMIT 1) = 1`;
const IS_OF_APP = `(SELECT 1 FROM payload p WHERE p.event = e.seq AND p.body IS NOT NULL AND substr(p.metadata, 1, 13) <> '${OWN_METADATA}'
  AND substr(p.metadata, 1, ${INBOX_METADATA.length}) <> '${INBOX_METADATA}') = 1`;
const HAS_FAILED = ['e.failed > 0', '0'] as const;
/** Conditions on an event, and how many deliveries each reads at most. Purged ones still count as `targets`. */
const HAS_DELIVERY: Readonly<Record<DeliveryState, readonly [condition: string, cost: string]>> = {
  waiting: ['e.waiting > 0', '0'],
  delivered: [
    `(e.targets > e.waiting + e.failed AND ${hasOneIn(DELIVERED)})`,
    'CASE WHEN e.targets > e.waiting + e.failed THEN e.waiting + e.failed ELSE 0 END',
  ],
  dead: [`(e.failed > 0 AND ${hasOneIn(DEAD, 'd.state > 2')})`, 'e.failed'],
  skipped: [`(e.failed > 0 AND ${hasOneIn(SKIPPED, 'd.state > 2')})`, 'e.failed'],
};

/** Deliveries that may match: a range of an index, and conditions on its rows. */
export interface Selection {
  /** The range is that of its events, found by their index. */
  readonly tenant: string | undefined;
  readonly rowsPerStep: number;
  readonly range: readonly Condition[];
  /** On the delivery `d` and its event `e`. */
  readonly conditions: readonly Condition[];
}

export type Condition = readonly [sql: string, ...values: Parameter[]];

export function toWhere(conditions: readonly Condition[]): string {
  return ['true', ...conditions.map(([sql]) => sql)].join(' AND ');
}

export function toValues(conditions: readonly Condition[]): Parameter[] {
  return conditions.flatMap(([, ...values]) => values);
}

/** Undefined: nothing matches. `states`: only these, besides those of the filter. */
export async function select(sql: Sql, filter: DeliveryFilter, allowed?: readonly DeliveryState[]) {
  const states = pickStates(filter.states, allowed);
  if (states?.length === 0) return undefined;
  const range: Condition[] = [];
  if (filter.event !== undefined) {
    const [found] = await sql.all<{ seq: number }>('SELECT seq FROM event WHERE id = ?', [filter.event]);
    if (found === undefined) return undefined;
    range.push(['d.event = ?', found.seq]);
  }
  if (filter.endpoint !== undefined) {
    const lane = (await readLanes(sql, [filter.endpoint])).get(filter.endpoint);
    if (lane === undefined) return undefined;
    range.push(['d.lane = ?', lane.num]);
  }
  // The condition of the indexes of failed deliveries.
  if (filter.event === undefined && states?.every((state) => state > DELIVERED) === true) range.push(['d.state > 2']);
  const tenant = toRangeTenant(filter);
  if (tenant !== undefined) range.push([`e.seq = d.event AND ${OF_TENANT}`, tenant]);
  const conditions = toEventConditions(filter);
  if (states !== undefined) conditions.push([`d.state IN (${states.join(', ')})`]);
  if (filter.receivers !== undefined) {
    const { ofAll = [], ofOne = [] } = Object.groupBy(filter.receivers, ({ allTenants }) => (allTenants ? 'ofAll' : 'ofOne'));
    conditions.push([
      `(d.lane IN (SELECT num FROM lane WHERE name IN ${sql.dialect.list('text')})
        OR (d.lane, e.tenant) IN (SELECT l.num, r.tenant FROM ${sql.dialect.rows('name text, tenant text')} JOIN lane l ON l.name = r.name))`,
      JSON.stringify(ofAll.map(({ endpoint }) => endpoint)),
      JSON.stringify(ofOne.map(({ endpoint, tenant: one = NO_TENANT }) => ({ name: endpoint, tenant: one }))),
    ]);
  }
  // Neighbors in the table share pages; those in the index of a lane or tenant do not.
  const isInIndex = (tenant ?? filter.endpoint) !== undefined && filter.event === undefined;
  return { tenant, rowsPerStep: isInIndex ? INDEX_ROWS_PER_STEP : ROWS_PER_STEP, range, conditions };
}

/** The index of the tenant's events is the smallest range, unless something else is given. */
function toRangeTenant({ tenant, event, endpoint }: DeliveryFilter): string | undefined {
  return tenant === NO_TENANT ? undefined : (event ?? endpoint) === undefined ? tenant : undefined;
}

function toEventConditions({ type, tenant, from, to }: EventFilter): Condition[] {
  const given = { 'e.type = ?': type, 'e.tenant = ?': tenant, 'e.created >= ?': from, 'e.created < ?': to };
  return Object.entries(given).flatMap(([sql, value]) => (value === undefined ? [] : [[sql, value] as const]));
}

function pickStates(asked: readonly DeliveryState[] | undefined, allowed: readonly DeliveryState[] | undefined) {
  if (asked === undefined && allowed === undefined) return undefined;
  const states = (asked ?? allowed ?? []).filter((state) => allowed === undefined || allowed.includes(state));
  return [...new Set(states.flatMap((state) => STATES[state]))].toSorted((a, b) => a - b);
}

/**
 * The next step through a selection: at most `rowsPerStep` rows after `from`. `until`: where it ends, at the latest. Returns the SQL of these rows, as `d` with
 * all columns of a delivery, and the last of them; undefined: the range ends with them.
 */
export async function findStep(
  sql: Sql,
  selection: Selection,
  direction: 'newest' | 'oldest',
  from: Position | undefined,
  until?: number,
) {
  const { tenant, rowsPerStep } = selection;
  const seq = tenant === undefined ? 'd.event' : 'e.seq';
  const [order, sign, back] = direction === 'newest' ? [' DESC', '<', '>'] : ['', '>', '<'];
  const bounds: Condition[] = [];
  if (from !== undefined) bounds.push([`${seq} ${sign}= ?`, from.event]);
  if (until !== undefined) bounds.push([`${seq} <= ?`, until]);
  // Any number of its events have no such delivery.
  const edge = tenant === undefined ? undefined : await findEdge(sql, [[OF_TENANT, tenant], ...bounds], `e.seq${order}`);
  if (edge !== undefined) bounds.push([`e.seq ${back}= ?`, edge.seq]);
  if (from !== undefined) bounds.push([`(${seq}, d.lane) ${sign} (?, ?)`, from.event, from.lane]);
  const conditions = [...selection.range, ...bounds];
  const tables = tenant === undefined ? 'delivery d' : 'event e CROSS JOIN delivery d';
  const rows = `FROM ${tables} WHERE ${toWhere(conditions)} ORDER BY ${seq}${order}, d.lane${order}`;
  const parameters = toValues(conditions);
  const [last] = await sql.all<Position>(`SELECT d.event, d.lane ${rows} LIMIT 1 OFFSET ${rowsPerStep - 1}`, parameters);
  const end = last ?? (edge && { event: direction === 'newest' ? edge.seq : edge.seq + 1, lane: 0 });
  return { source: `(SELECT d.* ${rows} LIMIT ${rowsPerStep}) d`, parameters, end };
}

/** The event with which a step ends: the first one up to which all have so many rows, with the deliveries that each costs. Undefined: the range ends before. */
async function findEdge(sql: Sql, range: readonly Condition[], order: string, cost = '0') {
  const [edge] = await sql.all<{ seq: number }>(
    `SELECT e.seq FROM (SELECT e.seq, sum(1 + ${cost}) OVER (ORDER BY ${order}) AS cost FROM
       (SELECT * FROM event e WHERE ${toWhere(range)} ORDER BY ${order} LIMIT ${ROWS_PER_STEP}) e) e
     WHERE e.cost >= ${ROWS_PER_STEP} ORDER BY ${order} LIMIT 1`,
    toValues(range),
  );
  return edge;
}

/** Some that wait for an endpoint, by the indexes that have nothing else: it may have far more deliveries that ended. `+ 0`: not by another index. */
export function toWaiting({ range }: Selection, until: number, most: number) {
  const ofLane = 'SELECT d.* FROM delivery d WHERE d.lane = ? AND d.event + 0 <= ?';
  const due = `${ofLane} AND d.state = ${DUE} ORDER BY d.rank, d.due, d.event LIMIT ${most}`;
  const blocked = `${ofLane} AND d.state < 2 AND d.order_key IS NOT NULL AND d.state = ${BLOCKED} ORDER BY d.order_key, d.event LIMIT ${most}`;
  const parameters = [...toValues(range), until];
  const source = `(SELECT * FROM (${due}) a UNION ALL SELECT * FROM (${blocked}) b) d`;
  return { source, parameters: [...parameters, ...parameters], end: undefined };
}

interface FoundRow extends Omit<DeliveryRecord, 'state' | 'due'>, Readonly<Record<'seq' | 'lane' | 'state' | 'due', number>> {
  readonly tenant: string;
  readonly settled: number | null;
  readonly last: string | null;
}

/** Up to `page.limit` deliveries, newest event first. */
export async function findDeliveries(sql: Sql, { filter, page }: { readonly filter: DeliveryFilter; readonly page: Page }) {
  const selection = await select(sql, filter);
  if (selection === undefined) return { found: [], next: undefined };
  const step = await findStep(sql, selection, 'newest', page.after === undefined ? undefined : parsePosition(page.after));
  const rows = await sql.all<FoundRow>(
    `SELECT d.event AS seq, d.lane, d.state, d.due, d.attempt AS attempts, d.settled, d.last, l.name AS endpoint, e.id AS event, e.type, e.tenant,
       e.created AS "createdAt"
     FROM ${step.source} JOIN event e ON e.seq = d.event JOIN lane l ON l.num = d.lane
     WHERE ${toWhere(selection.conditions)} ORDER BY d.event DESC, d.lane DESC LIMIT ?`,
    [...step.parameters, ...toValues(selection.conditions), page.limit],
  );
  const found = rows.map((row) => ({ position: formatPosition({ event: row.seq, lane: row.lane }), record: toRecord(row) }));
  if (rows.length === page.limit) return { found, next: found.at(-1)?.position };
  return { found, next: step.end && formatPosition(step.end) };
}

function toRecord({ seq: _, lane: __, tenant, state, due, settled, last, ...record }: FoundRow): DeliveryRecord {
  return {
    ...record,
    tenant: toTenant(tenant),
    state: STATE_NAMES[state] ?? 'dead',
    due: state <= BLOCKED ? due : undefined,
    settledAt: settled ?? undefined,
    lastAttempt: last === null ? undefined : (JSON.parse(last) as AttemptRecord),
  };
}

export async function findEvents(sql: Sql, { filter, page }: { readonly filter: EventFilter; readonly page: EventPageRequest }) {
  const range: Condition[] = [];
  const [order, sign, back] = page.first === 'oldest' ? ['e.seq', '>', '<'] : ['e.seq DESC', '<', '>'];
  if (page.after !== undefined) range.push([`e.seq ${sign} ?`, parsePosition(page.after).event]);
  if (filter.tenant !== undefined) range.push([OF_TENANT, filter.tenant]);
  if (filter.isUnrouted === true) range.push(['e.targets = 0']);
  const { condition, cost } = toDeliveryCondition(filter);
  const end = await findEdge(sql, range, order, cost);
  if (end !== undefined) range.push([`e.seq ${back}= ?`, end.seq]);
  const conditions = [condition, ...toEventConditions({ ...filter, tenant: undefined })];
  const rows = await sql.all<EventRecord & { readonly seq: number; readonly tenant: string }>(
    `SELECT e.seq, e.id, e.type, e.tenant, e.created AS "createdAt", e.targets AS deliveries, e.waiting, e.failed
     FROM (SELECT * FROM event e WHERE ${toWhere(range)} ORDER BY ${order} LIMIT ${ROWS_PER_STEP}) e
     WHERE ${toWhere(conditions)} ORDER BY ${order} LIMIT ?`,
    [...toValues(range), ...toValues(conditions), page.limit],
  );
  const found = rows.map(({ seq, tenant, ...event }) => ({
    position: `${seq}.0`,
    record: { ...event, tenant: toTenant(tenant) },
  }));
  if (rows.length === page.limit) return { found, next: found.at(-1)?.position };
  return { found, next: end && `${end.seq}.0` };
}

/**
 * Whether an event has such a delivery, by its own figures where they decide, and how many of its deliveries this reads at most. Scalar subqueries:
 * PostgreSQL might replace EXISTS by a read of all deliveries.
 */
function toDeliveryCondition({ endpoint, states, lacks }: EventFilter): { readonly condition: Condition; readonly cost: string } {
  const found = '(SELECT d.state FROM delivery d WHERE d.event = e.seq AND d.lane = (SELECT num FROM lane WHERE name = ?))';
  // The rows of payloads are large.
  if (lacks !== undefined) return { condition: [`${found} IS NULL AND ${IS_OF_APP}`, lacks], cost: '7' };
  const numbers = (states ?? DELIVERY_STATES).flatMap((state) => STATES[state]);
  if (endpoint !== undefined) return { condition: [`${found} IN (${numbers.join(', ')})`, endpoint], cost: '1' };
  if (states === undefined) return { condition: ['true'], cost: '0' };
  const isFailed = states.includes('dead') && states.includes('skipped');
  const parts = states.map((state) => (isFailed && STATES[state][0] > DELIVERED ? HAS_FAILED : HAS_DELIVERY[state]));
  return { condition: [`(${parts.map(([sql]) => sql).join(' OR ')})`], cost: parts.map(([, cost]) => cost).join(' + ') };
}

const PAYLOAD = 'FROM event e JOIN payload p ON p.event = e.seq WHERE e.id = ?';

export async function findEvent(sql: Sql, { id }: { readonly id: string }): Promise<EventHead | undefined> {
  const [row] = await sql.all<
    Omit<EventHead, 'source'> & { readonly tenant: string; readonly begin: string; readonly size: number | null }
  >(
    `SELECT e.type, e.tenant, e.created AS "createdAt", substr(p.metadata, 1, 16) AS begin, octet_length(p.metadata) AS bytes,
       octet_length(p.body) AS size ${PAYLOAD}`,
    [id],
  );
  if (row === undefined) return undefined;
  const { begin, tenant, bytes, size, ...head } = row;
  return { ...head, tenant: toTenant(tenant), source: toEventSource(begin), bytes: bytes + (size ?? 0), isErased: size === null };
}

/** Pushes the body to `bodies`. */
export async function readPayload(sql: Sql, { id }: { readonly id: string }, { bodies }: { readonly bodies: Uint8Array[] }) {
  const [row] = await sql.all<{ metadata: string; body: Uint8Array | null }>(`SELECT p.metadata, p.body ${PAYLOAD}`, [id]);
  if (row === undefined) return undefined;
  bodies.push(row.body ?? new Uint8Array(0));
  return { metadata: row.metadata, bodyLength: row.body?.length ?? 0, isErased: row.body === null };
}

/** The newest 20 attempts. */
export async function findAttempts(sql: Sql, { event, endpoint }: Readonly<Record<'event' | 'endpoint', string>>) {
  const [found] = await sql.all<Position & { last: string | null }>(
    `SELECT d.event, d.lane, d.last FROM event e JOIN delivery d ON d.event = e.seq JOIN lane l ON l.num = d.lane
     WHERE e.id = ? AND l.name = ?`,
    [event, endpoint],
  );
  if (found === undefined) return undefined;
  const older = await sql.all<{ record: string }>('SELECT record FROM attempt WHERE event = ? AND lane = ? ORDER BY n DESC', [
    found.event,
    found.lane,
  ]);
  const records = [...(found.last === null ? [] : [found.last]), ...older.map(({ record }) => record)];
  return records.map((record) => JSON.parse(record) as AttemptRecord);
}

function formatPosition({ event, lane }: Position): string {
  return `${event}.${lane}`;
}

function parsePosition(text: string): Position {
  const match = POSITION.exec(text);
  if (match === null)
    throw new SidegateError('user', 'invalid_position', 'the position is not one that an earlier page returned as `next`');
  return { event: Number(match[1]), lane: Number(match[2]) };
}
