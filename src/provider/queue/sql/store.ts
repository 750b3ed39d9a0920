/** Executes the operations of the queue in a database: all writes of one turn of the event loop in one transaction. */
import type { EpochMilliseconds } from '../../../core/clock.ts';
import { SidegateError } from '../../../core/errors.ts';
import type { StoredEndpoint } from '../../endpoints/endpoint.ts';
import { type AppendResult, FRESH_MS, type QueueBounds, QueueFullError, type TakeOnly } from '../delivery-queue.ts';
import type { Failure, TakenMessage } from '../messages.ts';
import { type Append, append, DELIVERY_BYTES } from './append.ts';
import { type Database, MAX_LANES, type Sql } from './database.ts';
import { addLanes, FigureChanges, lockLanes, readBacklogs, readDueLanes, readInboxes, readStates, readStats } from './lanes.ts';
import { addDelivery, countStep, eraseStep, hastenStep, pruneStep, repairStep, rescheduleStep } from './repair.ts';
import { AGAIN, BLOCKED, DUE, ENDPOINT_VERSION, FIRST, FIRST_OF_FAILING_TYPE, RANKS, toTenant } from './schema.ts';
import { findAttempts, findDeliveries, findEvent, findEvents, readPayload } from './select.ts';
import { Ranker, type Settle, type SettleResult, settle } from './settle.ts';

export interface Task {
  readonly operation: Operation;
  readonly bodies: readonly Uint8Array[];
}

interface Context {
  readonly bounds: QueueBounds;
  readonly taker: Taker;
  /** Gets the bodies of its result. */
  readonly bodies: Uint8Array[];
}

/** The operations that write, besides `append` and `settle`. */
const WRITERS = {
  repairStep,
  addDelivery,
  eraseStep,
  pruneStep,
  hastenStep,
  rescheduleStep,
  putEndpoint,
  removeEndpoint: async (sql: Sql, { id, version }: { readonly id: string; readonly version: number | undefined }) =>
    (await sql.run('DELETE FROM endpoint WHERE id = ? AND version = coalesce(?, version)', [id, version ?? null])) === 1,
};
const HANDLERS = {
  ...WRITERS,
  take: (sql: Sql, operation: Parameters<Taker['take']>[1], { taker, bodies }: Context) => taker.take(sql, operation, bodies),
  findEvent,
  readPayload,
  findStep: findDeliveries,
  findEventsStep: findEvents,
  findAttempts,
  countStep,
  stats: readStats,
  backlogs: readBacklogs,
  inboxes: readInboxes,
  laneStates: readStates,
  dueLanes: readDueLanes,
  // Each has up to about 100 KiB.
  listEndpoints: (sql: Sql, { after }: { readonly after: string }) =>
    sql.all<StoredEndpoint>('SELECT id, version, json FROM endpoint WHERE id > ? ORDER BY id LIMIT 100', [after]),
  endpointVersion: async (sql: Sql, { id }: { readonly id: string }) =>
    (await sql.all<{ version: number }>(`SELECT ${ENDPOINT_VERSION} AS version`, [id, id]))[0]?.version ?? 0,
};
type Handlers = typeof HANDLERS;

export type Operations = { readonly append: Append['operation']; readonly settle: Settle } & {
  readonly [K in keyof Handlers]: Handlers[K] extends (sql: Sql, operation: infer O, ...more: never[]) => unknown
    ? O & object
    : never;
};

export type Results = { readonly append: readonly AppendResult[]; readonly settle: SettleResult } & {
  readonly [K in keyof Handlers]: Exclude<Awaited<ReturnType<Handlers[K]>>, SidegateError>;
};

export type OperationKind = keyof Operations;

export type Operation = { [K in OperationKind]: { readonly kind: K } & Operations[K] }[OperationKind];

export type Reply = { readonly isDone: true; readonly result: Results[OperationKind] } | ({ readonly isDone: false } & Failure);

