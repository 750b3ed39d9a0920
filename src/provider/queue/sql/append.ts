/** Stores events with their deliveries. */

import { hash } from 'node:crypto';
import type { EpochMilliseconds } from '../../../core/clock.ts';
import { SidegateError } from '../../../core/errors.ts';
import type { Target } from '../../endpoints/endpoint.ts';
import { INBOX_PREFIX, isInboxEndpoint } from '../../events/event.ts';
import { type AppendResult, type QueueBounds, QueueFullError } from '../delivery-queue.ts';
import type { EventMessage } from '../messages.ts';
import type { LaneRow, Payload, Sql } from './database.ts';
import { type FigureChanges, type Locked, parseState, readStored } from './lanes.ts';
import { BLOCKED, DUE, FIRST, FIRST_OF_FAILING_TYPE, NO_TENANT, SKIPPED } from './schema.ts';

/** Space in the store besides body and metadata: rows, indexes, half-filled pages. */
const EVENT_BYTES = 512;
export const DELIVERY_BYTES = 192;
/** Rows that one statement inserts, so that its parameter stays small. */
const ROWS_PER_STATEMENT = 2_000;
const NO_BODY = new Uint8Array(0);
/** Of the rows of `toEventRow` and `toRow`. */
const EVENT_COLUMNS =
  'created bigint, bytes bigint, targets bigint, waiting bigint, failed bigint, id text, type text, tenant text, digest text';
const DELIVERY_COLUMNS = 'event bigint, lane bigint, rank bigint, state bigint, due bigint, settled bigint, key text';

/** An event of an operation, with its body. */
interface Candidate extends EventMessage, WaitingEvent {
  readonly tenant?: string | undefined;
  readonly now: EpochMilliseconds;
  readonly body: Uint8Array;
  readonly digest: string;
}

type OperationResult = readonly AppendResult[] | SidegateError;

/** One operation: all its events are stored, or none. */
export interface Append {
  readonly operation: { readonly events: readonly EventMessage[]; readonly now: EpochMilliseconds };
  readonly bodies: readonly Uint8Array[];
}

/** Stores the events of several operations. Returns the result of each, or why it was rejected. */
export async function append(sql: Sql, appends: readonly Append[], bounds: QueueBounds, { lanes, figures }: Locked) {
  const { operations, all, tenants } = toCandidates(appends);
  const usage = await Usage.read(sql, bounds, lanes, tenants);
  // If all have room, whether or not they are stored, the insertion finds out which are.
  const hasRoom = usage.add(all) === undefined;
  const known = hasRoom ? new Map<string, string>() : await readDigests(sql, all);
  const { fresh, refusals } = selectFresh(operations, known, hasRoom ? undefined : usage);
  const duplicates = await insert(sql, [...fresh.values()], lanes, figures);
  if (duplicates.length > 0) for (const [id, digest] of await readDigests(sql, duplicates)) known.set(id, digest);
  return operations.map((events, i): OperationResult => refusals[i] ?? events.map((event) => toResult(event, known, fresh)));
}

/** The events of each operation, and of all. In loops, as all that runs for each event: closures would be compiled again and again. */
function toCandidates(appends: readonly Append[]) {
  const operations: Candidate[][] = [];
  const all: Candidate[] = [];
  const tenants = new Set<string | undefined>();
  for (const { operation, bodies } of appends) {
    const candidates: Candidate[] = [];
    for (let i = 0; i < operation.events.length; i++) {
      const candidate = toCandidate(operation.events[i] as EventMessage, bodies[i] ?? NO_BODY, operation.now);
      candidates.push(candidate);
      all.push(candidate);
      tenants.add(candidate.tenant);
    }
    operations.push(candidates);
  }
  return { operations, all, tenants };
}

