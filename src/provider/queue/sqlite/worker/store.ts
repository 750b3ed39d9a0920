/** The store behind the queue: runs batches of operations on the database, all writes of a batch in one transaction. */
import type { DatabaseSync } from 'node:sqlite';
import { SidegateError } from '../../../../core/errors.ts';
import { splitBytes } from '../byte-pack.ts';
import type { Failure, OpenedLane, Operation, OperationKind, Operations, Reply, Results, WorkerSettings } from '../messages.ts';
import { Appender } from './append.ts';
import { describeSqliteError, openDatabase } from './database.ts';
import { EndpointTable } from './endpoints.ts';
import { readBacklogs, readStats } from './figures.ts';
import { Finder } from './find.ts';
import { Hastener } from './hasten.ts';
import { StoreMemory } from './lanes.ts';
import { Pruner } from './prune.ts';
import { Replayer } from './replay.ts';
import { Selector } from './selection.ts';
import { Settler } from './settle.ts';
import { Taker } from './take.ts';

const WRITES: ReadonlySet<OperationKind> = new Set([
  'append',
  'settle',
  'replayStep',
  'replayMissing',
  'pruneStep',
  'hasten',
  'putEndpoint',
  'removeEndpoint',
]);
const SQLITE_FULL = 13;
/** SQLITE_READONLY, SQLITE_IOERR, SQLITE_CORRUPT, SQLITE_FULL. */
const DISK_ERRORS: ReadonlySet<number> = new Set([8, 10, 11, SQLITE_FULL]);

/** A replied batch. */
export interface BatchResult {
  readonly replies: readonly Reply[];
  /** Of the taken deliveries and events that the replies contain, in their order. */
  readonly bodies: readonly Uint8Array[];
}

interface Write {
  readonly index: number;
  readonly operation: Operation;
  readonly bodies: readonly Uint8Array[];
}

interface FailedCommit {
  readonly failure: Failure;
  readonly isOfDisk: boolean;
}

type Handlers = { readonly [K in OperationKind]: (operation: Operations[K], bodies: Uint8Array[]) => Results[K] };

/** An open store. */
export class Store {
  readonly #db: DatabaseSync;
  readonly #memory: StoreMemory;
  readonly #handlers: Handlers;
  readonly #pruner: Pruner;

