/** The store in PostgreSQL: what PostgreSQL does differently from SQLite. */
import { randomInt } from 'node:crypto';
import pg from 'pg';
import { type Clock, type Milliseconds, pause } from '../../../core/clock.ts';
import { SidegateError } from '../../../core/errors.ts';
import { offEvent, onEvent } from '../../../core/safe-events.ts';
import { type PostgresTarget, repeatTransaction, toClientConfig, toPostgresError } from '../../../state/postgres.ts';
import type { Database, Dialect, Parameter, Payload, Sql } from '../sql/database.ts';
import { migrate } from '../sql/schema.ts';

export interface PostgresSettings {
  readonly target: PostgresTarget;
  readonly schema: string;
  readonly maxConnections: number;
  readonly statementTimeout: Milliseconds;
}

/**
 * Classes of SQLSTATE: connection, resources, intervention of an operator, system; 25006: the server is a standby; and 25P03: it ended a transaction of a
 * process that paused. Not 57014: another transaction may lock what one of the events needs.
 */
const STORE_ERRORS = /^(?:08|53|57P|58|XX|25006|25P03)/;
/** The class of SQLSTATE for values that a statement cannot use: no other event is the cause, nor the server. */
const DATA_ERRORS = /^22/;
/** The types of integers and of their sums: bigint and numeric. */
const INTEGERS: ReadonlySet<number> = new Set([20, 1700]);
/** They are numbers: none of ours exceeds 2^53. */
const PARSERS = {
  getTypeParser: (type: number, format?: 'text' | 'binary') =>
    INTEGERS.has(type) && format !== 'binary' ? Number : pg.types.getTypeParser(type as never, format as never),
} as pg.CustomTypesConfig;
/**
 * Tables that were never analyzed look small. Without the other settings, statements would read them as a whole, or compile for longer than
 * they run. A list or a repair would sort or merge a whole index for one page. Row-level security would hide rows silently.
 */
const SETTINGS = `SET LOCAL synchronous_commit = on; SET LOCAL jit = off; SET LOCAL enable_seqscan = off;
  SET LOCAL enable_bitmapscan = off; SET LOCAL enable_mergejoin = off; SET LOCAL max_parallel_workers_per_gather = 0;
  SET LOCAL row_security = off`;
/** A statement that changes a table stops all others on it from when it starts to wait for its lock. */
const LOCK_TIMEOUT_MS: Milliseconds = 500;
const LOCK_PAUSE_MS: Milliseconds = 1_000;
const MAX_LOCK_TRIES = 30;
const LOCK_NOT_AVAILABLE = '55P03';
const QUERY_CANCELED = '57014';
const MAX_KEY = 2 ** 47;
const PAYLOADS_PER_STATEMENT = 500;
/** Tables, where a statement names them: a connection pooler need not keep a search path. */
const TABLE =
  /\b(FROM|JOIN|INTO|UPDATE|TABLE|TABLE IF NOT EXISTS|ON) (event|payload|lane|tenant|delivery|attempt|endpoint|version)\b/g;

const DIALECT: Dialect = {
  integer: 'BIGINT',
  bytes: 'BYTEA',
  numberedKey: 'BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY',
  tableOptions: '',
  keyedTableOptions: '',
  forUpdate: ' FOR UPDATE',
  rows: (columns) => `json_to_recordset(?::json) AS r(${columns})`,
  list: (type) => `(SELECT value::${type} FROM json_array_elements_text(?::json))`,
};

/** Ends a transaction that only tests. */
const ROLLBACK = new SidegateError('system', 'rollback', 'the test is over');

type Queryable = Pick<pg.Pool | pg.ClientBase, 'query'>;

/** Statements on a connection, or on any of the pool. */
class PostgresSql implements Sql {
  readonly dialect = DIALECT;
  readonly memory = undefined;
  readonly #queryable: Queryable;
  protected readonly translate: Translate;

  constructor(queryable: Queryable, translate: Translate) {
    this.#queryable = queryable;
    this.translate = translate;
  }

