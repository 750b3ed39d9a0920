/** The tables of the outbox: their migrations, and the statements that sidegate runs on them (docs/outbox.md). */
import pg from 'pg';
import { SidegateError } from '../../core/errors.ts';
import { onEvent, runDetached } from '../../core/safe-events.ts';
import {
  type ConnectionResult,
  createPostgresClient,
  formatPostgres,
  PostgresError,
  type PostgresTarget,
  repeatTransaction,
  toPostgresError,
} from '../../state/postgres.ts';

/** Notified by a trigger for each INSERT. */
const OUTBOX_CHANNEL = 'sidegate_outbox';

/**
 * Each runs once, in one transaction, in the schema of the outbox; only ever append to the list. Replicas of the version before run side by
 * side with a new one, so a migration removes nothing that they use. docs/outbox.md shows the same SQL.
 */
export const OUTBOX_MIGRATIONS: readonly string[] = [
  `CREATE TABLE sidegate_outbox (
  seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id text NOT NULL DEFAULT 'msg_' || replace(gen_random_uuid()::text, '-', ''),
  type text NOT NULL,
  tenant text,
  created timestamptz NOT NULL DEFAULT now(),
  data json NOT NULL,
  inserted timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE sidegate_outbox_rejected (
  seq bigint NOT NULL,
  id text NOT NULL,
  type text NOT NULL,
  tenant text,
  created timestamptz NOT NULL,
  data json NOT NULL,
  inserted timestamptz NOT NULL,
  reason text NOT NULL,
  rejected timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (seq, rejected)
);
CREATE FUNCTION sidegate_outbox_notify() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN PERFORM pg_catalog.pg_notify('sidegate_outbox', ''); RETURN NULL; END$$;
CREATE TRIGGER sidegate_outbox_notify AFTER INSERT ON sidegate_outbox
FOR EACH STATEMENT EXECUTE FUNCTION sidegate_outbox_notify();`,
];

/** Of the advisory lock: the bytes of `sgoutbox`. */
const MIGRATION_LOCK = 0x73676f7574626f78n;

/**
 * Settings hold for one transaction, because the next one may run on another connection of a pooler. The search path names the schema of the
 * tables. A lock is waited for, but not long; a replica that the network lost frees its rows after a minute. The removal of a row need
 * not be durable: if it is lost, the row is found again, and the queue knows its ID. Row-level security that hides rows is an error. Deferred triggers
 * run at once: an error at the end would be of all rows.
 */
function toBegin(schema: string): string {
  return [
    'BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE',
    `SET LOCAL search_path TO "${schema}"`,
    'SET LOCAL statement_timeout TO 20000',
    'SET LOCAL lock_timeout TO 10000',
    'SET LOCAL idle_in_transaction_session_timeout TO 60000',
    'SET LOCAL synchronous_commit TO off',
    'SET LOCAL row_security TO off',
    'SET CONSTRAINTS ALL IMMEDIATE',
  ].join('; ');
}

/** The rights that the role needs, by table; `UPDATE (seq)` is what FOR UPDATE asks for. */
const RIGHTS = `SELECT has_table_privilege('sidegate_outbox', 'SELECT') AS "SELECT on sidegate_outbox",
  has_table_privilege('sidegate_outbox', 'DELETE') AS "DELETE on sidegate_outbox",
  has_column_privilege('sidegate_outbox', 'seq', 'UPDATE') AS "UPDATE (seq) on sidegate_outbox",
  has_table_privilege('sidegate_outbox_rejected', 'INSERT') AS "INSERT on sidegate_outbox_rejected",
  NOT (row_security_active('sidegate_outbox') OR row_security_active('sidegate_outbox_rejected')) AS "BYPASSRLS, without which row-level security hides rows"`;

/** Reads the state of the schema, as the role sees it, in a transaction. `version`: 0 without a table. */
async function readSetup(client: pg.Client, schema: string) {
  const query = `SELECT to_regclass('sidegate_outbox_version') IS NOT NULL AS "hasTable",
    coalesce((SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = $1), false) AS "canCreate"`;
  const [found] = (await client.query<{ hasTable: boolean; canCreate: boolean }>(query, [schema])).rows;
  const canCreate = found?.canCreate === true;
  if (found?.hasTable !== true) return { version: 0, canCreate, missingRights: [] };
  const { rows } = await client.query<{ version: number }>('SELECT max(version) AS version FROM sidegate_outbox_version');
  const [rights] = (await client.query<Record<string, boolean>>(RIGHTS)).rows;
  const missingRights = Object.entries(rights ?? {}).flatMap(([right, isGranted]) => (isGranted ? [] : [right]));
  return { version: rows[0]?.version ?? 0, canCreate, missingRights };
}

