/** Stores events with their deliveries. */
import { hash } from 'node:crypto';
import type { SidegateError } from '../../../core/errors.ts';
import type { Target } from '../../endpoints/target.ts';
import type { AppendResult, QueueBounds } from '../delivery-queue.ts';
import type { EventMessage, Operations } from '../operations.ts';
import type { Sql } from './database.ts';
import { LaneChanges, type LaneRow, lockLanes, parseState, TenantChanges } from './lanes.ts';
import { BLOCKED, DUE, FIRST, FIRST_OF_FAILING_TYPE, NO_TENANT, SKIPPED } from './schema.ts';
import { Usage, type WaitingEvent } from './usage.ts';

/** Space in the store besides body and metadata: rows, indexes, half-filled pages. */
const EVENT_BYTES = 512;
const DELIVERY_BYTES = 192;
/** Rows that one statement inserts, so that its parameter stays small. */
const ROWS_PER_STATEMENT = 2_000;

/** An event of an operation, with its body. */
interface Candidate extends EventMessage {
  readonly body: Uint8Array;
  readonly bytes: number;
  readonly digest: string;
}

type OperationResult = readonly AppendResult[] | SidegateError;

/** One operation: all its events are stored, or none. */
export interface Append {
  readonly operation: Operations['append'];
  readonly bodies: readonly Uint8Array[];
}

/** Stores the events of several operations, in a transaction of the caller. Returns the result of each, or why it was rejected. */
export async function append(sql: Sql, appends: readonly Append[], bounds: QueueBounds): Promise<readonly OperationResult[]> {
  const operations = appends.map(({ operation, bodies }) =>
    operation.events.map((event, i) => toCandidate(event, bodies[i] ?? new Uint8Array(0))),
  );
  const all = operations.flat();
  const lanes = await lockLanes(sql, [...new Set(all.flatMap(({ targets }) => targets.map(({ endpoint }) => endpoint)))]);
  const known = await readDigests(sql, all);
  const usage = await Usage.read(
    sql,
    bounds,
    lanes,
    all.map(({ tenant }) => tenant),
  );
  const stored: { readonly event: Candidate; readonly now: number }[] = [];
  const results = operations.map((events, i): OperationResult => {
    const isNew = new Set<string>();
    const fresh = events.filter(({ id }) => !known.has(id) && !isNew.has(id) && isNew.add(id));
    const refusal = usage.add(fresh.map(toWaiting));
    if (refusal !== undefined) return refusal;
    const result = events.map((event): AppendResult => {
      const digest = known.get(event.id);
      known.set(event.id, digest ?? event.digest);
      if (digest !== undefined) return digest === event.digest ? 'duplicate' : 'conflict';
      stored.push({ event, now: appends[i]?.operation.now ?? 0 });
      return 'stored';
    });
    return result;
  });
  await insert(sql, stored, lanes);
  return results;
}

function toWaiting({ tenant, bytes, targets }: Candidate): WaitingEvent {
  const endpoints = targets.flatMap(({ endpoint, isSkipped }) => (isSkipped === true ? [] : [endpoint]));
  return { tenant, bytes, endpoints, isCounted: false };
}

function toCandidate(event: EventMessage, body: Uint8Array): Candidate {
  const bytes = EVENT_BYTES + DELIVERY_BYTES * event.targets.length + body.length + Buffer.byteLength(event.metadata);
  return { ...event, body, bytes, digest: toDigest(event.type, event.tenant, body.subarray(event.comparedFrom)) };
}

/** Equal for events with the same content. */
export function toDigest(type: string, tenant: string | null, content: Uint8Array): string {
  const head = hash('sha256', JSON.stringify([type, tenant]), 'base64url').slice(0, 8);
  return head + hash('sha256', content, 'base64url').slice(0, 22);
}

/** The digests of the events whose ID is stored. */
async function readDigests(sql: Sql, events: readonly Candidate[]): Promise<Map<string, string>> {
  const rows = await sql.each<{ id: string; digest: string }>(
    'SELECT e.id, e.digest FROM event e, rows r WHERE e.id = r.id',
    { id: 'text' },
    events.map(({ id }) => ({ id })),
  );
  return new Map(rows.map(({ id, digest }) => [id, digest]));
}

