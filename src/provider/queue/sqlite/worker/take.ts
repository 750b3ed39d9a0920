/** Hands out due deliveries. Nothing is written: what is taken is known in memory only, and is due again after a crash. */
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { EpochMilliseconds } from '../../../../core/clock.ts';
import type { Operations, Results, TakenMessage } from '../messages.ts';
import { DUE, getRow, getRows } from './database.ts';
import type { StoredLane, StoreMemory } from './lanes.ts';

interface DeliveryRow {
  readonly id: string;
  readonly type: string;
  readonly channel: string | null;
  readonly created: number;
  readonly attempt: number;
  readonly tries: number;
  readonly replay: number;
  readonly due: number;
  readonly order_key: string | null;
  readonly body: Uint8Array | null;
  readonly metadata: string;
}

const NO_BODY = new Uint8Array(0);

/** Takes deliveries for lanes. */
export class Taker {
  readonly #memory: StoreMemory;
  readonly #findDue: StatementSync;
  readonly #read: StatementSync;

  constructor(db: DatabaseSync, memory: StoreMemory) {
    this.#memory = memory;
    this.#findDue = db.prepare(
      `SELECT event, due FROM delivery INDEXED BY delivery_due WHERE endpoint = ? AND state = ${DUE} AND state < 2 ORDER BY due, event LIMIT ?`,
    );
    this.#read = db.prepare(
      `SELECT e.id, e.type, e.channel, e.created, d.attempt, d.tries, d.replay, d.due, d.order_key, e.body, e.metadata
       FROM delivery d CROSS JOIN event e ON e.seq = d.event WHERE d.event = ? AND d.endpoint = ?`,
    );
  }

  /** Due deliveries that are not taken, oldest due first; pushes their bodies to `bodies`. */
  take({ endpoint, run, limit, now }: Operations['take'], bodies: Uint8Array[]): Results['take'] {
    const lane = this.#memory.find(endpoint);
    if (lane === undefined || run < lane.run) return { taken: [], next: undefined };
    if (run > lane.run) startRun(lane, run);
    const taken: TakenMessage[] = [];
    // A taken delivery stands for at most two of these rows: itself, and one that its order key keeps back.
    const rows = getRows<{ event: number; due: EpochMilliseconds }>(this.#findDue, lane.num, limit + 2 * lane.taken.size + 1);
    for (const { event, due } of rows) {
      if (lane.taken.has(event)) continue;
      if (due > now || taken.length === limit) return { taken, next: due };
      const delivery = this.#takeOne(lane, event, bodies);
      if (delivery !== undefined) taken.push(delivery);
    }
    return { taken, next: undefined };
  }

  #takeOne(lane: StoredLane, seq: number, bodies: Uint8Array[]): TakenMessage | undefined {
    const row = getRow<DeliveryRow>(this.#read, seq, lane.num);
    if (row === undefined || (row.order_key !== null && isInFlight(lane, row.order_key))) return undefined;
    lane.taken.set(seq, row.order_key);
    const body = row.body ?? NO_BODY;
    bodies.push(body);
    return {
      seq,
      event: row.id,
      type: row.type,
      channel: row.channel,
      createdAt: row.created,
      attempt: row.attempt,
      tries: row.tries,
      isReplay: row.replay === 1,
      due: row.due,
      metadata: row.metadata,
      bodyLength: body.length,
    };
  }
}

function startRun(lane: StoredLane, run: number): void {
  lane.run = run;
  lane.taken = new Map();
}

function isInFlight(lane: StoredLane, orderKey: string): boolean {
  for (const key of lane.taken.values()) if (key === orderKey) return true;
  return false;
}
