/** The store in a SQLite file: what SQLite does differently from PostgreSQL. Runs in a separate thread, because a write waits for the disk. */
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { SidegateError, toErrorText } from '../../../core/errors.ts';
import { toOrderKey } from '../../endpoints/endpoint.ts';
import { toDigest } from '../sql/append.ts';
import { type Database, type Dialect, Memory, type Parameter, type Payload, type Sql } from '../sql/database.ts';
import { migrate } from '../sql/schema.ts';
import { countUnreadCommits } from './queue-file.ts';

/** Marks the file as a queue of sidegate, in the header that `file` and `sqlite3` show. */
const APPLICATION_ID = 0x53474451;
/** In `user_version`, of files from before the version table. */
const OLD_FORMAT = 1;
/** Size to which the write-ahead log is cut after a checkpoint. */
const MAX_WAL_BYTES = 67_108_864;
/** 16 MiB: fewer checkpoints than with the default of 4 MiB, each of which syncs the file. */
const CHECKPOINT_PAGES = 4_096;
const CACHE_KIB = 8_192;
/** SQLite keeps a copy of what is bound until the next run. After a larger one, nulls are bound, which insert nothing. */
const MAX_BOUND_BYTES = 65_536;
const INSERT_LARGE = 'INSERT INTO payload SELECT ?1, ?2, ?3 WHERE ?1 IS NOT NULL';
/** In `auto_vacuum`. */
const INCREMENTAL = 2;
/** Free pages are given back to the file system if they are more than this part of the file, ... */
const MAX_FREE_SHARE = 0.25;
/** ... so many at a time. */
const VACUUMED_PAGES = 1_000;

/** SQLite releases without the bug that can corrupt a write-ahead log when it is reset: 3.51.3 and later, and two older lines. */
const FIXED_LINES: readonly (readonly [number, number])[] = [
  [44, 6],
  [50, 7],
  [51, 3],
];

const SQLITE_BUSY = 5;
const SQLITE_CORRUPT = 11;
const SQLITE_FULL = 13;
const SQLITE_CANTOPEN = 14;
const SQLITE_NOTADB = 26;
/** SQLITE_READONLY, SQLITE_IOERR, SQLITE_CORRUPT, SQLITE_FULL. */
const DISK_ERRORS: ReadonlySet<number> = new Set([8, 10, SQLITE_CORRUPT, SQLITE_FULL]);

/** In a statement for `each`. VALUES costs half as much as SELECT. */
const INSERTED_ROWS = /^(INSERT INTO [^]*?)SELECT ([^]*) FROM rows r\b(?:\s+WHERE true)?/;
const ROWS = /(?:,|\sFROM) rows r\b/;
const ROW_COLUMN = /\br\.(\w+)/g;
/** With an expression, SQLite does not compile the statement again for another value. */
const LIMIT = /\bLIMIT \?/g;

const DIALECT: Dialect = {
  integer: 'INTEGER',
  bytes: 'BLOB',
  numberedKey: 'INTEGER PRIMARY KEY AUTOINCREMENT',
  tableOptions: 'STRICT',
  keyedTableOptions: 'STRICT, WITHOUT ROWID',
  forUpdate: '',
  rows(columns) {
    const values = columns.split(',').map((column) => column.trim().split(' ')[0]);
    return `(SELECT ${values.map((name) => `value ->> '${name}' AS "${name}"`).join(', ')} FROM json_each(?)) AS r`;
  },
  list: () => '(SELECT value FROM json_each(?))',
};

export function isSafeVersion(version: string): boolean {
  const [major = 0, minor = 0, patch = 0] = version.split('.').map(Number);
  if (major !== 3) return major > 3;
  return minor > 51 || FIXED_LINES.some(([line, fixed]) => minor === line && patch >= fixed);
}

interface Prepared {
  readonly statement: StatementSync;
  readonly names: readonly string[];
  /** The columns of the row that are its parameters. */
  readonly parameters: readonly string[];
}

export class SqliteDatabase implements Database {
  readonly dialect = DIALECT;
  readonly memory = new Memory();
  /** See `countUnreadCommits`. */
  readonly unreadCommits: number;
  readonly #db: DatabaseSync;
  readonly #statements = new Map<string, Prepared>();

  private constructor(db: DatabaseSync, unreadCommits: number) {
    this.#db = db;
    this.unreadCommits = unreadCommits;
  }

