/** Opens the file of the queue, and creates its tables. */
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { SidegateError, toErrorText } from '../../../../core/errors.ts';

/** Marks the file as a queue of sidegate, in the header that `file` and `sqlite3` show. */
const APPLICATION_ID = 0x53474451;
const SCHEMA_VERSION = 1;

/** Size to which the write-ahead log is cut after a checkpoint. */
const MAX_WAL_BYTES = 67_108_864;
/** 16 MiB: fewer checkpoints than with the default of 4 MiB, each of which syncs the file. */
const CHECKPOINT_PAGES = 4_096;
const CACHE_KIB = 8_192;

/**
 * States of a delivery. `DUE` is due now or later; `BLOCKED` waits behind an earlier one with the same order key.
 * Both are `waiting` to the outside.
 */
export const DUE = 0;
export const BLOCKED = 1;
export const DELIVERED = 2;
export const DEAD = 3;
export const SKIPPED = 4;

/**
 * The row of an event never changes: updating it would write its body again. The newest attempt of a delivery is in its row, and only
 * those before it in `attempt`: most deliveries have one attempt.
 */
const SCHEMA = `
  CREATE TABLE counters (
    one INTEGER PRIMARY KEY CHECK (one = 1), next_seq INTEGER NOT NULL, events INTEGER NOT NULL, bytes INTEGER NOT NULL
  ) STRICT;
  INSERT INTO counters VALUES (1, 1, 0, 0);
  CREATE TABLE event (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, type TEXT NOT NULL, channel TEXT, created INTEGER NOT NULL,
    bytes INTEGER NOT NULL, metadata TEXT NOT NULL, body BLOB
  ) STRICT;
  CREATE INDEX event_created ON event (created, seq);
  CREATE TABLE lane (num INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, state TEXT) STRICT;
  CREATE TABLE delivery (
    event INTEGER NOT NULL, endpoint INTEGER NOT NULL, state INTEGER NOT NULL, due INTEGER NOT NULL, attempt INTEGER NOT NULL,
    tries INTEGER NOT NULL, replay INTEGER NOT NULL, settled INTEGER, order_key TEXT, last TEXT, PRIMARY KEY (event, endpoint)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX delivery_due ON delivery (endpoint, state, due, event) WHERE state < 2;
  CREATE INDEX delivery_order ON delivery (endpoint, order_key, event) WHERE state < 2 AND order_key IS NOT NULL;
  CREATE INDEX delivery_endpoint ON delivery (endpoint, event);
  CREATE INDEX delivery_failed ON delivery (event, endpoint) WHERE state > 2;
  CREATE INDEX delivery_failed_endpoint ON delivery (endpoint, event) WHERE state > 2;
  CREATE TABLE attempt (
    event INTEGER NOT NULL, endpoint INTEGER NOT NULL, n INTEGER NOT NULL, record TEXT NOT NULL, PRIMARY KEY (event, endpoint, n)
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE endpoint (id TEXT PRIMARY KEY, version INTEGER NOT NULL, json TEXT NOT NULL) STRICT, WITHOUT ROWID;
`;

/** SQLite releases without the bug that can corrupt a write-ahead log when it is reset: 3.51.3 and later, and two older lines. */
const FIXED_LINES: readonly (readonly [number, number])[] = [
  [44, 6],
  [50, 7],
  [51, 3],
];

/** Says whether this release of SQLite can be trusted with the queue. */
export function isSafeVersion(version: string): boolean {
  const [major = 0, minor = 0, patch = 0] = version.split('.').map(Number);
  if (major !== 3) return major > 3;
  return minor > 51 || FIXED_LINES.some(([line, fixed]) => minor === line && patch >= fixed);
}

/** Opens the file, which exists, exclusively. Throws a SidegateError of kind `user` if that fails. */
export function openDatabase(path: string): DatabaseSync {
  const db = openFile(path);
  try {
    prepareDatabase(db, path);
    return db;
  } catch (thrown) {
    db.close();
    throw toOpenError(path, thrown);
  }
}

function openFile(path: string): DatabaseSync {
  try {
    return new DatabaseSync(path, { enableForeignKeyConstraints: false });
  } catch (thrown) {
    throw toOpenError(path, thrown);
  }
}