  /** Throws a SidegateError if the file cannot be opened. */
  constructor(settings: WorkerSettings) {
    const db = openDatabase(settings.path);
    const memory = new StoreMemory(db);
    const selector = new Selector(db, memory);
    const [appender, settler, taker] = [new Appender(db, memory, settings), new Settler(db, memory), new Taker(db, memory)];
    const [finder, replayer, pruner] = [
      new Finder(db, memory, selector),
      new Replayer(db, memory, selector),
      new Pruner(db, memory),
    ];
    const endpoints = new EndpointTable(db);
    const hastener = new Hastener(db, memory);
    this.#db = db;
    this.#memory = memory;
    this.#pruner = pruner;
    this.#handlers = {
      append: ({ events, now }, bodies) => appender.append(events, bodies, now),
      settle: ({ endpoint, settled, state }) => {
        const lane = memory.obtain(endpoint);
        if (state !== undefined) memory.saveState(lane, state);
        return settler.settle(lane, settled);
      },
      replayStep: (operation) => replayer.replayStep(operation),
      replayMissing: ({ filter, now }) => replayer.replayMissing(filter, now),
      pruneStep: (operation) => pruner.pruneStep(operation),
      hasten: (operation) => hastener.hasten(operation),
      putEndpoint: ({ endpoint }) => endpoints.put(endpoint),
      removeEndpoint: ({ id, version }) => endpoints.remove(id, version),
      take: (operation, bodies) => taker.take(operation, bodies),
      getEvent: ({ id }, bodies) => finder.getEvent(id, bodies),
      findStep: ({ filter, page }) => finder.findStep(filter, page),
      findAttempts: ({ event, endpoint }) => finder.findAttempts(event, endpoint),
      countStep: (operation) => replayer.countStep(operation),
      stats: ({ now }) => readStats(memory, settings, now),
      backlogs: ({ endpoints: names, now }) => readBacklogs(memory, names, now),
      listEndpoints: () => endpoints.list(),
      close: () => this.close(),
    };
  }

  describeLanes(): OpenedLane[] {
    return this.#memory.describe();
  }

  /** Writes first, so that the reads of the same turn see them. */
  run(operations: readonly Operation[], bodies: ArrayBuffer): BatchResult {
    const replies: Reply[] = [];
    const writes: Write[] = [];
    let offset = 0;
    for (const [index, operation] of operations.entries()) {
      if (!WRITES.has(operation.kind)) continue;
      const lengths = operation.kind === 'append' ? operation.events.map(({ bodyLength }) => bodyLength) : [];
      const views = splitBytes(bodies, lengths, offset);
      offset += lengths.reduce((sum, length) => sum + length, 0);
      writes.push({ index, operation, bodies: views });
    }
    if (writes.length > 0) this.#write(writes, replies);
    const read: Uint8Array[] = [];
    for (const [index, operation] of operations.entries())
      if (!WRITES.has(operation.kind)) replies[index] = this.#read(operation, read);
    return { replies, bodies: read };
  }

  /** Shortens the write-ahead log and closes the file. */
  close(): undefined {
    if (!this.#db.isOpen) return undefined;
    try {
      this.#db.exec('PRAGMA wal_checkpoint(TRUNCATE)');
    } finally {
      this.#db.close();
    }
    return undefined;
  }

  #write(writes: readonly Write[], replies: Reply[]): void {
    const failure = this.#commit(writes, replies);
    if (failure === undefined) return;
    // If it is not the disk's fault, each on its own: one that cannot be written does not take the others with it.
    if (writes.length > 1 && !failure.isOfDisk) for (const write of writes) this.#write([write], replies);
    else for (const { index } of writes) replies[index] = { isDone: false, ...failure.failure };
  }

  #commit(writes: readonly Write[], replies: Reply[]): FailedCommit | undefined {
    try {
      this.#memory.begin();
      this.#db.exec('BEGIN IMMEDIATE');
      for (const { index, operation, bodies } of writes)
        replies[index] = { isDone: true, result: this.#handle(operation, [...bodies]) };
      this.#memory.saveCounters();
      if (writes.some(({ operation }) => operation.kind === 'pruneStep')) this.#pruner.shrink();
      this.#db.exec('COMMIT');
    } catch (thrown) {
      return this.#recover(thrown);
    }
    for (const { operation } of writes) if (operation.kind === 'settle') this.#forgetTaken(operation);
    return undefined;
  }

  #recover(thrown: unknown): FailedCommit {
    const { code, message } = describeSqliteError(thrown);
    this.#memory.rollback();
    try {
      // SQLite has rolled back by itself after some errors.
      if (this.#db.isTransaction) this.#db.exec('ROLLBACK');
      // Moves what is committed into the file, and so frees the space of the log.
      if (code === SQLITE_FULL) this.#db.exec('PRAGMA wal_checkpoint(TRUNCATE)');
    } catch {
      // The next operation fails in the same way, and reports it.
    }
    return { failure: toFailure(thrown, message), isOfDisk: DISK_ERRORS.has(code) };
  }

  #read(operation: Operation, bodies: Uint8Array[]): Reply {
    const before = bodies.length;
    try {
      return { isDone: true, result: this.#handle(operation, bodies) };
    } catch (thrown) {
      bodies.length = before;
      return { isDone: false, ...toFailure(thrown, describeSqliteError(thrown).message) };
    }
  }

  #handle<K extends OperationKind>(operation: { readonly kind: K } & Operations[K], bodies: Uint8Array[]): Results[K] {
    return this.#handlers[operation.kind](operation, bodies);
  }

  #forgetTaken({ endpoint, run, settled }: Operations['settle']): void {
    const lane = this.#memory.find(endpoint);
    if (lane?.run === run) for (const { seq } of settled) lane.taken.delete(seq);
  }
}

function toFailure(thrown: unknown, message: string): Failure {
  if (thrown instanceof SidegateError) return { kind: thrown.kind, code: thrown.code, message: thrown.message };
  return { kind: 'system', code: 'queue_unavailable', message };
}