/** Runs the migrations that are missing, within a transaction. Replicas that start at once do so one after the other. */
async function migrate(client: pg.Client): Promise<void> {
  await client.query('SELECT pg_advisory_xact_lock($1)', [String(MIGRATION_LOCK)]);
  await client.query('CREATE TABLE IF NOT EXISTS sidegate_outbox_version (version integer PRIMARY KEY)');
  const { rows } = await client.query<{ version: number }>(
    'SELECT coalesce(max(version), 0) AS version FROM sidegate_outbox_version',
  );
  for (let version = (rows[0]?.version ?? 0) + 1; version <= OUTBOX_MIGRATIONS.length; version++) {
    await client.query(OUTBOX_MIGRATIONS[version - 1] ?? '');
    await client.query('INSERT INTO sidegate_outbox_version (version) VALUES ($1)', [version]);
  }
}

export interface OutboxRow {
  /** A bigint in decimal. */
  readonly seq: string;
  /** Cut off after one character more than is valid, as are `type` and `tenant`. */
  readonly id: string;
  readonly type: string;
  readonly tenant: string | null;
  /** Seconds since 1970; can be infinite. */
  readonly created: number;
  /** `created` was filled in, or is the same. */
  readonly undated: boolean;
  /** Null if it is larger than an event may be. */
  readonly data: string | null;
  /** Compressed, if it is too large even then. */
  readonly bytes: number;
}

/** Events of one type and tenant go to the same endpoints. */
export type OutboxKind = Pick<OutboxRow, 'type' | 'tenant'>;

/**
 * Starts from the first row each time, so that the events of one writer stay in order. Transactions commit in another order than they insert: a
 * search that starts after the last row would find the later events of such a writer first.
 */
const NOT_HELD = `(sidegate_outbox.type, coalesce(sidegate_outbox.tenant, '')) NOT IN (
  SELECT held.type, held.tenant FROM unnest($1::text[], $2::text[]) AS held (type, tenant))`;
/** A value that is too large even compressed, as it is stored, is not read: that could take longer than a statement may. */
const TAKE = `WITH taken AS MATERIALIZED (
  SELECT seq, CASE WHEN pg_column_size(data) > $4 THEN pg_column_size(data) ELSE octet_length(data::text) END AS bytes
  FROM sidegate_outbox
  WHERE ${NOT_HELD} AND ($6::bigint[] IS NULL OR seq = ANY ($6)) AND seq <> ALL ($7::bigint[])
  ORDER BY seq LIMIT $3
  FOR UPDATE OF sidegate_outbox SKIP LOCKED
), measured AS (
  SELECT *, row_number() OVER (ORDER BY seq) AS place,
    sum(bytes) OVER (ORDER BY seq) AS total FROM taken
)
SELECT seq, left(id, 129) AS id, left(type, 129) AS type, left(tenant, 129) AS tenant,
  extract(epoch FROM created)::float8 AS created, created = inserted AS undated, bytes, CASE WHEN bytes <= $4 THEN data::text END AS data
FROM measured JOIN sidegate_outbox USING (seq)
WHERE place = 1 OR total <= $5 ORDER BY seq`;

/** Reads in one snapshot, also from the first row. */
const FIND = `DECLARE found NO SCROLL CURSOR FOR
  SELECT seq, left(type, 129) AS type, left(tenant, 129) AS tenant FROM sidegate_outbox WHERE ${NOT_HELD} ORDER BY seq`;
const FOUND_AT_ONCE = 1_000;

/** Which rows are held back: those of some kinds; and all others for which `isHeld` is true, if there are too many kinds for a statement. */
interface HeldRows {
  readonly kinds: readonly OutboxKind[];
  readonly isHeld: ((kind: OutboxKind) => boolean) | undefined;
  /** Rows that stay in the table, by `seq`. */
  readonly stuck: readonly string[];
  /** The only row that may be taken, if there is one. */
  readonly alone: string | undefined;
}