/** The first event of each ID that is not known, and why operations are rejected; `usage`: unless all have room. */
function selectFresh(
  operations: readonly (readonly Candidate[])[],
  known: ReadonlyMap<string, string>,
  usage: Usage | undefined,
): { readonly fresh: ReadonlyMap<string, Candidate>; readonly refusals: readonly (SidegateError | undefined)[] } {
  const fresh = new Map<string, Candidate>();
  const refusals: (SidegateError | undefined)[] = [];
  for (const events of operations) {
    const added = new Map<string, Candidate>();
    for (const event of events)
      if (!known.has(event.id) && !fresh.has(event.id) && !added.has(event.id)) added.set(event.id, event);
    const refusal = usage?.add([...added.values()]);
    if (refusal === undefined) for (const [id, event] of added) fresh.set(id, event);
    refusals.push(refusal);
  }
  return { fresh, refusals };
}

/** `known`: the digests of stored events; `fresh`: the event of each ID that was stored, unless one with the ID was. */
function toResult(event: Candidate, known: ReadonlyMap<string, string>, fresh: ReadonlyMap<string, Candidate>): AppendResult {
  const [digest, first] = [known.get(event.id), fresh.get(event.id)];
  if (digest === undefined && first === event) return 'stored';
  return (digest ?? first?.digest) === event.digest ? 'duplicate' : 'conflict';
}

function toCandidate(event: EventMessage, body: Uint8Array, now: EpochMilliseconds): Candidate {
  const { type, tenant, targets, metadata, comparedFrom } = event;
  const endpoints: string[] = [];
  for (const { endpoint, isSkipped } of targets) if (isSkipped !== true) endpoints.push(endpoint);
  const bytes = EVENT_BYTES + DELIVERY_BYTES * targets.length + body.length + Buffer.byteLength(metadata);
  const digest = toDigest(type, tenant, body.subarray(comparedFrom));
  return { ...event, now, body, endpoints, bytes, digest, isCounted: false };
}

/** The last head of a digest, and of what: many events have the same type and tenant. */
const last = { text: '', head: '' };

/** Equal for events with the same content. */
export function toDigest(type: string, tenant: string | undefined, content: Uint8Array): string {
  const text = JSON.stringify([type, tenant]);
  if (text !== last.text) Object.assign(last, { text, head: hash('sha256', text, 'base64url').slice(0, 8) });
  return last.head + hash('sha256', content, 'base64url').slice(0, 22);
}

async function readDigests(sql: Sql, events: readonly Candidate[]): Promise<Map<string, string>> {
  const rows = await sql.each<{ id: string; digest: string }>(
    'SELECT e.id, e.digest FROM event e, rows r WHERE e.id = r.id',
    'id text',
    events.map(({ id }) => ({ id })),
  );
  return new Map(rows.map(({ id, digest }) => [id, digest]));
}

/** Stores events with their deliveries; returns those whose ID is stored already. */
async function insert(sql: Sql, events: readonly Candidate[], lanes: ReadonlyMap<string, LaneRow>, figures: FigureChanges) {
  if (events.length === 0) return [];
  const numbers = await insertEvents(sql, events);
  const duplicates: Candidate[] = [];
  const deliveries: ReturnType<typeof toRow>[] = [];
  const waiting = new Set<string>();
  const failing = readFailing(lanes.values());
  for (let i = 0; i < events.length; i++) {
    const [event, seq] = [events[i] as Candidate, numbers[i]];
    if (seq === undefined) {
      duplicates.push(event);
      continue;
    }
    const { bytes, tenant = NO_TENANT } = event;
    figures.countStored(tenant, bytes, 1);
    if (event.endpoints.length > 0) figures.countWaiting(tenant, bytes, 1);
    for (const target of event.targets) {
      const { num: lane } = lanes.get(target.endpoint) as LaneRow;
      figures.countDelivery(lane, target.isSkipped === true ? SKIPPED : DUE, bytes, 1);
      const rank = failing.get(lane)?.includes(event.type) === true ? FIRST_OF_FAILING_TYPE : FIRST;
      deliveries.push(toRow({ event: seq, lane, rank }, target, event.now, waiting));
    }
  }
  for (let at = 0; at < deliveries.length; at += ROWS_PER_STATEMENT)
    await insertDeliveries(sql, deliveries.slice(at, at + ROWS_PER_STATEMENT));
  return duplicates;
}

