/** Makes settled deliveries due again, in steps. */
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { EpochMilliseconds } from '../../../../core/clock.ts';
import type { DeliveryFilter } from '../../delivery-queue.ts';
import type { Operations, ReplayPosition, Results } from '../messages.ts';
import { BLOCKED, DEAD, DUE, getRow, getRows, SKIPPED } from './database.ts';
import type { StoredLane, StoreMemory } from './lanes.ts';
import { joinConditions, joinEvents, type Position, type Selection, type Selector, withoutSettled } from './selection.ts';

const REPLAYED_STATES = ['delivered', 'dead', 'skipped'] as const;
/** Rows of an index that one step of a count reads. */
const COUNTED_PER_STEP = 5_000;
/** Rows that one step of a replay reads, and at most writes. */
const READ_PER_STEP = 2_000;
const REPLAYED_PER_STEP = 500;

interface ReplayRow {
  readonly event: number;
  readonly endpoint: number;
  readonly state: number;
  readonly order_key: string | null;
}

/** Replays deliveries, in transactions of the caller. */
export class Replayer {
  readonly #memory: StoreMemory;
  readonly #selector: Selector;
  readonly #makeDue: StatementSync;
  readonly #setState: StatementSync;
  readonly #findHead: StatementSync;
  readonly #findEvent: StatementSync;
  readonly #findDelivery: StatementSync;
  readonly #insert: StatementSync;

  constructor(db: DatabaseSync, memory: StoreMemory, selector: Selector) {
    this.#memory = memory;
    this.#selector = selector;
    this.#makeDue = db.prepare(
      'UPDATE delivery SET state = ?, due = ?, tries = 0, replay = 1, settled = NULL WHERE event = ? AND endpoint = ?',
    );
    this.#setState = db.prepare('UPDATE delivery SET state = ? WHERE event = ? AND endpoint = ?');
    this.#findHead = db.prepare(
      'SELECT event FROM delivery INDEXED BY delivery_order WHERE endpoint = ? AND order_key = ? AND state < 2 ORDER BY event LIMIT 1',
    );
    this.#findEvent = db.prepare('SELECT seq, type, created FROM event WHERE id = ?');
    this.#findDelivery = db.prepare('SELECT 1 FROM delivery WHERE event = ? AND endpoint = ?');
    this.#insert = db.prepare(`INSERT INTO delivery VALUES (?, ?, ${DUE}, ?, 0, 0, 1, NULL, NULL, NULL)`);
  }

  /** Counts what matches in a bounded number of rows; `position` is undefined in the first step. */
  countStep({ filter, excluded, position }: Operations['countStep']): Results['countStep'] {
    const from = position ?? { seq: 0, endpoint: 0, end: this.#memory.counters.nextSeq - 1 };
    const selection = withoutSettled(this.#selector.select(filter, REPLAYED_STATES), excluded);
    if (selection === undefined) return { count: 0, position: from, isDone: true };
    const boundary = this.#findEnd(selection, from, COUNTED_PER_STEP);
    const [where, parameters] = joinConditions(selection, from, boundary.to, false);
    const sql = `SELECT count(*) AS count FROM ${joinEvents(selection)} WHERE ${where}`;
    const count = getRow<{ count: number }>(this.#selector.prepare(sql), ...parameters)?.count ?? 0;
    return { count, position: { ...boundary.to, end: from.end }, isDone: boundary.isLast };
  }

  /** Replays what matches in a bounded number of rows; `position` is undefined when the end is reached. */
  replayStep({ filter, now, excluded, position }: Operations['replayStep']): Results['replayStep'] {
    const selection = withoutSettled(this.#selector.select(filter, REPLAYED_STATES), excluded);
    if (selection === undefined) return { replayed: 0, endpoints: [], position: undefined };
    const boundary = this.#findEnd(selection, position, READ_PER_STEP);
    const [where, parameters] = joinConditions(selection, position, boundary.to, false);
    const rows = getRows<ReplayRow>(
      this.#selector.prepare(
        `SELECT d.event, d.endpoint, d.state, d.order_key FROM ${joinEvents(selection)}
         WHERE ${where} ORDER BY d.event, d.endpoint LIMIT ?`,
      ),
      ...parameters,
      REPLAYED_PER_STEP,
    );
    const endpoints = new Set<string>();
    for (const row of rows) endpoints.add(this.#replayOne(row, now));
    const last = rows.at(-1);
    const isFull = rows.length === REPLAYED_PER_STEP && last !== undefined;
    const next = isFull ? { seq: last.event, endpoint: last.endpoint } : boundary.to;
    const isDone = !isFull && boundary.isLast;
    return { replayed: rows.length, endpoints: [...endpoints], position: isDone ? undefined : { ...next, end: position.end } };
  }

  /** Creates the delivery of an event to an endpoint if it did not exist. */
  replayMissing(filter: DeliveryFilter, now: EpochMilliseconds): boolean {
    const { event, endpoint, type, from, to, states } = filter;
    if (event === undefined || endpoint === undefined || states !== undefined) return false;
    const found = getRow<{ seq: number; type: string; created: number }>(this.#findEvent, event);
    if (found === undefined || found.type !== (type ?? found.type)) return false;
    if (found.created < (from ?? found.created) || found.created >= (to ?? Number.POSITIVE_INFINITY)) return false;
    const lane = this.#memory.obtain(endpoint);
    if (this.#findDelivery.get(found.seq, lane.num) !== undefined) return false;
    this.#insert.run(found.seq, lane.num, now);
    this.#memory.addWaiting(lane, 1);
    return true;
  }

  #findEnd(selection: Selection, from: ReplayPosition, steps: number): { readonly to: Position; readonly isLast: boolean } {
    const boundary = this.#selector.findBoundary(selection, from, steps, false);
    const isLast = boundary === undefined || boundary.seq > from.end;
    return { to: isLast ? { seq: from.end, endpoint: Number.MAX_SAFE_INTEGER } : boundary, isLast };
  }

  /** Returns the name of the endpoint. */
  #replayOne({ event, endpoint, state, order_key: orderKey }: ReplayRow, now: EpochMilliseconds): string {
    const lane = this.#memory.findByNumber(endpoint);
    const isBlocked = orderKey !== null && lane !== undefined && this.#isBehind(lane, event, orderKey);
    this.#makeDue.run(isBlocked ? BLOCKED : DUE, now, event, endpoint);
    if (state === DEAD) this.#memory.counters.dead--;
    if (state === SKIPPED) this.#memory.counters.skipped--;
    if (lane !== undefined) this.#memory.addWaiting(lane, 1);
    return lane?.name ?? '';
  }

  /** Whether an earlier delivery of the key waits; if a later one is first, that is blocked from now on. */
  #isBehind({ num }: StoredLane, event: number, orderKey: string): boolean {
    const head = getRow<{ event: number }>(this.#findHead, num, orderKey)?.event;
    if (head === undefined || head < event) return head !== undefined;
    this.#setState.run(BLOCKED, head, num);
    return false;
  }
}
