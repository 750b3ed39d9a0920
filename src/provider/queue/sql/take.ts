/** Hands out due deliveries. Nothing is written: what is taken is known in memory only, and is due again after a crash. */
import type { EpochMilliseconds } from '../../../core/clock.ts';
import { FRESH_MS, type TakeOnly } from '../delivery-queue.ts';
import type { TakenMessage } from '../messages.ts';
import type { Sql } from './database.ts';
import { AGAIN, BLOCKED, DUE, ENDPOINT_VERSION, FIRST, FIRST_OF_FAILING_TYPE, RANKS, toTenant } from './schema.ts';
import type { Settle } from './settle.ts';

/** `run` numbers the run of the lane: deliveries that an earlier run took can be taken again. */
interface Take {
  readonly endpoint: string;
  readonly run: number;
  readonly limit: number;
  readonly now: EpochMilliseconds;
  readonly only: TakeOnly | undefined;
  /** Numbers of events that the run took and gives back. */
  readonly returned: readonly number[];
}

interface DueRow extends Readonly<Record<'event' | 'lane' | 'rank' | 'due' | 'version', number>> {
  readonly order_key: string | null;
}

interface TakenRow extends Omit<TakenMessage, 'isReplay' | 'bodyLength' | 'facts'> {
  readonly replay: number;
  readonly order_key: string | null;
  readonly tenant: string;
  readonly bytes: number;
  readonly waiting: number;
  readonly body: Uint8Array;
}

/** The deliveries that the current run of a lane took and did not settle: the numbers of the events, with their order keys. */
interface TakenByRun {
  readonly run: number;
  readonly keys: Map<number, string | null>;
  /** The end of the take before: concurrent ones get different deliveries. */
  last: Promise<unknown>;
}

const LAST_RANKS = { all: AGAIN, first: FIRST, untried: FIRST_OF_FAILING_TYPE, fresh: FIRST_OF_FAILING_TYPE } as const;
/**
 * By the name of the lane: it has another number if it was removed while it had no delivery, and a number another lane if a failover lost it. Those
 * who accepted the deliveries of one snapshot knew no newer version of the endpoint than it has.
 */
const WAITING = `SELECT event, lane, rank, due, order_key, ${ENDPOINT_VERSION} AS version FROM delivery
  WHERE lane = (SELECT num FROM lane WHERE name = ?) AND state = ${DUE}`;
/** The first deliveries of a lane ... */
const FIND = `${WAITING} ORDER BY rank, due, event LIMIT ?`;
/** ... and of each rank: some that are not due precede those of the next rank. */
const FIND_OF_RANKS = `${RANKS.map(
  (rank) => `SELECT * FROM (${WAITING} AND rank = ${rank} ORDER BY due, event LIMIT ?) r${rank}`,
).join(' UNION ALL ')} ORDER BY rank, due, event`;
/** First attempts, the newest first. */
const FIND_FRESH = `${WAITING} AND rank = ? AND due > ? AND due <= ? ORDER BY due DESC, event DESC LIMIT ?`;
/**
 * Without those that were canceled or purged since they were found. For `state = DUE`, PostgreSQL may read the index of all that are due, and it needs
 * a third longer to plan a join with the payloads.
 */
const READ = `SELECT d.event AS seq, e.id AS event, e.type, e.created AS "createdAt", d.attempt, d.tries, d.replay, d.due, d.order_key, e.tenant, e.bytes,
    e.waiting, (SELECT metadata FROM payload p WHERE p.event = r.seq) AS metadata, (SELECT body FROM payload p WHERE p.event = r.seq) AS body
  FROM event e JOIN delivery d ON d.event = e.seq, rows r WHERE e.seq = r.seq AND d.lane = r.lane AND d.state < ${BLOCKED}`;

export class Taker {
  readonly #taken = new Map<string, TakenByRun>();

  /** Due deliveries that are not taken: first attempts first, the oldest due first; pushes their bodies to `bodies`. */
  async take(sql: Sql, operation: Take, bodies: Uint8Array[]) {
    const taken = this.#of(operation);
    if (taken === undefined) return { taken: [], next: undefined };
    const result = taken.last.then(() => takeFor(sql, operation, taken));
    taken.last = result.catch(() => undefined);
    const { rows, next } = await result;
    const messages: TakenMessage[] = [];
    for (const row of rows) messages.push(toTaken(row, bodies));
    return { taken: messages, next };
  }