  async all<Row extends object>(statement: string, parameters: readonly Parameter[] = []): Promise<readonly Row[]> {
    return (await this.#query(statement, parameters)).rows as Row[];
  }

  async run(statement: string, parameters: readonly Parameter[] = []): Promise<number> {
    return (await this.#query(statement, parameters)).rowCount ?? 0;
  }

  async each<Row extends object>(statement: string, columns: string, rows: readonly object[]): Promise<readonly Row[]> {
    if (rows.length === 0) return [];
    // Without a limit, the server expects a hundred rows, and reads whole tables for a few of them.
    const atMost = 2 ** Math.ceil(Math.log2(rows.length));
    const table = `(SELECT * FROM ${DIALECT.rows(columns)} LIMIT ${atMost}) r`;
    return this.all(statement.replace('rows r', table), [JSON.stringify(rows)]);
  }

  async change<Row extends object>(statement: string, columns: string, rows: readonly Row[]): Promise<readonly Row[]> {
    const numbered = rows.map((row, index) => ({ ...row, index }));
    const returning = `${statement} RETURNING r.index`;
    const changed = await this.each<{ index: number }>(returning, `${columns}, index bigint`, numbered);
    return changed.map(({ index }) => rows[index] as Row);
  }

  async number(statement: string, columns: string, rows: readonly { readonly id: string }[]) {
    const inserted = await this.each<{ id: string; seq: number }>(`${statement} RETURNING id, seq`, columns, rows);
    const seqs = new Map(inserted.map(({ id, seq }) => [id, seq]));
    return rows.map(({ id }) => seqs.get(id));
  }

  async insertPayloads(payloads: readonly Payload[]): Promise<void> {
    for (let at = 0; at < payloads.length; at += PAYLOADS_PER_STATEMENT) {
      const part = payloads.slice(at, at + PAYLOADS_PER_STATEMENT);
      const rows = part.map(() => '(?, ?, ?)').join(', ');
      const values = part.flatMap(({ event, metadata, body }) => [event, metadata, body]);
      await this.#query(`INSERT INTO payload VALUES ${rows}`, values);
    }
  }

  #query(statement: string, parameters: readonly (Parameter | Uint8Array)[]): Promise<pg.QueryResult> {
    return this.#queryable.query({ text: this.translate(statement), values: [...parameters], types: PARSERS });
  }
}

type Translate = (statement: string) => string;

/** Statements with `?` for parameters, in the form of PostgreSQL. */
function createTranslate(schema: string): Translate {
  const known = new Map<string, string>();
  return (statement) => {
    const found = known.get(statement);
    if (found !== undefined) return found;
    let number = 0;
    const translated = statement
      .replace(TABLE, (_, before: string, table: string) => `${before} "${schema}".${table}`)
      .replace(/\?/g, () => `$${++number}`);
    known.set(statement, translated);
    return translated;
  };
}

export class PostgresDatabase extends PostgresSql implements Database {
  readonly #pool: pg.Pool;
  readonly #begin: string;
  readonly #join: string;
  readonly #schema: string;
  readonly #target: PostgresTarget;

  private constructor(pool: pg.Pool, translate: Translate, { target, schema, statementTimeout }: PostgresSettings) {
    super(pool, translate);
    this.#target = target;
    this.#pool = pool;
    this.#schema = schema;
    // A replica that froze loses its locks before the statements time out that wait for them.
    const limitIdle = (most: Milliseconds): string =>
      `SET LOCAL idle_in_transaction_session_timeout = ${Math.min(most, Math.ceil(0.7 * statementTimeout))}`;
    // Not as parameters of the connection, which poolers reject.
    this.#begin = `BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = ${statementTimeout}; ${limitIdle(3_000)}; ${SETTINGS}`;
    // Between two statements, the outbox can wait for memory.
    this.#join = `${limitIdle(7_000)}; ${SETTINGS}; SAVEPOINT joined`;
  }

  /** Connects and creates the tables. Rejects with a SidegateError. */
  static async open(settings: PostgresSettings, clock: Clock): Promise<PostgresDatabase> {
    const database = PostgresDatabase.#create(settings);
    for (let tries = 1; ; tries++) {
      try {
        await database.transaction((sql) => database.#prepare(sql));
        return database;
      } catch (thrown) {
        // Another transaction holds a lock, such as that of a backup.
        const isLocked = toState(thrown) === LOCK_NOT_AVAILABLE && tries < MAX_LOCK_TRIES;
        if (!isLocked) {
          await database.close();
          throw database.explain(thrown).error;
        }
        await pause(clock, LOCK_PAUSE_MS);
      }
    }
  }

  /** Does what `open` does, and takes it back: the tables of a running fleet stay as they are. Rejects with a SidegateError. */
  static async test(settings: PostgresSettings): Promise<void> {
    const database = PostgresDatabase.#create(settings);
    try {
      await database.transaction(async (sql) => {
        await database.#prepare(sql);
        throw ROLLBACK;
      });
    } catch (thrown) {
      // Another replica is changing the tables.
      if (thrown !== ROLLBACK && toState(thrown) !== LOCK_NOT_AVAILABLE) throw database.explain(thrown).error;
    } finally {
      await database.close();
    }
  }

  static #create(settings: PostgresSettings): PostgresDatabase {
    const pool = new pg.Pool({
      ...toClientConfig(settings.target),
      max: settings.maxConnections,
      connectionTimeoutMillis: settings.statementTimeout,
      query_timeout: 2 * settings.statementTimeout,
      // The connection to the server can end at any time; the next statement then gets another one.
      idleTimeoutMillis: 60_000,
    });
    onEvent(pool, 'error', () => undefined);
    return new PostgresDatabase(pool, createTranslate(settings.schema), settings);
  }

