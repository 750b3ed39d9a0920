/** Makes deliveries due that were appended while the clock was ahead, and would otherwise wait until that time has come. */
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { Operations, Results } from '../messages.ts';
import { getRows } from './database.ts';
import type { StoreMemory } from './lanes.ts';

const HASTENED_PER_STEP = 500;

export class Hastener {
  readonly #memory: StoreMemory;
  readonly #find: StatementSync;
  readonly #setDue: StatementSync;

  constructor(db: DatabaseSync, memory: StoreMemory) {
    this.#memory = memory;
    // Retries wait for a delay of the schedule, and which may be long.
    this.#find = db.prepare(
      `SELECT d.event, d.endpoint FROM event e INDEXED BY event_created CROSS JOIN delivery d ON d.event = e.seq
       WHERE e.created > ? AND d.state < 2 AND d.tries = 0 AND d.due > ? LIMIT ${HASTENED_PER_STEP}`,
    );
    this.#setDue = db.prepare('UPDATE delivery SET due = ? WHERE event = ? AND endpoint = ?');
  }

  /** In a transaction of the caller. Returns the endpoints of these deliveries. */
  hasten({ now }: Operations['hasten']): Results['hasten'] {
    const rows = getRows<{ event: number; endpoint: number }>(this.#find, now, now);
    const endpoints = new Set<string>();
    for (const { event, endpoint } of rows) {
      this.#setDue.run(now, event, endpoint);
      endpoints.add(this.#memory.findByNumber(endpoint)?.name ?? '');
    }
    return { endpoints: [...endpoints], isDone: rows.length < HASTENED_PER_STEP };
  }
}