function prepareDatabase(db: DatabaseSync, path: string): void {
  const version = String(readOne(db, 'SELECT sqlite_version()'));
  if (!isSafeVersion(version))
    throw new SidegateError(
      'user',
      'queue_sqlite_version',
      `this Node contains SQLite ${version}, which can corrupt a write-ahead log; use a Node with SQLite 3.51.3 or newer, such as Node 24`,
    );
  // Before the first access: the index of the write-ahead log then is in memory, and no other process can open the file.
  db.exec('PRAGMA locking_mode = EXCLUSIVE');
  // Takes effect only before the first table is created.
  db.exec('PRAGMA auto_vacuum = INCREMENTAL');
  const mode = readOne(db, 'PRAGMA journal_mode = WAL');
  if (mode !== 'wal') throw new Error(`journal_mode is ${String(mode)}`);
  db.exec(
    `PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = ${CHECKPOINT_PAGES}; PRAGMA journal_size_limit = ${MAX_WAL_BYTES}`,
  );
  db.exec(
    `PRAGMA cache_size = -${CACHE_KIB}; PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON`,
  );
  db.exec('BEGIN IMMEDIATE');
  createSchema(db, path);
  db.exec('COMMIT');
}

function createSchema(db: DatabaseSync, path: string): void {
  const version = Number(readOne(db, 'PRAGMA user_version'));
  const application = Number(readOne(db, 'PRAGMA application_id'));
  const tables = Number(readOne(db, 'SELECT count(*) FROM sqlite_schema'));
  if (tables === 0 && version === 0) {
    db.exec(`${SCHEMA} PRAGMA user_version = ${SCHEMA_VERSION}; PRAGMA application_id = ${APPLICATION_ID}`);
    return;
  }
  if (application !== APPLICATION_ID)
    throw new SidegateError(
      'user',
      'queue_not_ours',
      `${path} is a SQLite file, but not a queue of sidegate; give the queue another path`,
    );
  if (version > SCHEMA_VERSION)
    throw new SidegateError(
      'user',
      'queue_newer',
      `${path} was written by a newer sidegate (format ${version}, this one knows ${SCHEMA_VERSION}); start the newer sidegate, or give the queue another path`,
    );
}

function readOne(db: DatabaseSync, sql: string): unknown {
  const row: object = db.prepare(sql).get() ?? {};
  return Object.values(row)[0];
}

const SQLITE_BUSY = 5;
const SQLITE_CORRUPT = 11;
const SQLITE_CANTOPEN = 14;
const SQLITE_NOTADB = 26;

function toOpenError(path: string, thrown: unknown): SidegateError {
  if (thrown instanceof SidegateError) return thrown;
  const { code, message } = describeSqliteError(thrown);
  const options = { cause: thrown };
  if (code === SQLITE_BUSY) return new SidegateError('user', 'queue_in_use', `${path} is in use`, options);
  if (code === SQLITE_CORRUPT || code === SQLITE_NOTADB)
    return new SidegateError(
      'user',
      'queue_corrupt',
      `${path} is damaged, or not a SQLite file (${message}); restore it from a backup, or move it and its -wal file away to start with an empty queue`,
      options,
    );
  const hint = code === SQLITE_CANTOPEN ? 'check that the folder exists and that this user may write to it' : 'check the disk';
  return new SidegateError('user', 'queue_unusable', `cannot open the queue ${path}: ${message}; ${hint}`, options);
}

/** SQLite's primary result code (0: not an error of SQLite) and text. */
export function describeSqliteError(thrown: unknown): { readonly code: number; readonly message: string } {
  if (!(thrown instanceof Error) || !('errcode' in thrown)) return { code: 0, message: toErrorText(thrown) };
  const extended = Number(thrown.errcode);
  return { code: extended & 0xff, message: `${thrown.message} (SQLite ${extended})` };
}

/** The first row of a query. */
export function getRow<T extends object>(statement: StatementSync, ...parameters: (string | number | null)[]): T | undefined {
  return statement.get(...parameters) as T | undefined;
}

/** All rows of a query. */
export function getRows<T extends object>(statement: StatementSync, ...parameters: (string | number | null)[]): readonly T[] {
  return statement.all(...parameters) as unknown as readonly T[];
}
