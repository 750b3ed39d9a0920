/** Removes events whose retention is over. */
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { Operations, PrunePosition, Results } from '../messages.ts';
import { DEAD, DELIVERED, getRow, getRows, SKIPPED } from './database.ts';
import type { StoreMemory } from './lanes.ts';

/** Events that one step looks at: a few milliseconds. */
const READ_PER_STEP = 1_000;
/** Free pages are given back to the file system if they are more than this part of the file, ... */
const MAX_FREE_SHARE = 0.25;
/** ... so many at a time. */
const VACUUMED_PAGES = 1_000;
const START: PrunePosition = { created: Number.MIN_SAFE_INTEGER, seq: 0 };

interface EventRow extends PrunePosition {
  readonly bytes: number;
}

type EventState = 'waiting' | 'failed' | 'delivered';

/** Removes events, in transactions of the caller. */
export class Pruner {
  readonly #memory: StoreMemory;
  readonly #find: StatementSync;
  readonly #readStates: StatementSync;
  readonly #removeDeliveries: StatementSync;
  readonly #removals: readonly StatementSync[];
  readonly #countFree: StatementSync;
  readonly #countPages: StatementSync;
  readonly #vacuum: StatementSync;
  /** All events up to here wait, or are dead or skipped and not yet old enough: they need not be looked at again ... */
  #kept = START;
  /** ... until one of them, which all have at most this number, is settled, ... */
  #highestKept = 0;
  /** ... or the first of them is old enough. */
  #oldestFailed = Number.POSITIVE_INFINITY;

  constructor(db: DatabaseSync, memory: StoreMemory) {
    this.#memory = memory;
    this.#find = db.prepare(
      'SELECT created, seq, bytes FROM event INDEXED BY event_created WHERE (created, seq) > (?, ?) AND created < ? ORDER BY created, seq LIMIT ?',
    );
    this.#readStates = db.prepare('SELECT min(state) AS lowest, max(state) AS highest FROM delivery NOT INDEXED WHERE event = ?');
    this.#removeDeliveries = db.prepare('DELETE FROM delivery WHERE event = ? RETURNING state');
    this.#removals = ['attempt WHERE event', 'event WHERE seq'].map((from) => db.prepare(`DELETE FROM ${from} = ?`));
    this.#countFree = db.prepare('PRAGMA freelist_count');
    this.#countPages = db.prepare('PRAGMA page_count');
    this.#vacuum = db.prepare(`PRAGMA incremental_vacuum(${VACUUMED_PAGES})`);
  }

  /** Removes at most `most` events of a bounded number. */
  pruneStep({ settledBefore, deadBefore, most, after }: Operations['pruneStep']): Results['pruneStep'] {
    if (after === undefined) this.#forgetKept(deadBefore);
    // False as soon as an event was passed that only a later time would remove.
    let isContiguous = after === undefined || isAtOrAfter(this.#kept, after);
    const from = after ?? this.#kept;
    const events = getRows<EventRow>(this.#find, from.created, from.seq, Math.max(settledBefore, deadBefore), READ_PER_STEP);
    let removed = 0;
    for (const event of events) {
      const state = this.#readState(event);
      if (event.created < { waiting: Number.NEGATIVE_INFINITY, failed: deadBefore, delivered: settledBefore }[state]) {
        this.#remove(event);
        if (++removed === most) return { removed, after: event };
      } else if (state === 'delivered') isContiguous = false;
      else if (isContiguous) this.#keep(event, state);
    }
    return { removed, after: events.length === READ_PER_STEP ? events.at(-1) : undefined };
  }

  /** Shrinks the file by a few pages if much of it is free. */
  shrink(): void {
    const count = (statement: StatementSync): number => Number(Object.values(statement.get() ?? {})[0]);
    if (count(this.#countFree) > MAX_FREE_SHARE * count(this.#countPages)) this.#vacuum.all();
  }

  #readState({ seq }: EventRow): EventState {
    const states = getRow<{ lowest: number | null; highest: number | null }>(this.#readStates, seq);
    // An event for no endpoint counts as delivered.
    if ((states?.lowest ?? DELIVERED) < DELIVERED) return 'waiting';
    return (states?.highest ?? DELIVERED) > DELIVERED ? 'failed' : 'delivered';
  }

  #forgetKept(deadBefore: number): void {
    if (this.#memory.lowestSettled > this.#highestKept && deadBefore <= this.#oldestFailed) return;
    this.#memory.lowestSettled = Number.POSITIVE_INFINITY;
    this.#kept = START;
    this.#highestKept = 0;
    this.#oldestFailed = Number.POSITIVE_INFINITY;
  }

  #keep({ created, seq }: EventRow, state: EventState): void {
    this.#kept = { created, seq };
    this.#highestKept = Math.max(this.#highestKept, seq);
    if (state === 'failed') this.#oldestFailed = Math.min(this.#oldestFailed, created);
  }

  #remove({ seq, bytes }: EventRow): void {
    const { counters } = this.#memory;
    for (const { state } of getRows<{ state: number }>(this.#removeDeliveries, seq)) {
      if (state === DEAD) counters.dead--;
      if (state === SKIPPED) counters.skipped--;
    }
    for (const removal of this.#removals) removal.run(seq);
    counters.events--;
    counters.bytes -= bytes;
  }
}

function isAtOrAfter(one: PrunePosition, other: PrunePosition): boolean {
  return one.created > other.created || (one.created === other.created && one.seq >= other.seq);
}
