/** The memory of the thread: the number and the backlog of each endpoint, and the counters of the store. */
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { OpenedLane } from '../messages.ts';
import { DUE, getRow, getRows } from './database.ts';

/** An endpoint in the store. */
export interface StoredLane {
  readonly num: number;
  readonly name: string;
  /** Deliveries that wait, blocked ones included. */
  waiting: number;
  /** Events whose deliveries the current run took and did not settle, with their order keys. */
  taken: Map<number, string | null>;
  /** The number of the current run. */
  run: number;
}

/** Figures that are written with each transaction, or counted when the store is opened. */
export interface Counters {
  nextSeq: number;
  events: number;
  bytes: number;
  dead: number;
  skipped: number;
}

/** Memory that mirrors the database. */
export class StoreMemory {
  readonly counters: Counters = { nextSeq: 1, events: 0, bytes: 0, dead: 0, skipped: 0 };
  readonly #lanes = new Map<string, StoredLane>();
  readonly #byNumber = new Map<number, StoredLane>();
  /** The first event that was settled since the pruner last looked. */
  lowestSettled = 0;
  /** Since `begin`: the counters before, backlogs before, and new lanes. */
  #before: Counters = this.counters;
  readonly #changed = new Map<StoredLane, number>();
  #created: StoredLane[] = [];
  readonly #db: DatabaseSync;
  readonly #insert: StatementSync;
  readonly #save: StatementSync;
  readonly #saveState: StatementSync;
  readonly #firstDue: StatementSync;

  constructor(db: DatabaseSync) {
    this.#db = db;
    this.#insert = db.prepare('INSERT INTO lane (name) VALUES (?)');
    this.#save = db.prepare('UPDATE counters SET next_seq = ?, events = ?, bytes = ?');
    this.#saveState = db.prepare('UPDATE lane SET state = ? WHERE num = ?');
    this.#firstDue = db.prepare(
      `SELECT due FROM delivery INDEXED BY delivery_due WHERE endpoint = ? AND state = ${DUE} AND state < 2 ORDER BY due LIMIT 1`,
    );
    this.#load();
  }

  /** Remembers the figures, for `rollback`. */
  begin(): void {
    this.#before = { ...this.counters };
    this.#changed.clear();
    this.#created = [];
  }

  /** Takes back all changes since `begin`. */
  rollback(): void {
    Object.assign(this.counters, this.#before);
    for (const [lane, waiting] of this.#changed) lane.waiting = waiting;
    for (const { name, num } of this.#created) {
      this.#lanes.delete(name);
      this.#byNumber.delete(num);
    }
  }

  #load(): void {
    const row = getRow<{ next_seq: number; events: number; bytes: number }>(this.#db.prepare('SELECT * FROM counters'));
    if (row !== undefined) Object.assign(this.counters, { nextSeq: row.next_seq, events: row.events, bytes: row.bytes });
    const failed = getRow<{ dead: number; skipped: number }>(
      this.#db.prepare(
        'SELECT count(*) FILTER (WHERE state = 3) AS dead, count(*) FILTER (WHERE state = 4) AS skipped FROM delivery INDEXED BY delivery_failed WHERE state > 2',
      ),
    );
    Object.assign(this.counters, failed);
    for (const { num, name } of getRows<{ num: number; name: string }>(this.#db.prepare('SELECT num, name FROM lane')))
      this.#add({ num, name, waiting: 0, taken: new Map(), run: 0 });
    const backlogs = this.#db.prepare(
      'SELECT endpoint, count(*) AS waiting FROM delivery INDEXED BY delivery_due WHERE state < 2 GROUP BY endpoint',
    );
    for (const { endpoint, waiting } of getRows<{ endpoint: number; waiting: number }>(backlogs)) {
      const lane = this.#byNumber.get(endpoint);
      if (lane !== undefined) lane.waiting = waiting;
    }
  }

  /** All lanes with their next due time, for the process. */
  describe(): OpenedLane[] {
    const rows = getRows<{ name: string; state: string | null }>(this.#db.prepare('SELECT name, state FROM lane'));
    return rows.map(({ name, state }) => {
      const lane = this.#lanes.get(name);
      return {
        endpoint: name,
        next: lane === undefined ? undefined : this.firstDue(lane),
        state: state ?? undefined,
      };
    });
  }

  get lanes(): Iterable<StoredLane> {
    return this.#lanes.values();
  }

  /** Waiting deliveries of all endpoints. */
  countWaiting(): number {
    let waiting = 0;
    for (const lane of this.#lanes.values()) waiting += lane.waiting;
    return waiting;
  }

  find(name: string): StoredLane | undefined {
    return this.#lanes.get(name);
  }

  findByNumber(num: number): StoredLane | undefined {
    return this.#byNumber.get(num);
  }

  /** Finds or creates; within a transaction. */
  obtain(name: string): StoredLane {
    const found = this.#lanes.get(name);
    if (found !== undefined) return found;
    const num = Number(this.#insert.run(name).lastInsertRowid);
    const lane = this.#add({ num, name, waiting: 0, taken: new Map(), run: 0 });
    this.#created.push(lane);
    return lane;
  }

  /** Counts a delivery that waits, or no longer waits; within a transaction. */
  addWaiting(lane: StoredLane, change: 1 | -1): void {
    if (!this.#changed.has(lane)) this.#changed.set(lane, lane.waiting);
    lane.waiting += change;
  }

  /** When the first delivery that is not blocked is due, taken or not. */
  firstDue({ num, waiting }: StoredLane): number | undefined {
    return waiting === 0 ? undefined : getRow<{ due: number }>(this.#firstDue, num)?.due;
  }

  saveState({ num }: StoredLane, state: string): void {
    this.#saveState.run(state, num);
  }

  /** A delivery of this event no longer waits: it may be possible to prune the event. */
  noteSettled(seq: number): void {
    if (seq < this.lowestSettled) this.lowestSettled = seq;
  }

  /** Writes the counters if they changed; at the end of a transaction. */
  saveCounters(): void {
    const { nextSeq, events, bytes } = this.counters;
    const before = this.#before;
    if (before.nextSeq !== nextSeq || before.events !== events || before.bytes !== bytes) this.#save.run(nextSeq, events, bytes);
  }

  #add(lane: StoredLane): StoredLane {
    this.#lanes.set(lane.name, lane);
    this.#byNumber.set(lane.num, lane);
    return lane;
  }
}