function readFailing(lanes: Iterable<LaneRow>): ReadonlyMap<number, readonly string[]> {
  const failing = new Map<number, readonly string[]>();
  for (const { num, state } of lanes) {
    // Hardly any has some, and to read JSON takes time.
    const types = state?.includes('failingTypes') === true ? parseState(state)?.failingTypes : undefined;
    if (types !== undefined) failing.set(num, types);
  }
  return failing;
}

/** The row of a target; `waiting`: the lane and order key of those that wait, to which it is added. */
function toRow(
  place: Readonly<Record<'event' | 'lane' | 'rank', number>>,
  { isSkipped, orderKey }: Target,
  now: number,
  waiting: Set<string>,
) {
  const key = orderKey ?? null;
  if (isSkipped === true) return { ...place, state: SKIPPED, due: 0, settled: now, key };
  const ordered = `${place.lane} ${key}`;
  const state = key !== null && waiting.has(ordered) ? BLOCKED : DUE;
  if (key !== null) waiting.add(ordered);
  return { ...place, state, due: now, settled: null, key };
}

/** Returns the number of each event; undefined: its ID is stored already. */
async function insertEvents(sql: Sql, events: readonly Candidate[]): Promise<readonly (number | undefined)[]> {
  const numbers = await sql.number(
    `INSERT INTO event (id, type, tenant, created, bytes, digest, targets, waiting, failed)
     SELECT r.id, r.type, r.tenant, r.created, r.bytes, r.digest, r.targets, r.waiting, r.failed FROM rows r
     WHERE true ON CONFLICT (id) DO NOTHING`,
    EVENT_COLUMNS,
    events.map(toEventRow),
  );
  const payloads: Payload[] = [];
  for (let i = 0; i < events.length; i++) {
    const [{ metadata, body }, event] = [events[i] as Candidate, numbers[i]];
    if (event !== undefined) payloads.push({ event, metadata, body });
  }
  await sql.insertPayloads(payloads);
  return numbers;
}

function toEventRow({ id, type, tenant = NO_TENANT, createdAt: created, bytes, digest, targets, endpoints }: Candidate) {
  const [all, waiting] = [targets.length, endpoints.length];
  return { id, type, tenant, created, bytes, digest, targets: all, waiting, failed: all - waiting };
}

/** A due delivery is blocked if an earlier one of its order key waits in the store. */
async function insertDeliveries(sql: Sql, rows: readonly object[]): Promise<void> {
  await sql.each(
    `INSERT INTO delivery
     SELECT r.event, r.lane, CASE WHEN r.state = ${DUE} AND r.key IS NOT NULL
         AND EXISTS (SELECT 1 FROM delivery d WHERE d.lane = r.lane AND d.order_key = r.key AND d.state < 2)
       THEN ${BLOCKED} ELSE r.state END,
       r.rank, r.due, 0, 0, 0, 0, r.settled, r.key, NULL FROM rows r`,
    DELIVERY_COLUMNS,
    rows,
  );
}

// The bounds of the queue, and the shares of endpoints and tenants. Only what waits counts: delivered events are removed when space is needed.

interface WaitingEvent {
  readonly tenant?: string | undefined;
  readonly bytes: number;
  readonly endpoints: readonly string[];
  /** It waits for another endpoint already. */
  readonly isCounted: boolean;
}

type Figures = Readonly<Record<'waiting' | 'bytes', number>>;

/** The figures of waiting events, with those that the transaction adds. */
export class Usage {
  readonly #bounds: QueueBounds;
  #all: Figures;
  readonly #lanes: Map<string, Figures>;
  readonly #tenants: Map<string, Figures>;

  private constructor(bounds: QueueBounds, all: Figures, lanes: Map<string, Figures>, tenants: Map<string, Figures>) {
    this.#bounds = bounds;
    this.#all = all;
    this.#lanes = lanes;
    this.#tenants = tenants;
  }

