/** Records what attempts led to. */
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { EpochMilliseconds } from '../../../../core/clock.ts';
import type { SettleMessage } from '../messages.ts';
import { BLOCKED, DEAD, DELIVERED, DUE, getRow, SKIPPED } from './database.ts';
import type { StoredLane, StoreMemory } from './lanes.ts';

/** Attempts that are kept in `attempt`, besides the newest one in the delivery's row. */
const MAX_OLDER_ATTEMPTS = 19;

const FINAL_STATES = { delivered: DELIVERED, dead: DEAD, skipped: SKIPPED } as const;

/** Settles deliveries, in a transaction of the caller. The attempt's number is the fence: a late settlement changes no row. */
export class Settler {
  readonly #memory: StoreMemory;
  readonly #finish: StatementSync;
  readonly #retry: StatementSync;
  readonly #postpone: StatementSync;
  readonly #keepAttempt: StatementSync;
  readonly #dropAttempts: StatementSync;
  readonly #findHead: StatementSync;
  readonly #setState: StatementSync;
  readonly #findKey: StatementSync;

  constructor(db: DatabaseSync, memory: StoreMemory) {
    const fence = 'WHERE event = ? AND endpoint = ? AND attempt = ? AND state < 2';
    this.#memory = memory;
    this.#finish = db.prepare(
      `UPDATE delivery SET state = ?, due = 0, settled = ?, attempt = attempt + ?, tries = tries + ?, last = coalesce(?, last) ${fence}`,
    );
    this.#retry = db.prepare(
      `UPDATE delivery SET due = ?, attempt = attempt + 1, tries = tries + 1, last = coalesce(?, last) ${fence}`,
    );
    this.#postpone = db.prepare(`UPDATE delivery SET due = ? ${fence}`);
    this.#keepAttempt = db.prepare(
      `INSERT OR IGNORE INTO attempt SELECT event, endpoint, attempt, last FROM delivery ${fence} AND last IS NOT NULL`,
    );
    this.#dropAttempts = db.prepare('DELETE FROM attempt WHERE event = ? AND endpoint = ? AND n <= ?');
    this.#findHead = db.prepare(
      'SELECT event, state, due FROM delivery INDEXED BY delivery_order WHERE endpoint = ? AND order_key = ? AND state < 2 ORDER BY event LIMIT 1',
    );
    this.#findKey = db.prepare('SELECT order_key FROM delivery WHERE event = ? AND endpoint = ?');
    this.#setState = db.prepare('UPDATE delivery SET state = ? WHERE event = ? AND endpoint = ?');
  }

  /** Returns when the first of the deliveries is due that this made due: retried, postponed, or no longer blocked. */
  settle(lane: StoredLane, settled: readonly SettleMessage[]): EpochMilliseconds | undefined {
    let next = Number.POSITIVE_INFINITY;
    for (const each of settled) next = Math.min(next, this.#settleOne(lane, each));
    return next === Number.POSITIVE_INFINITY ? undefined : next;
  }

  #settleOne(lane: StoredLane, message: SettleMessage): number {
    const { seq, attempt, settlement, record } = message;
    if (record !== undefined && attempt > 0) this.#keepLast(lane, seq, attempt);
    const isChanged = this.#update(lane, message);
    if (!isChanged) return Number.POSITIVE_INFINITY;
    const isWaiting = settlement.kind === 'retry' || settlement.kind === 'postponed';
    // Only late settlements concern a delivery that is not taken.
    const key = lane.taken.get(seq);
    const orderKey = key === undefined ? this.#readKey(lane, seq) : key;
    if (orderKey !== null) return this.#releaseHead(lane, orderKey);
    return isWaiting ? settlement.due : Number.POSITIVE_INFINITY;
  }

  /** False: the settlement is late. */
  #update(lane: StoredLane, { seq, attempt, at, settlement, record }: SettleMessage): boolean {
    const last = record ?? null;
    switch (settlement.kind) {
      case 'retry':
        return this.#retry.run(settlement.due, last, seq, lane.num, attempt).changes === 1;
      case 'postponed':
        return this.#postpone.run(settlement.due, seq, lane.num, attempt).changes === 1;
      default: {
        const made = settlement.kind === 'skipped' ? 0 : 1;
        const state = FINAL_STATES[settlement.kind];
        if (this.#finish.run(state, at, made, made, last, seq, lane.num, attempt).changes === 0) return false;
        this.#memory.addWaiting(lane, -1);
        if (settlement.kind !== 'delivered') this.#memory.counters[settlement.kind]++;
        this.#memory.noteSettled(seq);
        return true;
      }
    }
  }

  #readKey(lane: StoredLane, seq: number): string | null {
    return getRow<{ order_key: string | null }>(this.#findKey, seq, lane.num)?.order_key ?? null;
  }

  /** Moves the newest attempt so far out of the delivery's row. */
  #keepLast(lane: StoredLane, seq: number, attempt: number): void {
    this.#keepAttempt.run(seq, lane.num, attempt);
    if (attempt > MAX_OLDER_ATTEMPTS) this.#dropAttempts.run(seq, lane.num, attempt - MAX_OLDER_ATTEMPTS);
  }

  /**
   * Only the first waiting delivery of an order key is not blocked. Returns when it is due: it may have been kept back because a later one,
   * taken before the first was replayed, was in flight.
   */
  #releaseHead(lane: StoredLane, orderKey: string): number {
    const head = getRow<{ event: number; state: number; due: number }>(this.#findHead, lane.num, orderKey);
    if (head === undefined) return Number.POSITIVE_INFINITY;
    if (head.state === BLOCKED) this.#setState.run(DUE, head.event, lane.num);
    return head.due;
  }
}