  /** Opens the file, which exists, exclusively. Rejects with a SidegateError of kind `user` if that fails. */
  static async open(path: string): Promise<SqliteDatabase> {
    let opened: DatabaseSync | undefined;
    try {
      const db = new DatabaseSync(path, { enableForeignKeyConstraints: false });
      opened = db;
      const database = new SqliteDatabase(db, configure(db, path));
      const isOld = readOne(db, 'PRAGMA user_version') === OLD_FORMAT;
      await database.transaction((sql) => (isOld ? upgrade(db, sql, path) : migrate(sql, path)));
      return database;
    } catch (thrown) {
      opened?.close();
      throw toOpenError(path, thrown);
    }
  }

  async all<Row extends object>(statement: string, parameters: readonly Parameter[] = []): Promise<readonly Row[]> {
    const found: Row[] = [];
    this.#read(this.#prepare(statement), parameters, found);
    return found;
  }

  async run(statement: string, parameters: readonly Parameter[] = []): Promise<number> {
    return Number(this.#prepare(statement).statement.run(...parameters).changes);
  }

  /** A statement for each row costs about half as much as one that reads the rows from JSON. */
  async each<Row extends object>(statement: string, _: string, rows: readonly object[]): Promise<readonly Row[]> {
    const prepared = this.#prepareForRow(statement);
    const found: Row[] = [];
    for (const row of rows) this.#read(prepared, toParameters(prepared, row), found);
    return found;
  }

  /** RETURNING would cost as much as the statement itself, here and below. */
  async change<Row extends object>(statement: string, _: string, rows: readonly Row[]): Promise<readonly Row[]> {
    const prepared = this.#prepareForRow(statement);
    const changed: Row[] = [];
    for (const row of rows) if (prepared.statement.run(...toParameters(prepared, row)).changes === 1) changed.push(row);
    return changed;
  }

  async number(statement: string, _: string, rows: readonly object[]): Promise<readonly (number | undefined)[]> {
    const prepared = this.#prepareForRow(statement);
    const numbers: (number | undefined)[] = [];
    for (const row of rows) {
      const { changes, lastInsertRowid } = prepared.statement.run(...toParameters(prepared, row));
      numbers.push(changes === 0 ? undefined : Number(lastInsertRowid));
    }
    return numbers;
  }

  async insertPayloads(payloads: readonly Payload[]): Promise<void> {
    for (const { event, metadata, body } of payloads) {
      const isLarge = body.length > MAX_BOUND_BYTES;
      const { statement } = this.#prepare(isLarge ? INSERT_LARGE : 'INSERT INTO payload VALUES (?, ?, ?)');
      statement.run(event, metadata, body);
      if (isLarge) statement.run(null, null, null);
    }
  }

  async transaction<Result>(work: (sql: Sql) => Promise<Result>): Promise<Result> {
    this.#db.exec('BEGIN IMMEDIATE');
    try {
      const result = await work(this);
      this.#db.exec('COMMIT');
      return result;
    } catch (thrown) {
      this.#rollBack(thrown);
      throw thrown;
    }
  }

  explain(thrown: unknown): ReturnType<Database['explain']> {
    if (thrown instanceof SidegateError) return { error: thrown, isOfStore: false };
    const { code, message } = describe(thrown);
    const error = new SidegateError('system', 'queue_unavailable', `the queue cannot use its file: ${message}`, {
      cause: thrown,
    });
    return { error, isOfStore: DISK_ERRORS.has(code) };
  }

  /** Shrinks the file by a few pages if much of it is free. */
  async shrink(): Promise<void> {
    const count = (pragma: string): number => Number(readOne(this.#db, `PRAGMA ${pragma}`));
    if (count('freelist_count') > MAX_FREE_SHARE * count('page_count'))
      this.#db.exec(`PRAGMA incremental_vacuum(${VACUUMED_PAGES})`);
  }

  /** Shortens the write-ahead log and closes the file. */
  close(): void {
    if (!this.#db.isOpen) return;
    try {
      this.#db.exec('PRAGMA wal_checkpoint(TRUNCATE)');
    } finally {
      this.#statements.clear();
      this.#db.close();
    }
  }

  /** Arrays cost less than the objects of `node:sqlite`, which are dictionaries. */
  #read<Row extends object>({ statement, names }: Prepared, parameters: readonly Parameter[], found: Row[]): void {
    if (names.length === 0) {
      statement.run(...parameters);
      return;
    }
    for (const values of statement.all(...parameters) as unknown as readonly (readonly unknown[])[]) {
      const row: Record<string, unknown> = {};
      for (let i = 0; i < names.length; i++) row[names[i] as string] = values[i];
      found.push(row as Row);
    }
  }

  #prepare(statement: string): Prepared {
    return this.#statements.get(statement) ?? this.#compile(statement, statement.replace(LIMIT, 'LIMIT ? + 0'), []);
  }

  #prepareForRow(statement: string): Prepared {
    const found = this.#statements.get(statement);
    if (found !== undefined) return found;
    const parameters: string[] = [];
    const text = statement
      .replace(INSERTED_ROWS, '$1VALUES ($2)')
      .replace(ROWS, '')
      .replace(ROW_COLUMN, (_, name: string) => {
        parameters.push(name);
        return '?';
      });
    return this.#compile(statement, text, parameters);
  }

  #compile(key: string, text: string, parameters: readonly string[]): Prepared {
    const statement = this.#db.prepare(text);
    statement.setReturnArrays(true);
    const prepared = { statement, names: statement.columns().map(({ name }) => name), parameters };
    this.#statements.set(key, prepared);
    return prepared;
  }