/** Locks the oldest rows that no other replica has locked, and that are not held back. `maxBytes`: of one event; `totalBytes`: of all, except for the first. */
export async function takeRows(
  client: pg.Client,
  { kinds, isHeld, stuck, alone }: HeldRows,
  { rows, maxBytes, totalBytes }: { readonly rows: number; readonly maxBytes: number; readonly totalBytes: number },
): Promise<readonly OutboxRow[]> {
  const held = [kinds.map(({ type }) => type), kinds.map(({ tenant }) => tenant ?? '')];
  const free = isHeld === undefined ? null : await findRows(client, held, (kind) => !isHeld(kind), rows);
  const only = alone === undefined ? free : [alone];
  return (await client.query<OutboxRow>(TAKE, [...held, rows, maxBytes, totalBytes, only, stuck])).rows;
}

/** The `seq` of the first rows that are `free`, reading all before them. */
async function findRows(client: pg.Client, held: readonly string[][], isFree: (kind: OutboxKind) => boolean, most: number) {
  await client.query(FIND, [...held]);
  const free: string[] = [];
  for (let isEnd = false; !isEnd && free.length < most; ) {
    const { rows } = await client.query<Pick<OutboxRow, 'seq'> & OutboxKind>(`FETCH ${FOUND_AT_ONCE} FROM found`);
    for (const row of rows) if (isFree(row)) free.push(row.seq);
    isEnd = rows.length < FOUND_AT_ONCE;
  }
  await client.query('CLOSE found');
  return free;
}

/** Of the connection, the server, or another transaction. All others are of single rows: of triggers, rules and foreign keys, which other rows need not have. */
const SHARED_ERRORS = /^(?:08|25|40|53|57P|58|XX)/;
/** Whether a statement or its wait for a lock took too long. */
export function isTimeout(thrown: unknown): boolean {
  return thrown instanceof pg.DatabaseError && /^(?:55P03|57014)$/.test(thrown.code ?? '');
}

/** Returns those whose rows stay, as a trigger can keep them, or the error of one of them. Throws all other errors. */
export async function removeRows<T extends { readonly row: OutboxRow }>(
  client: pg.Client,
  items: readonly T[],
): Promise<readonly T[] | Error> {
  const remove = 'DELETE FROM sidegate_outbox WHERE seq = ANY ($1::bigint[]) RETURNING seq';
  try {
    const removed = await client.query<Pick<OutboxRow, 'seq'>>(remove, [items.map(({ row }) => row.seq)]);
    const gone = new Set(removed.rows.map(({ seq }) => seq));
    return items.filter(({ row }) => !gone.has(row.seq));
  } catch (thrown) {
    if (!(thrown instanceof pg.DatabaseError) || SHARED_ERRORS.test(thrown.code ?? '')) throw thrown;
    return thrown;
  }
}

/** A row that can never be sent. */
export interface RejectedRow {
  readonly row: OutboxRow;
  readonly reason: string;
}

const COLUMNS = 'seq, id, type, tenant, created, data, inserted';
const REJECT = `WITH gone AS (DELETE FROM sidegate_outbox WHERE seq = ANY ($1::bigint[]) RETURNING ${COLUMNS})
INSERT INTO sidegate_outbox_rejected (${COLUMNS}, reason)
SELECT gone.*, invalid.reason FROM gone JOIN unnest($1::bigint[], $2::text[]) AS invalid (seq, reason) USING (seq)`;

/** Moves rows to the table of rejected ones, without reading what they contain. Returns why it moved none; undefined: it moved all. */
export async function rejectRows(client: pg.Client, rejected: readonly RejectedRow[]): Promise<Error | undefined> {
  if (rejected.length === 0) return undefined;
  await client.query('SAVEPOINT rejecting');
  const values = [rejected.map(({ row }) => row.seq), rejected.map(({ reason }) => reason)];
  const result = await client.query(REJECT, values).catch((thrown: Error) => thrown);
  if (!(result instanceof Error) && result.rowCount === rejected.length) return undefined;
  await client.query('ROLLBACK TO rejecting');
  if (result instanceof Error) return result;
  return new PostgresError('sidegate_outbox_rejected does not take the rows', 'drop the trigger or rule that prevents it');
}