  /** A settlement was committed. */
  forget({ endpoint, run, settled }: Settle): void {
    const taken = this.#taken.get(endpoint);
    if (taken?.run === run) for (const { seq } of settled) taken.keys.delete(seq);
  }

  /** Undefined for a run that another one replaced. */
  #of({ endpoint, run }: Take): TakenByRun | undefined {
    const found = this.#taken.get(endpoint);
    if (found !== undefined && found.run >= run) return found.run === run ? found : undefined;
    const taken = { run, keys: new Map<number, string | null>(), last: Promise.resolve() };
    this.#taken.set(endpoint, taken);
    return taken;
  }
}

/** The parameters of `WAITING`. */
function toNames({ endpoint }: Take): string[] {
  return [endpoint, endpoint, endpoint];
}

/** With `next`: when the next delivery is due that is not taken. */
async function takeFor(sql: Sql, operation: Take, taken: TakenByRun) {
  const { limit, now } = operation;
  const { keys } = taken;
  for (const seq of operation.returned) keys.delete(seq);
  // A taken delivery stands for at most two of these rows: itself, and one that its order key keeps back.
  const most = limit + 2 * keys.size + 1;
  if (operation.only === 'fresh') return takeFresh(sql, operation, taken, most);
  const first = await sql.all<DueRow>(FIND, [...toNames(operation), most]);
  let { picked, next } = pick(first, operation, keys);
  if (first.length === most && picked.length === limit) next = now;
  else if (first.length === most) {
    const parameters = RANKS.flatMap(() => [...toNames(operation), most]);
    ({ picked, next } = pick(await sql.all<DueRow>(FIND_OF_RANKS, parameters), operation, keys));
  }
  return { rows: await readPicked(sql, picked, keys), next };
}

async function takeFresh(sql: Sql, operation: Take, { keys }: TakenByRun, most: number) {
  const { now } = operation;
  const found: DueRow[] = [];
  for (const rank of [FIRST, FIRST_OF_FAILING_TYPE])
    found.push(...(await sql.all<DueRow>(FIND_FRESH, [...toNames(operation), rank, now - FRESH_MS, now, most])));
  const { picked } = pick(found, operation, keys);
  return { rows: await readPicked(sql, picked, keys), next: now };
}

/** The first of those that are due, and when the next of the others is. */
function pick(found: readonly DueRow[], { limit, now, only }: Take, taken: TakenByRun['keys']) {
  const busy = new Set(taken.values());
  const picked: DueRow[] = [];
  let next = Number.POSITIVE_INFINITY;
  for (const row of found) {
    const { event, due, rank, order_key: key } = row;
    if (taken.has(event)) continue;
    const isFree = due <= now && rank <= LAST_RANKS[only ?? 'all'] && (key === null || !busy.has(key));
    if (isFree && picked.length < limit) {
      picked.push(row);
      busy.add(key);
    } else next = Math.min(next, due);
  }
  return { picked, next: next === Number.POSITIVE_INFINITY ? undefined : next };
}

/** Adds them to `keys`, which the run took. */
async function readPicked(sql: Sql, picked: readonly DueRow[], keys: TakenByRun['keys']) {
  if (picked.length === 0) return [];
  const seqs: { readonly seq: number; readonly lane: number }[] = [];
  for (const { event, lane } of picked) seqs.push({ seq: event, lane });
  const bySeq = new Map<number, TakenRow>();
  // Without a body: it was erased.
  for (const row of await sql.each<TakenRow | { readonly body: null }>(READ, 'seq bigint, lane bigint', seqs))
    if (row.body !== null) bySeq.set(row.seq, row);
  const rows: TakenRow[] = [];
  for (const { event, version } of picked) {
    const row = bySeq.get(event);
    if (row === undefined) continue;
    rows.push({ ...row, version });
    keys.set(event, row.order_key);
  }
  return rows;
}

function toTaken({ replay, order_key: key, tenant, bytes, waiting, body, ...row }: TakenRow, bodies: Uint8Array[]): TakenMessage {
  bodies.push(body);
  return { ...row, isReplay: replay === 1, bodyLength: body.length, facts: { key, tenant: toTenant(tenant), bytes, waiting } };
}