  #rollBack(thrown: unknown): void {
    this.memory.clear();
    try {
      // SQLite has rolled back by itself after some errors.
      if (this.#db.isTransaction) this.#db.exec('ROLLBACK');
      // Moves what is committed into the file, and so frees the space of the log.
      if (describe(thrown).code === SQLITE_FULL) this.#db.exec('PRAGMA wal_checkpoint(TRUNCATE)');
    } catch {
      // The next operation fails in the same way, and reports it.
    }
  }
}

function toParameters({ parameters }: Prepared, row: object): Parameter[] {
  const values: Parameter[] = [];
  for (const name of parameters) values.push((row as Readonly<Record<string, Parameter>>)[name] ?? null);
  return values;
}

/** Returns how many commits of the write-ahead log cannot be read. */
function configure(db: DatabaseSync, path: string): number {
  // Before any SELECT, which reads the file: the index of the write-ahead log then is in memory, and needs no space on a full disk. No other process
  // can open the file.
  db.exec('PRAGMA locking_mode = EXCLUSIVE');
  const version = String(readOne(db, 'SELECT sqlite_version()'));
  if (!isSafeVersion(version)) {
    const text = `this Node contains SQLite ${version}, which can corrupt a write-ahead log; use a Node with SQLite 3.51.3 or newer, such as Node 24`;
    throw new SidegateError('user', 'queue_sqlite_version', text);
  }
  // Takes effect only before the first table is created. Afterwards it would write to the file nonetheless.
  if (readOne(db, 'PRAGMA auto_vacuum') !== INCREMENTAL) db.exec(`PRAGMA auto_vacuum = ${INCREMENTAL}`);
  const mode = readOne(db, 'PRAGMA journal_mode = WAL');
  if (mode !== 'wal') throw new Error(`journal_mode is ${String(mode)}`);
  // Before the first write, which would overwrite what was not read.
  const unreadCommits = countUnreadCommits(path, readLogFrames(db));
  db.exec(
    `PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = ${CHECKPOINT_PAGES}; PRAGMA journal_size_limit = ${MAX_WAL_BYTES}`,
  );
  db.exec(
    `PRAGMA cache_size = -${CACHE_KIB}; PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA secure_delete = ON`,
  );
  const tables = Number(readOne(db, 'SELECT count(*) FROM sqlite_schema'));
  if (tables === 0) db.exec(`PRAGMA application_id = ${APPLICATION_ID}`);
  else if (Number(readOne(db, 'PRAGMA application_id')) !== APPLICATION_ID)
    throw new SidegateError(
      'user',
      'queue_not_ours',
      `${path} is a SQLite file, but not a queue of sidegate; give the queue another path`,
    );
  return unreadCommits;
}

/** The frames of the write-ahead log that SQLite has read. It copies them if the disk has room. SQLite before 3.53 knows no NOOP: its log is not examined. */
function readLogFrames(db: DatabaseSync): number {
  let frames = Number.MAX_SAFE_INTEGER;
  try {
    frames = (db.prepare('PRAGMA wal_checkpoint(NOOP)').get() as { readonly log: number }).log;
    db.exec('PRAGMA wal_checkpoint');
  } catch {
    // The log keeps them.
  }
  return frames;
}

function readOne(db: DatabaseSync, sql: string): unknown {
  const row: object = db.prepare(sql).get() ?? {};
  return Object.values(row)[0];
}

const OPEN_HINTS: ReadonlyMap<number, string> = new Map([
  [SQLITE_CANTOPEN, 'check that the folder exists and that this user may write to it'],
  [SQLITE_FULL, 'free or enlarge the disk'],
]);