  async #prepare(sql: Sql): Promise<void> {
    const [server] = await sql.all<{ standby: boolean; fsync: string; encoding: string }>(
      `SELECT pg_is_in_recovery() AS standby, current_setting('fsync') AS fsync, current_setting('server_encoding') AS encoding`,
    );
    const reject = (code: string, text: string): never => {
      throw new SidegateError('user', code, text);
    };
    if (server?.standby === true)
      reject('queue_read_only', 'the server of provider.queue.postgres.url is a read-only standby: give the URL of the primary');
    if (server?.encoding !== 'UTF8')
      reject('queue_encoding', `the database has the encoding ${server?.encoding}: create one with the encoding UTF8`);
    if (server?.fsync !== 'on')
      reject('queue_volatile', 'the server loses accepted events when its machine fails: set fsync = on in postgresql.conf');
    await sql.run(`SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}`);
    // Replicas that start at the same time do this one after the other.
    await sql.all('SELECT pg_advisory_xact_lock(hashtext(?))', [`sidegate queue ${this.#schema}`]);
    const [exists] = await sql.all<{ found: boolean }>('SELECT to_regnamespace(?) IS NOT NULL AS found', [this.#schema]);
    if (exists?.found !== true) await sql.run(`CREATE SCHEMA "${this.#schema}"`);
    await migrate(sql, `the schema ${this.#schema}`);
  }

  transaction<Result>(work: (sql: Sql) => Promise<Result>, isHurried = false): Promise<Result> {
    const begin = isHurried ? `${this.#begin}; SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}` : this.#begin;
    return repeatTransaction(() => this.#tryOnce(work, begin));
  }

  /** In a transaction, which has its settings: to compile such a statement takes longer than to run it. */
  scan<Result>(read: (sql: Sql) => Promise<Result>): Promise<Result> {
    return this.transaction(read);
  }

  async #tryOnce<Result>(work: (sql: Sql) => Promise<Result>, begin: string): Promise<Result> {
    const client = await this.#pool.connect();
    // The pool listens only while it has the connection, and an error without a listener would end the process. The next statement rejects.
    const listener = onEvent(client, 'error', () => undefined);
    let broken: Error | undefined;
    try {
      await client.query(begin);
      const result = await work(new PostgresSql(client, this.translate));
      await client.query('COMMIT');
      return result;
    } catch (thrown) {
      // A server that became a standby, or a connection in an unknown state, is not used again.
      broken = isStoreError(thrown) ? (thrown as Error) : undefined;
      if (broken === undefined)
        await client.query('ROLLBACK').catch((error: Error) => {
          broken = error;
        });
      throw thrown;
    } finally {
      offEvent(client, 'error', listener);
      client.release(broken);
    }
  }

  /**
   * Whether another connection is to this database and may use its tables. A lock of this one is visible only in the same database of the
   * same running server: a name or an identifier can also be that of a copy.
   */
  isDatabaseOf(client: pg.ClientBase): Promise<boolean> {
    const key = String(randomInt(MAX_KEY));
    return this.transaction(async (sql) => {
      const [own] = await sql.all<{ role: string }>('SELECT current_user AS role, pg_advisory_xact_lock(?)', [key]);
      const other = new PostgresSql(client, this.translate);
      const [found] = await other.all<{ same: boolean }>(
        `SELECT NOT pg_try_advisory_xact_lock(?)
           AND coalesce((SELECT pg_has_role(oid, 'USAGE') FROM pg_roles WHERE rolname = ?), false) AS same`,
        [key, own?.role ?? ''],
      );
      return found?.same === true;
    });
  }

  /** Statements in the open transaction of another connection, which commits durably from then on. It can go on after a SidegateError: then nothing has changed. */
  async join<Result>(client: pg.ClientBase, work: (sql: Sql) => Promise<Result>): Promise<Result> {
    await client.query(this.#join);
    try {
      const result = await work(new PostgresSql(client, this.translate));
      await client.query('RELEASE joined');
      return result;
    } catch (thrown) {
      if (!(thrown instanceof SidegateError) && !DATA_ERRORS.test(toState(thrown))) throw thrown;
      await client.query('ROLLBACK TO joined; RELEASE joined');
      throw this.explain(thrown).error;
    }
  }

  explain(thrown: unknown): ReturnType<Database['explain']> {
    if (thrown instanceof SidegateError) return { error: thrown, isOfStore: false };
    const state = toState(thrown);
    if (DATA_ERRORS.test(state)) {
      const text = `the queue in PostgreSQL cannot store a value: ${(thrown as Error).message} (${state})`;
      return { error: new SidegateError('user', 'unstorable', text, { cause: thrown }), isOfStore: false };
    }
    const { message, hint } = toPostgresError(thrown, this.#target);
    const text = `the queue cannot use ${message}${state === '' ? '' : ` (${state})`}; ${hint}`;
    const isOfStore = isStoreError(thrown);
    const isOfLock = state === LOCK_NOT_AVAILABLE || state === QUERY_CANCELED;
    const error = new SidegateError(isOfStore || isOfLock ? 'system' : 'user', 'queue_unavailable', text, { cause: thrown });
    return { error, isOfStore, isOfLock };
  }

  close(): Promise<void> {
    return this.#pool.end();
  }
}

/** SQLSTATE; empty if the error is not of the server. */
function toState(thrown: unknown): string {
  return thrown instanceof pg.DatabaseError ? (thrown.code ?? '') : '';
}

function isStoreError(thrown: unknown): boolean {
  return !(thrown instanceof SidegateError) && (!(thrown instanceof pg.DatabaseError) || STORE_ERRORS.test(thrown.code ?? ''));
}
