/** Lists: each statement reads a bounded part of an index, so that no list keeps other operations waiting, however little of the store matches. */
import { SidegateError } from '../../../core/errors.ts';
import { toEventSource } from '../../events/event.ts';
import type {
  AttemptRecord,
  DeliveryFilter,
  DeliveryRecord,
  DeliveryState,
  EventFilter,
  EventHead,
  EventPageRequest,
  EventRecord,
  Page,
} from '../delivery-queue.ts';
import type { Position } from '../messages.ts';
import { findOne, type Parameter, type Sql } from './database.ts';
import { readLanes } from './lanes.ts';
import { BLOCKED, DEAD, DELIVERED, DUE, NO_TENANT, SKIPPED, toTenant } from './schema.ts';

/** Rows that one step of a list reads: a few milliseconds. */
const ROWS_PER_STEP = 2_000;
const INDEX_ROWS_PER_STEP = 250;
const POSITION = /^(\d{1,15})\.(\d{1,15})$/;
const STATES: Readonly<Record<DeliveryState, readonly number[]>> = {
  waiting: [DUE, BLOCKED],
  delivered: [DELIVERED],
  dead: [DEAD],
  skipped: [SKIPPED],
};
const STATE_NAMES: readonly DeliveryState[] = ['waiting', 'waiting', 'delivered', 'dead', 'skipped'];

/** Deliveries that may match: a range of an index, and conditions on its rows. */
export interface Selection {
  /** The tables that the range is in: `delivery d`, found by `event e` if only its events have an index. */
  readonly from: string;
  readonly rowsPerStep: number;
  readonly range: readonly string[];
  readonly rangeParameters: readonly Parameter[];
  /** On the delivery `d` and its event `e`. */
  readonly conditions: readonly string[];
  readonly parameters: readonly Parameter[];
}

/** Undefined: nothing matches. `states`: only these, besides those of the filter. */
export async function select(sql: Sql, filter: DeliveryFilter, allowed?: readonly DeliveryState[]) {
  const states = pickStates(filter.states, allowed);
  if (states?.length === 0) return undefined;
  const range: string[] = [];
  const rangeParameters: Parameter[] = [];
  const add = (condition: string, value: Parameter): void => {
    range.push(condition);
    rangeParameters.push(value);
  };
  if (filter.event !== undefined) {
    const found = await findOne<{ seq: number }>(sql, 'SELECT seq FROM event WHERE id = ?', [filter.event]);
    if (found === undefined) return undefined;
    add('d.event = ?', found.seq);
  }
  if (filter.endpoint !== undefined) {
    const lane = (await readLanes(sql, [filter.endpoint])).get(filter.endpoint);
    if (lane === undefined) return undefined;
    add('d.lane = ?', lane.num);
  }
  // The condition of the indexes of failed deliveries.
  if (filter.event === undefined && states?.every((state) => state > DELIVERED) === true) range.push('d.state > 2');
  if (isOfTenant(filter)) add(`e.seq = d.event AND e.tenant = ? AND e.tenant <> ''`, filter.tenant ?? NO_TENANT);
  const conditions: string[] = states === undefined ? [] : [`d.state IN (${states.join(', ')})`];
  const parameters: Parameter[] = [];
  for (const [condition, value] of toEventConditions(filter)) {
    conditions.push(condition);
    parameters.push(value);
  }
  if (filter.receivers !== undefined) {
    conditions.push(
      `(d.lane IN (SELECT num FROM lane WHERE name IN ${sql.dialect.list('text')})
        OR (d.lane, e.tenant) IN (SELECT l.num, r.tenant FROM ${sql.dialect.rows({ name: 'text', tenant: 'text' })} JOIN lane l ON l.name = r.name))`,
    );
    const [ofAll, ofOne] = [
      filter.receivers.filter((each) => each.allTenants),
      filter.receivers.filter((each) => !each.allTenants),
    ];
    parameters.push(
      JSON.stringify(ofAll.map(({ endpoint }) => endpoint)),
      JSON.stringify(ofOne.map(({ endpoint, tenant = NO_TENANT }) => ({ name: endpoint, tenant }))),
    );
  }
  return { ...toTables(filter), range, rangeParameters, conditions, parameters };
}

/** Neighbors in the table share pages; those in the index of a lane or tenant do not. */
function toTables(filter: DeliveryFilter): Pick<Selection, 'from' | 'rowsPerStep'> {
  if (isOfTenant(filter)) return { from: 'event e CROSS JOIN delivery d', rowsPerStep: INDEX_ROWS_PER_STEP };
  const isOfLane = filter.event === undefined && filter.endpoint !== undefined;
  return { from: 'delivery d', rowsPerStep: isOfLane ? INDEX_ROWS_PER_STEP : ROWS_PER_STEP };
}

/** The index of the tenant's events is the smallest range. */
function isOfTenant({ tenant, event, endpoint }: DeliveryFilter): boolean {
  return tenant !== undefined && tenant !== NO_TENANT && event === undefined && endpoint === undefined;
}