/** The others only read. */
const WRITES: ReadonlySet<string> = new Set(['append', 'settle', ...Object.keys(WRITERS)]);
/** The others lock lanes, too, each in its own transaction. */
const TOGETHER: ReadonlySet<string> = new Set(['append', 'settle', 'putEndpoint', 'removeEndpoint']);
/** They can read many rows. */
const SCANS: ReadonlySet<OperationKind> = new Set(['stats', 'inboxes', 'dueLanes', 'findStep', 'findEventsStep', 'countStep']);

export class Store {
  readonly #database: Database;
  readonly #bounds: QueueBounds;
  readonly #taker = new Taker();
  readonly #ranker = new Ranker();
  /** The groups whose last write failed by a lock. */
  readonly #locked = new Set<string>();
  /** Endpoints that have had a lane. */
  readonly #known = new Set<string>();

  constructor(database: Database, bounds: QueueBounds) {
    this.#database = database;
    this.#bounds = bounds;
  }

  isWrite({ kind }: Pick<Operation, 'kind'>): boolean {
    return WRITES.has(kind);
  }

  /** Executes writes, nearly all in one transaction; replies in their order. Groups that waited too long for a lock are written apart until it is free. */
  write(tasks: readonly Task[]): Promise<readonly Reply[]> {
    const isApart = (task: Task): boolean => this.#locked.size > 0 && this.#locked.has(toGroup(task));
    // See `lockLanes`: where others write, too.
    const isAlone = (kind: OperationKind): boolean => this.#database.dialect.forUpdate !== '' && !TOGETHER.has(kind);
    const ofTask = (task: Task): string | Task => (isAlone(task.operation.kind) ? task : isApart(task) ? toGroup(task) : '');
    const parts = [...Map.groupBy(tasks, ofTask)].map(([of, part]) => [typeof of === 'string' ? of : '', part] as const);
    return this.#writeEach(tasks, parts);
  }