function toOpenError(path: string, thrown: unknown): SidegateError {
  if (thrown instanceof SidegateError) return thrown;
  const { code, message } = describe(thrown);
  const options = { cause: thrown };
  if (code === SQLITE_BUSY) return new SidegateError('user', 'queue_in_use', `${path} is in use`, options);
  if (code === SQLITE_CORRUPT || code === SQLITE_NOTADB) {
    const text = `${path} is damaged, or not a SQLite file (${message}); restore it from a backup, or move it and its -wal file away to start with an empty queue`;
    return new SidegateError('user', 'queue_corrupt', text, options);
  }
  const hint = OPEN_HINTS.get(code) ?? 'check the disk';
  return new SidegateError('user', 'queue_unusable', `cannot open the queue ${path}: ${message}; ${hint}`, options);
}

/** SQLite's primary result code (0: not an error of SQLite) and text. */
function describe(thrown: unknown): { readonly code: number; readonly message: string } {
  if (!(thrown instanceof Error) || !('errcode' in thrown)) return { code: 0, message: toErrorText(thrown) };
  const extended = Number(thrown.errcode);
  return { code: extended & 0xff, message: `${thrown.message} (SQLite ${extended})` };
}

const TABLES = ['event', 'lane', 'delivery', 'attempt', 'endpoint'] as const;
const INDEXES = [
  'event_created',
  'delivery_due',
  'delivery_order',
  'delivery_endpoint',
  'delivery_failed',
  'delivery_failed_endpoint',
] as const;

/** In this order: later ones count what the earlier ones copied. */
const COPIES = [
  'INSERT INTO endpoint SELECT id, version, json FROM old_endpoint',
  'INSERT INTO payload SELECT seq, metadata, body FROM old_event',
  'INSERT INTO attempt SELECT event, endpoint, n, record FROM old_attempt',
  `INSERT INTO delivery SELECT event, endpoint, state, CASE WHEN attempt > 0 OR replay = 1 THEN 2 ELSE 0 END, due,
     CASE WHEN state < 2 AND tries > 0 THEN max(0, due - coalesce(last ->> 'at', due)) ELSE 0 END,
     attempt, tries, replay, settled, to_order_key((SELECT name FROM old_lane WHERE num = endpoint), order_key), last FROM old_delivery`,
  `INSERT INTO event (seq, id, type, tenant, created, bytes, digest, targets, waiting, failed)
     SELECT e.seq, e.id, e.type, coalesce(e.tenant, ''), e.created, e.bytes, to_digest(e.type, e.tenant, e.body),
       count(d.event), count(CASE WHEN d.state < 2 THEN 1 END), count(CASE WHEN d.state > 2 THEN 1 END)
     FROM old_event e LEFT JOIN delivery d ON d.event = e.seq GROUP BY e.seq`,
  `INSERT INTO lane (num, name, state, waiting, bytes, dead, skipped, owner, lease)
     SELECT l.num, l.name, l.state, count(CASE WHEN d.state < 2 THEN 1 END), coalesce(sum(CASE WHEN d.state < 2 THEN e.bytes END), 0),
       count(CASE WHEN d.state = 3 THEN 1 END), count(CASE WHEN d.state = 4 THEN 1 END), NULL, 0
     FROM old_lane l LEFT JOIN delivery d ON d.lane = l.num LEFT JOIN event e ON e.seq = d.event GROUP BY l.num`,
  `INSERT INTO tenant SELECT tenant, count(CASE WHEN waiting > 0 THEN 1 END), coalesce(sum(CASE WHEN waiting > 0 THEN bytes END), 0),
     count(*), sum(bytes) FROM event GROUP BY tenant`,
] as const;

/** Brings a file from before the version table (format 1 in `user_version`) to the tables of today, in a transaction of the caller. */
async function upgrade(db: DatabaseSync, sql: Sql, path: string): Promise<void> {
  db.function('to_digest', { deterministic: true }, (type, tenant, body) =>
    toDigest(String(type), tenant === null ? undefined : String(tenant), body instanceof Uint8Array ? body : new Uint8Array(0)),
  );
  db.function('to_order_key', { deterministic: true }, (endpoint, value) =>
    value === null ? null : toOrderKey(String(endpoint), String(value)),
  );
  for (const name of INDEXES) db.exec(`DROP INDEX ${name}`);
  for (const name of TABLES) db.exec(`ALTER TABLE ${name} RENAME TO old_${name}`);
  await migrate(sql, path);
  for (const statement of COPIES) db.exec(statement);
  for (const name of TABLES) db.exec(`DROP TABLE old_${name}`);
  db.exec('DROP TABLE counters; PRAGMA user_version = 0');
}