function toEventConditions({ type, tenant, from, to }: EventFilter): (readonly [condition: string, value: Parameter])[] {
  return (
    [
      ['e.type = ?', type],
      ['e.tenant = ?', tenant],
      ['e.created >= ?', from],
      ['e.created < ?', to],
    ] as const
  ).flatMap(([condition, value]) => (value === undefined ? [] : [[condition, value] as const]));
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
  const { rowsPerStep } = selection;
  const [range, values] = [[...selection.range], [...selection.rangeParameters]];
  const seq = selection.from.startsWith('event') ? 'e.seq' : 'd.event';
  const [order, sign] = direction === 'newest' ? [`${seq} DESC, d.lane DESC`, '<'] : [`${seq}, d.lane`, '>'];
  if (from !== undefined) {
    range.push(`(${seq}, d.lane) ${sign} (?, ?)`, `${seq} ${sign}= ?`);
    values.push(from.event, from.lane, from.event);
  }
  if (until !== undefined) {
    range.push(`${seq} <= ?`);
    values.push(until);
  }
  const rows = `FROM ${selection.from} WHERE ${['true', ...range].join(' AND ')} ORDER BY ${order}`;
  const end = await findOne<Position>(sql, `SELECT d.event, d.lane ${rows} LIMIT 1 OFFSET ${rowsPerStep - 1}`, values);
  return { source: `(SELECT d.* ${rows} LIMIT ${rowsPerStep}) d`, parameters: values, end };
}

/** Some that wait for an endpoint, by the indexes that have nothing else: it may have far more deliveries that ended. `+ 0`: not by another index. */
export function toWaiting({ rangeParameters }: Selection, until: number, most: number) {
  const ofLane = 'SELECT d.* FROM delivery d WHERE d.lane = ? AND d.event + 0 <= ?';
  const due = `${ofLane} AND d.state = ${DUE} ORDER BY d.rank, d.due, d.event LIMIT ${most}`;
  const blocked = `${ofLane} AND d.state < 2 AND d.order_key IS NOT NULL AND d.state = ${BLOCKED} ORDER BY d.order_key, d.event LIMIT ${most}`;
  const parameters = [...rangeParameters, until];
  const source = `(SELECT * FROM (${due}) a UNION ALL SELECT * FROM (${blocked}) b) d`;
  return { source, parameters: [...parameters, ...parameters], end: undefined };
}

interface FoundRow extends Omit<DeliveryRecord, 'state'> {
  readonly seq: number;
  readonly lane: number;
  readonly state: number;
  readonly tenant: string;
  readonly due: number;
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
     WHERE ${['true', ...selection.conditions].join(' AND ')} ORDER BY d.event DESC, d.lane DESC LIMIT ?`,
    [...step.parameters, ...selection.parameters, page.limit],
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
  const range: string[] = [];
  const values: Parameter[] = [];
  const [order, sign] = page.first === 'oldest' ? ['seq', '>'] : ['seq DESC', '<'];
  if (page.after !== undefined) {
    range.push(`seq ${sign} ?`);
    values.push(parsePosition(page.after).event);
  }
  if (filter.tenant !== undefined) {
    range.push(`tenant = ? AND tenant <> ''`);
    values.push(filter.tenant);
  }
  if (filter.isUnrouted === true) range.push('targets = 0');
  const where = range.length === 0 ? 'true' : range.join(' AND ');
  const end = await findOne<{ seq: number }>(
    sql,
    `SELECT seq FROM event WHERE ${where} ORDER BY ${order} LIMIT 1 OFFSET ${ROWS_PER_STEP - 1}`,
    values,
  );
  const conditions = [...toEventConditions({ ...filter, tenant: undefined }), ...toDeliveryCondition(filter)];
  const rows = await sql.all<EventRecord & { readonly seq: number; readonly tenant: string }>(
    `SELECT seq, id, type, tenant, created AS "createdAt", targets AS deliveries, waiting, failed
     FROM (SELECT * FROM event WHERE ${where} ORDER BY ${order} LIMIT ${ROWS_PER_STEP}) e
     WHERE ${['true', ...conditions.map(([condition]) => condition)].join(' AND ')} ORDER BY ${order} LIMIT ?`,
    [...values, ...conditions.flatMap(([, ...value]) => value), page.limit],
  );
  const found = rows.map(({ seq, tenant, ...event }) => ({
    position: `${seq}.0`,
    record: { ...event, tenant: toTenant(tenant) },
  }));
  if (rows.length === page.limit) return { found, next: found.at(-1)?.position };
  return { found, next: end && `${end.seq}.0` };
}

/** By the index of the deliveries of an event. */
function toDeliveryCondition({ endpoint, states }: EventFilter): (readonly [condition: string, ...values: Parameter[]])[] {
  if (endpoint === undefined && states === undefined) return [];
  const ofLane = endpoint === undefined ? '' : ' AND d.lane IN (SELECT num FROM lane WHERE name = ?)';
  const inState = states === undefined ? '' : ` AND d.state IN (${states.flatMap((state) => STATES[state]).join(', ')})`;
  const condition = `EXISTS (SELECT 1 FROM delivery d WHERE d.event = e.seq${ofLane}${inState})`;
  return [[condition, ...(endpoint === undefined ? [] : [endpoint])]];
}

const PAYLOAD = 'FROM event e JOIN payload p ON p.event = e.seq WHERE e.id = ?';

export async function findEvent(sql: Sql, { id }: { readonly id: string }): Promise<EventHead | undefined> {
  const row = await findOne<
    Omit<EventHead, 'source'> & { readonly tenant: string; readonly begin: string; readonly size: number | null }
  >(
    sql,
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
  const row = await findOne<{ metadata: string; body: Uint8Array | null }>(sql, `SELECT p.metadata, p.body ${PAYLOAD}`, [id]);
  if (row === undefined) return undefined;
  bodies.push(row.body ?? new Uint8Array(0));
  return { metadata: row.metadata, bodyLength: row.body?.length ?? 0, isErased: row.body === null };
}

/** The newest 20 attempts. */
export async function findAttempts(sql: Sql, { event, endpoint }: Readonly<Record<'event' | 'endpoint', string>>) {
  const found = await findOne<Position & { last: string | null }>(
    sql,
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