  async #writeEach(tasks: readonly Task[], parts: Iterable<readonly [group: string, part: readonly Task[]]>) {
    const replies = new Map<Task, Reply>();
    for (const [name, part] of parts) {
      const [first] = part as readonly [Task, ...Task[]];
      const group = part.length === 1 && this.#locked.has(toGroup(first)) ? toGroup(first) : name;
      const written = await this.#write(part, group);
      for (const [i, task] of part.entries()) replies.set(task, written[i] as Reply);
    }
    return tasks.map((task) => replies.get(task) as Reply);
  }

  /** `group`: of all tasks; others wait for them. */
  async #write(tasks: readonly Task[], group: string): Promise<readonly Reply[]> {
    const written = this.#database.transaction((sql) => this.#writeAll(sql, tasks), group !== '');
    const failed = await written.then(
      () => undefined,
      (thrown: unknown) => this.#writeApart(tasks, group, thrown),
    );
    if (failed !== undefined) return failed;
    // The tasks are committed: nothing below may make them fail.
    for (const { operation } of tasks) if (operation.kind === 'settle') this.#taker.forget(operation);
    if (tasks.some(({ operation }) => operation.kind === 'pruneStep')) await this.#database.shrink?.().catch(() => undefined);
    this.#locked.delete(group);
    return written;
  }

  /** One that cannot be written does not take the others with it. */
  async #writeApart(tasks: readonly Task[], group: string, thrown: unknown): Promise<readonly Reply[]> {
    const groups = new Set(group === '' ? tasks.map(toGroup) : [group]);
    const { error, isOfStore, isOfLock = false } = this.#database.explain(thrown);
    const isLocked = isOfLock && groups.size === 1;
    if (isLocked) for (const each of groups) this.#locked.add(each);
    if (tasks.length === 1 || isOfStore || isLocked) return tasks.map(() => toFailed(error));
    return this.#writeEach(tasks, group === '' ? Map.groupBy(tasks, toGroup) : tasks.map((task) => [group, [task]]));
  }

  /** Appends in a transaction of the caller. Rejects with a SidegateError at a bound, and with the error of the database. */
  async appendIn(sql: Sql, operation: Operations['append'], bodies: readonly Uint8Array[]): Promise<Results['append']> {
    const [result = []] = (await this.#change(sql, [{ operation, bodies }], [])).appended;
    if (result instanceof SidegateError) throw result;
    return result;
  }

  /** Executes a read. Pushes the bodies of its result to `bodies`. */
  async read(operation: Operation, bodies: Uint8Array[]): Promise<Reply> {
    const before = bodies.length;
    try {
      const run = (sql: Sql): Promise<Results[OperationKind] | SidegateError> => this.#handle(sql, operation, bodies);
      const scanned = SCANS.has(operation.kind) ? this.#database.scan?.(run) : undefined;
      return toReply(await (scanned ?? run(this.#database)));
    } catch (thrown) {
      bodies.length = before;
      return toFailed(this.#database.explain(thrown).error);
    }
  }

  async #writeAll(sql: Sql, tasks: readonly Task[]): Promise<readonly Reply[]> {
    const replies: Reply[] = [];
    const appends: (Append & { readonly index: number })[] = [];
    const settlements: (Operations['settle'] & { readonly index: number })[] = [];
    for (let index = 0; index < tasks.length; index++) {
      const { operation, bodies } = tasks[index] as Task;
      if (operation.kind === 'append') appends.push({ index, operation, bodies });
      else if (operation.kind === 'settle') settlements.push({ ...operation, index });
    }
    const { appended, settled } = await this.#change(sql, appends, settlements);
    for (let i = 0; i < appended.length; i++) replies[appends[i]?.index ?? 0] = toReply(appended[i] as Results['append']);
    for (let i = 0; i < settled.length; i++) replies[settlements[i]?.index ?? 0] = toReply(settled[i] as Results['settle']);
    for (let index = 0; index < tasks.length; index++) {
      const { operation } = tasks[index] as Task;
      if (operation.kind === 'append' || operation.kind === 'settle') continue;
      replies[index] = toReply(await this.#handle(sql, operation, []));
    }
    return replies;
  }

  async #change(sql: Sql, appends: readonly Append[], settlements: readonly Settle[]) {
    const endpoints = new Set<string>();
    for (const { operation } of appends)
      for (const { targets } of operation.events) for (const { endpoint } of targets) endpoints.add(endpoint);
    for (const { endpoint } of settlements) endpoints.add(endpoint);
    const unknown = sql.memory === undefined ? [...endpoints].filter((endpoint) => !this.#known.has(endpoint)) : [];
    if (unknown.length > 0) await addLanes(sql, unknown);
    if (this.#known.size > MAX_LANES) this.#known.clear();
    for (const endpoint of unknown) this.#known.add(endpoint);
    const locked = { lanes: await lockLanes(sql, endpoints), figures: new FigureChanges() };
    const appended = appends.length === 0 ? [] : await append(sql, appends, this.#bounds, locked);
    const settled = settlements.length === 0 ? [] : await settle(sql, settlements, this.#ranker, locked);
    await locked.figures.write(sql);
    return { appended, settled };
  }

  #handle(sql: Sql, operation: Operation, bodies: Uint8Array[]): Promise<Results[OperationKind] | SidegateError> {
    const handle = HANDLERS[operation.kind as keyof Handlers] as (...args: readonly unknown[]) => Promise<Results[OperationKind]>;
    return handle(sql, operation, { bounds: this.#bounds, taker: this.#taker, bodies } satisfies Context);
  }
}

/** Names the events of a tenant, or an endpoint: one lock of another transaction can hold up all of them. */
function toGroup({ operation }: Task): string {
  if (operation.kind !== 'append') return 'endpoint' in operation ? `endpoint ${operation.endpoint}` : operation.kind;
  const [event] = operation.events;
  return event?.tenant === undefined
    ? `endpoints ${event?.targets.map(({ endpoint }) => endpoint).join()}`
    : `tenant ${event.tenant}`;
}

async function putEndpoint(sql: Sql, operation: { readonly endpoint: StoredEndpoint; readonly replaced: number | undefined }) {
  const { endpoint, replaced } = operation;
  const { id, version, json } = endpoint;
  const changed =
    replaced === undefined
      ? await sql.run('INSERT INTO endpoint VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING', [id, version, json])
      : await sql.run('UPDATE endpoint SET version = ?, json = ? WHERE id = ? AND version = ?', [version, json, id, replaced]);
  return changed === 1;
}

function toReply(result: Results[OperationKind] | SidegateError): Reply {
  return result instanceof SidegateError ? toFailed(result) : { isDone: true, result };
}

function toFailed(error: SidegateError): { readonly isDone: false } & Failure {
  const { kind, code, message } = error;
  return { isDone: false, kind, code, message, full: error instanceof QueueFullError ? error.full : undefined };
}

// Hands out due deliveries. Nothing is written: what is taken is known in memory only, and is due again after a crash.

/** `run` numbers the run of the lane: deliveries that an earlier run took can be taken again. */
interface Take {
  readonly endpoint: string;
  readonly run: number;
  readonly limit: number;
  readonly maxBytes?: number | undefined;
  readonly now: EpochMilliseconds;
  readonly only: TakeOnly | 'all' | undefined;
  /** Those that fit go before larger ones. */
  readonly passes?: boolean;
  /** Numbers of events that the run took and gives back. */
  readonly returned: readonly number[];
}

interface DueRow extends Readonly<Record<'event' | 'lane' | 'rank' | 'due' | 'version' | 'bytes', number>> {
  readonly order_key: string | null;
}

interface TakenRow extends Omit<TakenMessage, 'isReplay' | 'bodyLength' | 'facts'> {
  readonly replay: number;
  readonly order_key: string | null;
  readonly tenant: string;
  readonly bytes: number;
  readonly waiting: number;
  readonly body: Uint8Array | null;
}

/** The deliveries that the current run of a lane took and did not settle: the numbers of the events, with their order keys. */
interface TakenByRun {
  readonly run: number;
  readonly keys: Map<number, string | null>;
  /** The end of the take before: concurrent ones get different deliveries. Without its result, whose bodies it would keep. */
  last: Promise<void>;
}

/** Behind more that are too large, others are not found. */
const MAX_PASSED = 256;
const LAST_RANKS = {
  all: AGAIN,
  heads: AGAIN,
  first: FIRST,
  untried: FIRST_OF_FAILING_TYPE,
  fresh: FIRST_OF_FAILING_TYPE,
} as const;
/**
 * By the name of the lane: it has another number if it was removed while it had no delivery, and a number another lane if a failover lost it. Those
 * who accepted the deliveries of one snapshot knew no newer version of the endpoint than it has.
 */
const WAITING = `SELECT event, lane, rank, due, order_key, ${ENDPOINT_VERSION} AS version,
    (SELECT bytes - ${DELIVERY_BYTES} * targets FROM event WHERE seq = delivery.event) AS bytes FROM delivery
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
const toRead = (
  metadata: string,
  body: string,
): string => `SELECT d.event AS seq, e.id AS event, e.type, e.created AS "createdAt", d.attempt, d.tries, d.replay, d.due, d.order_key, e.tenant, e.bytes,
    e.waiting, ${metadata} AS metadata, ${body} AS body
  FROM event e JOIN delivery d ON d.event = e.seq, rows r WHERE e.seq = r.seq AND d.lane = r.lane AND d.state < ${BLOCKED}`;
const HEADS = toRead("''", 'NULL');
const PAYLOAD = 'FROM payload p WHERE p.event = r.seq';
const READ = toRead(`(SELECT metadata ${PAYLOAD})`, `(SELECT body ${PAYLOAD})`);

export class Taker {
  readonly #taken = new Map<string, TakenByRun>();

  /** Due deliveries that are not taken: first attempts first, the oldest due first; pushes their bodies to `bodies`. */
  async take(sql: Sql, operation: Take, bodies: Uint8Array[]) {
    const taken = this.#of(operation);
    if (taken === undefined) return { taken: [] };
    const result = taken.last.then(() => takeFor(sql, operation, taken));
    const ignore = (): void => undefined;
    taken.last = result.then(ignore, ignore);
    const { rows, next, needs } = await result;
    const messages: TakenMessage[] = [];
    for (const row of rows) messages.push(toTaken(row, bodies));
    return { taken: messages, next, needs };
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

/** With `next`: when the next delivery is due that is not taken; `needs`: its bytes, if it was not taken because of them. */
async function takeFor(sql: Sql, operation: Take, taken: TakenByRun) {
  const { limit, now } = operation;
  const { keys } = taken;
  for (const seq of operation.returned) keys.delete(seq);
  // A taken delivery stands for at most two of these rows: itself, and one that its order key keeps back.
  const most = limit + 2 * keys.size + (operation.passes ? MAX_PASSED : 1);
  if (operation.only === 'fresh') return takeFresh(sql, operation, taken, most);
  const first = await sql.all<DueRow>(FIND, [...toNames(operation), most]);
  let { picked, next, needs } = pick(first, operation, keys);
  if (first.length === most && (picked.length === limit || needs !== undefined)) next = now;
  else if (first.length === most) {
    const parameters = RANKS.flatMap(() => [...toNames(operation), most]);
    ({ picked, next, needs } = pick(await sql.all<DueRow>(FIND_OF_RANKS, parameters), operation, keys));
  }
  return { rows: await readPicked(sql, picked, operation, keys), next, needs };
}

async function takeFresh(sql: Sql, operation: Take, { keys }: TakenByRun, most: number) {
  const { now } = operation;
  const found: DueRow[] = [];
  for (const rank of [FIRST, FIRST_OF_FAILING_TYPE])
    found.push(...(await sql.all<DueRow>(FIND_FRESH, [...toNames(operation), rank, now - FRESH_MS, now, most])));
  const { picked, needs } = pick(found, operation, keys);
  return { rows: await readPicked(sql, picked, operation, keys), next: now, needs };
}

/** The first of those that are due, and when the next of the others is. */
function pick(
  found: readonly DueRow[],
  { limit, maxBytes = Number.POSITIVE_INFINITY, now, only = 'all', passes }: Take,
  taken: TakenByRun['keys'],
) {
  const busy = new Set(taken.values());
  const picked: DueRow[] = [];
  let next = Number.POSITIVE_INFINITY;
  let left = maxBytes;
  let needs: number | undefined;
  for (const row of found) {
    const { event, due, rank, order_key: key, bytes } = row;
    if (taken.has(event)) continue;
    const isFree = due <= now && rank <= LAST_RANKS[only] && (key === null || !busy.has(key));
    const isNext = isFree && picked.length < limit;
    if (isNext && bytes <= left) {
      picked.push(row);
      left -= bytes;
    } else next = Math.min(next, due);
    if (!isNext) continue;
    // Also if it is passed over: those behind it with its key wait.
    busy.add(key);
    if (picked.at(-1) !== row) {
      needs ??= bytes;
      if (passes !== true) left = 0;
    }
  }
  return { picked, next: next === Number.POSITIVE_INFINITY ? undefined : next, needs };
}

/** Adds them to `keys`, which the run took. */
async function readPicked(sql: Sql, picked: readonly DueRow[], { only }: Take, keys: TakenByRun['keys']) {
  if (picked.length === 0) return [];
  const seqs: { readonly seq: number; readonly lane: number }[] = [];
  for (const { event, lane } of picked) seqs.push({ seq: event, lane });
  const bySeq = new Map<number, TakenRow>();
  const isHeads = only === 'heads';
  // Without a body: it was erased.
  for (const row of await sql.each<TakenRow>(isHeads ? HEADS : READ, 'seq bigint, lane bigint', seqs))
    if (row.body !== null || isHeads) bySeq.set(row.seq, row);
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
  bodies.push(body ?? new Uint8Array());
  return {
    ...row,
    isReplay: replay > 0,
    bodyLength: body?.length ?? 0,
    facts: { key, tenant: toTenant(tenant), bytes, waiting, replay },
  };
}