/** Counting more would take PostgreSQL longer than a second. */
const MAX_COUNTED_ROWS = 100_000;
const FIGURES = `SELECT (SELECT count(*) FROM (SELECT FROM sidegate_outbox LIMIT ${MAX_COUNTED_ROWS}) AS counted)::int AS waiting,
  f.seq, coalesce(extract(epoch FROM clock_timestamp() - f.inserted), 0)::float8 AS "ageSeconds"
  FROM (SELECT) AS one LEFT JOIN (SELECT seq, inserted FROM sidegate_outbox WHERE seq <> ALL ($1::bigint[]) ORDER BY seq LIMIT 1) AS f ON true`;

/** `waiting`: counted up to `MAX_COUNTED_ROWS`. `seq` and `ageSeconds`: of the first row that is not `stuck`. */
export async function readFigures(client: pg.Client, stuck: readonly string[]) {
  type Figures = { readonly waiting: number; readonly seq: string | null; readonly ageSeconds: number };
  const { rows } = await client.query<Figures>(FIGURES, [stuck]);
  return rows[0] ?? { waiting: 0, seq: null, ageSeconds: 0 };
}

// One connection of the outbox: it listens, and runs transactions one after the other.

const SETUP_HINT = 'run the SQL of docs/outbox.md as the owner of the schema';

/** A connection that was used until the first error. */
export class OutboxSession {
  readonly #target: PostgresTarget;
  readonly #schema: string;
  readonly #client: pg.Client;
  #isOpen = true;

  constructor(target: PostgresTarget, schema: string, onNotified: () => void, onEnded: () => void) {
    this.#target = target;
    this.#schema = schema;
    this.#client = createPostgresClient(target);
    onEvent(this.#client, 'notification', onNotified);
    // The pending query, or the next one, reports the error.
    onEvent(this.#client, 'error', () => {
      this.#isOpen = false;
      onEnded();
    });
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Connects, creates the tables if they are missing, checks the rights of the role, and listens. Rejects with a PostgresError. */
  async open(): Promise<void> {
    const { version } = await this.check();
    if (version < OUTBOX_MIGRATIONS.length) {
      await this.transaction(migrate);
      await this.#readSetup();
    }
    await this.#try(() => this.#client.query(`LISTEN ${OUTBOX_CHANNEL}`));
  }

  /** Connects and checks the tables and the rights of the role. */
  async check() {
    await this.#try(() => this.#client.connect());
    return this.#readSetup();
  }

  /** Runs `work` in one transaction, again if only another transaction made it fail. After a rejection, the session must be ended. */
  transaction<T>(work: (client: pg.Client) => Promise<T>): Promise<T> {
    const run = async (): Promise<T> => {
      await this.#client.query(toBegin(this.#schema));
      const result = await work(this.#client);
      await this.#client.query('COMMIT');
      return result;
    };
    return this.#try(() => repeatTransaction(run, () => this.#client.query('ROLLBACK')));
  }

  /** PostgreSQL rolls back what was not committed. */
  end(): void {
    this.#isOpen = false;
    runDetached(this.#client.end().catch(() => undefined));
  }

  async #try<T>(action: () => Promise<T>): Promise<T> {
    try {
      return await action();
    } catch (thrown) {
      this.#isOpen = false;
      throw thrown instanceof SidegateError ? thrown : toPostgresError(thrown, this.#target);
    }
  }

  async #readSetup() {
    const setup = await this.transaction((client) => readSetup(client, this.#schema));
    const { version, canCreate, missingRights } = setup;
    const { user } = this.#target;
    const title = formatPostgres(this.#target);
    if (version === 0 && !canCreate)
      throw new PostgresError(
        `${title}: the schema ${this.#schema} has no table sidegate_outbox that the role ${user} can see, and the role may not create it`,
        SETUP_HINT,
      );
    if (missingRights.length > 0)
      throw new PostgresError(`${title}: the role ${user} lacks ${missingRights.join(', ')}`, `grant it as docs/outbox.md shows`);
    return setup;
  }
}

/** Connects once, and checks the tables and the rights; changes nothing. */
export async function testOutbox(target: PostgresTarget, schema: string): Promise<ConnectionResult> {
  const title = formatPostgres(target);
  const ignore = (): void => undefined;
  const session = new OutboxSession(target, schema, ignore, ignore);
  try {
    const { version } = await session.check();
    const note = version === 0 ? ' (the start creates the tables of the outbox)' : '';
    return { title: `${title}${note}`, failure: undefined, hint: '' };
  } catch (thrown) {
    const { message, hint } = toPostgresError(thrown, target);
    return { title, failure: message, hint };
  } finally {
    session.end();
  }
}
