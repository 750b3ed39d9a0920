/** Executes the operations of the queue in a database: all writes of one turn of the event loop in one transaction. */
import { SidegateError } from '../../../core/errors.ts';
import type { StoredEndpoint } from '../../endpoints/endpoint.ts';
import { type AppendResult, type QueueBounds, QueueFullError } from '../delivery-queue.ts';
import type { Failure } from '../messages.ts';
import { type Append, append } from './append.ts';
import type { Database, Sql } from './database.ts';
import { readBacklogs, readDueLanes, readInboxes, readStates, readStats } from './lanes.ts';
import { addDelivery, countStep, eraseStep, hastenStep, pruneStep, repairStep, rescheduleStep } from './repair.ts';
import { ENDPOINT_VERSION } from './schema.ts';
import { findAttempts, findDeliveries, findEvent, findEvents, readPayload } from './select.ts';
import { Ranker, type Settle, type SettleResult, settle } from './settle.ts';
import { Taker } from './take.ts';

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
/** They can read many rows. */
const SCANS: ReadonlySet<OperationKind> = new Set(['stats', 'inboxes', 'dueLanes', 'findStep', 'findEventsStep', 'countStep']);

export class Store {
  readonly #database: Database;
  readonly #bounds: QueueBounds;
  readonly #taker = new Taker();
  readonly #ranker = new Ranker();
  /** The groups whose last write failed by a lock. */
  readonly #locked = new Set<string>();

  constructor(database: Database, bounds: QueueBounds) {
    this.#database = database;
    this.#bounds = bounds;
  }

  isWrite({ kind }: Pick<Operation, 'kind'>): boolean {
    return WRITES.has(kind);
  }

  /** Executes writes in one transaction; replies in their order. Groups that waited too long for a lock are written apart until it is free. */
  write(tasks: readonly Task[]): Promise<readonly Reply[]> {
    const isApart = (task: Task): boolean => this.#locked.size > 0 && this.#locked.has(toGroup(task));
    const parts = Map.groupBy(tasks, (task) => (isApart(task) ? toGroup(task) : ''));
    return this.#writeEach(tasks, parts);
  }

  async #writeEach(tasks: readonly Task[], parts: Iterable<readonly [group: string, part: readonly Task[]]>) {
    const replies = new Map<Task, Reply>();
    for (const [group, part] of parts) {
      const written = await this.#write(part, group);
      for (const [i, task] of part.entries()) replies.set(task, written[i] as Reply);
    }
    return tasks.map((task) => replies.get(task) as Reply);
  }

  /** `group`: of all tasks; others wait for them. */
  async #write(tasks: readonly Task[], group: string): Promise<readonly Reply[]> {
    const isHurried = group !== '';
    try {
      const replies = await this.#database.transaction((sql) => this.#writeAll(sql, tasks), isHurried);
      for (const { operation } of tasks) if (operation.kind === 'settle') this.#taker.forget(operation);
      if (tasks.some(({ operation }) => operation.kind === 'pruneStep')) await this.#database.shrink?.();
      this.#locked.delete(group);
      return replies;
    } catch (thrown) {
      const { error, isOfStore, isOfLock } = this.#database.explain(thrown);
      if (isOfLock && isHurried) this.#locked.add(group);
      if (tasks.length === 1 || isOfStore || (isOfLock && isHurried)) return tasks.map(() => toFailed(error));
      // One that cannot be written does not take the others with it.
      return this.#writeEach(tasks, isHurried ? tasks.map((task) => [group, [task]]) : Map.groupBy(tasks, toGroup));
    }
  }

  /** Appends in a transaction of the caller. Rejects with a SidegateError at a bound, and with the error of the database. */
  async appendIn(sql: Sql, operation: Operations['append'], bodies: readonly Uint8Array[]): Promise<Results['append']> {
    const [result = []] = await append(sql, [{ operation, bodies }], this.#bounds);
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
    const appended = appends.length === 0 ? [] : await append(sql, appends, this.#bounds);
    for (let i = 0; i < appended.length; i++) replies[appends[i]?.index ?? 0] = toReply(appended[i] as Results['append']);
    const settled = settlements.length === 0 ? [] : await settle(sql, settlements, this.#ranker);
    for (let i = 0; i < settled.length; i++) replies[settlements[i]?.index ?? 0] = toReply(settled[i] as Results['settle']);
    for (let index = 0; index < tasks.length; index++) {
      const { operation } = tasks[index] as Task;
      if (operation.kind === 'append' || operation.kind === 'settle') continue;
      replies[index] = toReply(await this.#handle(sql, operation, []));
    }
    return replies;
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

interface PutEndpoint {
  readonly endpoint: StoredEndpoint;
  readonly replaced: number | undefined;
}

async function putEndpoint(sql: Sql, { endpoint: { id, version, json }, replaced }: PutEndpoint) {
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
