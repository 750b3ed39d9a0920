/** The interface of a database to the statements of the queue. SQLite and PostgreSQL each implement it in one file. */
import type { SidegateError } from '../../../core/errors.ts';
import type { QueueStats } from '../delivery-queue.ts';

/** Beyond these, all are forgotten, and read again. */
export const MAX_LANES = 10_000;

export type Parameter = string | number | null;

/** Where the two databases write the same thing differently. */
export interface Dialect {
  /** 64 bits. */
  readonly integer: string;
  readonly bytes: string;
  /** The primary key of rows that are numbered in the order in which they are inserted. A number is never given twice. */
  readonly numberedKey: string;
  /** After CREATE TABLE (…). */
  readonly tableOptions: string;
  /** The same for tables whose primary key is not `numberedKey`: their rows are stored in the order of the key. */
  readonly keyedTableOptions: string;
  /** At the end of a SELECT: no other transaction changes these rows before the end of this one. */
  readonly forUpdate: string;
  /** The parameter `?`, JSON of a list of objects, as the table `r` with these columns, such as `seq bigint, id text`. */
  rows(columns: string): string;
  /** The parameter `?`, JSON of a list of values, as a subquery for IN. */
  list(type: 'bigint' | 'text'): string;
}

/** An event's bytes, which never change. */
export interface Payload {
  readonly event: number;
  readonly metadata: string;
  readonly body: Uint8Array;
}

/** Runs statements. `?` stands for a parameter. */
export interface Sql {
  readonly dialect: Dialect;
  /** Undefined if other processes use the database. */
  readonly memory: Memory | undefined;
  all<Row extends object>(statement: string, parameters?: readonly Parameter[]): Promise<readonly Row[]>;
  /** Returns how many rows were changed. */
  run(statement: string, parameters?: readonly Parameter[]): Promise<number>;
  /**
   * Runs a statement with one parameter: these rows, as the table `rows r`. They have all the columns. SQLite runs it for each row by itself, so
   * it must not compare rows with each other, and only names `r` in `FROM rows r` or `, rows r` and in `r.column`. Returns its rows.
   */
  each<Row extends object>(statement: string, columns: string, rows: readonly object[]): Promise<readonly Row[]>;
  /** The same for an UPDATE; returns those of the rows for which it changed something. */
  change<Row extends object>(statement: string, columns: string, rows: readonly Row[]): Promise<readonly Row[]>;
  /** The same for an INSERT of events, each with another `id`. Returns the number of each in the order of the rows; undefined: an event with the ID is stored. */
  number(statement: string, columns: string, rows: readonly { readonly id: string }[]): Promise<readonly (number | undefined)[]>;
  insertPayloads(payloads: readonly Payload[]): Promise<void>;
}

export interface Database extends Sql {
  /** Commits when `work` resolves; otherwise nothing has changed. `isHurried`: others wait, so it does not wait long for locks. */
  transaction<Result>(work: (sql: Sql) => Promise<Result>, isHurried?: boolean): Promise<Result>;
  /** For reads of many rows, if they need other settings. */
  scan?<Result>(read: (sql: Sql) => Promise<Result>): Promise<Result>;
  /**
   * Describes a failed statement. `isOfStore`: the disk or the server failed, so that the other operations of the transaction would fail as
   * well. `isOfLock`: it waited too long for another transaction.
   */
  explain(thrown: unknown): { readonly error: SidegateError; readonly isOfStore: boolean; readonly isOfLock?: boolean };
  /** After a step that removed events; absent if the server does it by itself. */
  shrink?(): Promise<void>;
}

export interface LaneRow {
  readonly num: number;
  readonly name: string;
  /** JSON of a LaneState. */
  readonly state: string | null;
  readonly waiting: number;
  readonly bytes: number;
  /** Has the lease, until `lease`; null: nobody. */
  readonly owner: string | null;
}

export type LaneChange = Record<'waiting' | 'bytes' | 'dead' | 'skipped', number> & Pick<LaneRow, 'num'>;

export interface TenantChange extends Record<'events' | 'bytes' | 'stored_events' | 'stored_bytes', number> {
  readonly name: string;
}

export type Stored = Pick<QueueStats, 'events' | 'bytes' | 'storedEvents' | 'storedBytes'>;

/** Remembers rows as the process last read or wrote them, and forgets all when a transaction fails. */
export class Memory {
  readonly #lanes = new Map<string, LaneRow>();
  readonly #names = new Map<number, string>();
  /** Undefined: not known. */
  stored: Stored | undefined;

  findLane(name: string): LaneRow | undefined {
    return this.#lanes.get(name);
  }

  addLane(lane: LaneRow): void {
    if (this.#lanes.size >= MAX_LANES) this.clear();
    this.#lanes.set(lane.name, lane);
    this.#names.set(lane.num, lane.name);
  }

  changeLane({ num, waiting, bytes }: LaneChange): void {
    const lane = this.#findByNumber(num);
    if (lane !== undefined) this.#lanes.set(lane.name, { ...lane, waiting: lane.waiting + waiting, bytes: lane.bytes + bytes });
  }

  changeState(num: number, state: string): void {
    const lane = this.#findByNumber(num);
    if (lane !== undefined) this.#lanes.set(lane.name, { ...lane, state });
  }

  changeTenant({ events, bytes, stored_events: storedEvents, stored_bytes: storedBytes }: TenantChange): void {
    const { stored } = this;
    this.stored = stored && {
      events: stored.events + events,
      bytes: stored.bytes + bytes,
      storedEvents: stored.storedEvents + storedEvents,
      storedBytes: stored.storedBytes + storedBytes,
    };
  }

  clear(): void {
    this.#lanes.clear();
    this.#names.clear();
    this.stored = undefined;
  }

  #findByNumber(num: number): LaneRow | undefined {
    const name = this.#names.get(num);
    return name === undefined ? undefined : this.#lanes.get(name);
  }
}