  /** `lanes` are locked; `tenants`: those whose events are added. */
  static async read(sql: Sql, bounds: QueueBounds, lanes: ReadonlyMap<string, LaneRow>, tenants: Iterable<string | undefined>) {
    const { events, bytes } = await readStored(sql);
    return new Usage(bounds, { waiting: events, bytes }, new Map(lanes), await readTenants(sql, tenants));
  }

  /** Adds events, or none: returns why not. */
  add(events: readonly WaitingEvent[]): SidegateError | undefined {
    const { all, lanes, tenants } = this.#count(events);
    if (all !== this.#all && this.#exceeds(all, 1))
      return toFull('queue', all, 'the queue is full: it has as many undelivered events as provider.queue allows');
    for (const [endpoint, figures] of lanes)
      if (this.#exceeds(figures, this.#bounds.endpointShare))
        return toFull(`endpoint ${endpoint}`, figures, describeEndpoint(endpoint, figures));
    for (const [tenant, figures] of tenants)
      if (this.#exceeds(figures, this.#bounds.tenantShare))
        return toFull(
          `tenant ${tenant}`,
          figures,
          `the undelivered events of the tenant ${tenant} use up its share of the queue (provider.queue.tenantShare)`,
        );
    this.#all = all;
    for (const [name, figures] of lanes) this.#lanes.set(name, figures);
    for (const [name, figures] of tenants) this.#tenants.set(name, figures);
    return undefined;
  }

  /** The figures with these events, of what they change. */
  #count(events: readonly WaitingEvent[]) {
    let all = this.#all;
    const [lanes, tenants] = [new Map<string, Figures>(), new Map<string, Figures>()];
    for (const { tenant, bytes, endpoints, isCounted } of events) {
      for (const endpoint of endpoints) lanes.set(endpoint, addTo(lanes.get(endpoint) ?? this.#lanes.get(endpoint), bytes));
      if (isCounted || endpoints.length === 0) continue;
      all = addTo(all, bytes);
      if (tenant !== undefined) tenants.set(tenant, addTo(tenants.get(tenant) ?? this.#tenants.get(tenant), bytes));
    }
    return { all, lanes, tenants };
  }

  #exceeds({ waiting, bytes }: Figures, share: number): boolean {
    const { maxEvents, maxBytes } = this.#bounds;
    return waiting > Math.max(1, Math.floor(share * maxEvents)) || bytes > share * maxBytes;
  }
}

async function readTenants(sql: Sql, tenants: Iterable<string | undefined>): Promise<Map<string, Figures>> {
  const names = new Set<string>();
  for (const tenant of tenants) if (tenant !== undefined) names.add(tenant);
  if (names.size === 0) return new Map();
  const rows = await sql.each<{ name: string } & Figures>(
    'SELECT t.name, t.events AS waiting, t.bytes FROM tenant t, rows r WHERE t.name = r.name',
    'name text',
    [...names].map((name) => ({ name })),
  );
  return new Map(rows.map((row) => [row.name, row]));
}

function describeEndpoint(endpoint: string, { waiting }: Figures): string {
  const name = isInboxEndpoint(endpoint)
    ? `the app of the route ${endpoint.slice(INBOX_PREFIX.length)}`
    : `the endpoint ${endpoint}`;
  return `${name} has ${waiting - 1} undelivered events, its share of the queue (provider.queue.endpointShare): disable it, cancel or purge its deliveries, or wait until it accepts them`;
}

/** `figures`: with the events that have no room. If nothing else waits, an event never has. */
function toFull(full: string, { waiting, bytes }: Figures, message: string): SidegateError {
  if (waiting > 1) return new QueueFullError(message, full);
  return new SidegateError('user', 'too_large', `the event takes ${bytes} bytes of the queue, more than the ${full} may have`);
}

function addTo(figures: Figures | undefined, bytes: number): Figures {
  return { waiting: (figures?.waiting ?? 0) + 1, bytes: (figures?.bytes ?? 0) + bytes };
}