async function insert(
  sql: Sql,
  stored: readonly { readonly event: Candidate; readonly now: number }[],
  lanes: ReadonlyMap<string, LaneRow>,
): Promise<void> {
  if (stored.length === 0) return;
  const seqs = await insertEvents(
    sql,
    stored.map(({ event }) => event),
  );
  const [laneChanges, tenantChanges] = [new LaneChanges(), new TenantChanges()];
  const deliveries: DeliveryRow[] = [];
  const waiting = new Set<string>();
  const failing = new Map([...lanes.values()].map(({ num, state }) => [num, new Set(parseState(state)?.failingTypes)]));
  for (const { event, now } of stored) {
    const seq = seqs.get(event.id) as number;
    countEvent(tenantChanges.of(event.tenant ?? NO_TENANT), event);
    for (const target of event.targets) {
      const lane = lanes.get(target.endpoint) as LaneRow;
      const change = laneChanges.of(lane.num);
      if (target.isSkipped === true) change.skipped++;
      else {
        change.waiting++;
        change.bytes += event.bytes;
      }
      const rank = failing.get(lane.num)?.has(event.type) === true ? FIRST_OF_FAILING_TYPE : FIRST;
      deliveries.push(toRow({ event: seq, lane: lane.num, rank }, target, now, waiting));
    }
  }
  for (let at = 0; at < deliveries.length; at += ROWS_PER_STATEMENT)
    await insertDeliveries(sql, deliveries.slice(at, at + ROWS_PER_STATEMENT));
  await laneChanges.write(sql);
  await tenantChanges.write(sql);
}

function countEvent(change: ReturnType<TenantChanges['of']>, { targets, bytes }: Candidate): void {
  change.stored_events++;
  change.stored_bytes += bytes;
  if (targets.every(({ isSkipped }) => isSkipped === true)) return;
  change.events++;
  change.bytes += bytes;
}

interface DeliveryRow {
  readonly event: number;
  readonly lane: number;
  readonly rank: number;
  readonly state: number;
  readonly due: number;
  readonly settled: number | null;
  readonly key: string | null;
}

/** The row of a target; `waiting`: the lane and order key of those that wait, to which it is added. */
function toRow(
  place: Pick<DeliveryRow, 'event' | 'lane' | 'rank'>,
  { isSkipped, orderKey }: Target,
  now: number,
  waiting: Set<string>,
): DeliveryRow {
  const key = orderKey ?? null;
  if (isSkipped === true) return { ...place, state: SKIPPED, due: 0, settled: now, key };
  const ordered = `${place.lane} ${key}`;
  const state = key !== null && waiting.has(ordered) ? BLOCKED : DUE;
  if (key !== null) waiting.add(ordered);
  return { ...place, state, due: now, settled: null, key };
}

/** Returns the number of each event. */
async function insertEvents(sql: Sql, events: readonly Candidate[]): Promise<Map<string, number>> {
  const rows = events.map(({ id, type, tenant, createdAt, bytes, digest, targets }) => ({
    id,
    type,
    tenant: tenant ?? NO_TENANT,
    created: createdAt,
    bytes,
    digest,
    targets: targets.length,
    waiting: targets.filter(({ isSkipped }) => isSkipped !== true).length,
    failed: targets.filter(({ isSkipped }) => isSkipped === true).length,
  }));
  const inserted = await sql.each<{ id: string; seq: number }>(
    `INSERT INTO event (id, type, tenant, created, bytes, digest, targets, waiting, failed)
     SELECT r.id, r.type, r.tenant, r.created, r.bytes, r.digest, r.targets, r.waiting, r.failed FROM rows r RETURNING id, seq`,
    {
      id: 'text',
      type: 'text',
      tenant: 'text',
      created: 'integer',
      bytes: 'integer',
      digest: 'text',
      targets: 'integer',
      waiting: 'integer',
      failed: 'integer',
    },
    rows,
  );
  const seqs = new Map(inserted.map(({ id, seq }) => [id, seq]));
  await sql.insertPayloads(events.map(({ id, metadata, body }) => ({ event: seqs.get(id) as number, metadata, body })));
  return seqs;
}

/** A due delivery is blocked if an earlier one of its order key waits in the store. */
async function insertDeliveries(sql: Sql, rows: readonly DeliveryRow[]): Promise<void> {
  await sql.each(
    `INSERT INTO delivery
     SELECT r.event, r.lane, CASE WHEN r.state = ${DUE} AND r.key IS NOT NULL
         AND EXISTS (SELECT 1 FROM delivery d WHERE d.lane = r.lane AND d.order_key = r.key AND d.state < 2)
       THEN ${BLOCKED} ELSE r.state END,
       r.rank, r.due, 0, 0, 0, 0, r.settled, r.key, NULL FROM rows r`,
    {
      event: 'integer',
      lane: 'integer',
      rank: 'integer',
      state: 'integer',
      due: 'integer',
      settled: 'integer',
      key: 'text',
    },
    rows,
  );
}
