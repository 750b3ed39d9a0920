/** Reads events, deliveries and attempts. */
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { SidegateError } from '../../../../core/errors.ts';
import type { AttemptRecord, DeliveryFilter, DeliveryRecord, Page } from '../../delivery-queue.ts';
import type { Results } from '../messages.ts';
import { BLOCKED, DEAD, DELIVERED, DUE, getRow, getRows, SKIPPED } from './database.ts';
import type { StoreMemory } from './lanes.ts';
import { joinConditions, type Position, type Selector } from './selection.ts';

/** Rows of an index that one step of a list reads: about a millisecond. */
const ROWS_PER_STEP = 500;
const POSITION = /^(\d{1,15})\.(\d{1,15})$/;
const STATE_NAMES = {
  [DUE]: 'waiting',
  [BLOCKED]: 'waiting',
  [DELIVERED]: 'delivered',
  [DEAD]: 'dead',
  [SKIPPED]: 'skipped',
} as const;

interface FoundRow {
  readonly seq: number;
  readonly endpoint: number;
  readonly state: keyof typeof STATE_NAMES;
  readonly due: number;
  readonly attempt: number;
  readonly settled: number | null;
  readonly last: string | null;
  readonly id: string;
  readonly type: string;
  readonly channel: string | null;
  readonly created: number;
}

interface EventRow {
  readonly id: string;
  readonly type: string;
  readonly channel: string | null;
  readonly created: number;
  readonly body: Uint8Array | null;
  readonly metadata: string;
}

/** Reads what is stored. */
export class Finder {
  readonly #memory: StoreMemory;
  readonly #selector: Selector;
  readonly #readEvent: StatementSync;
  readonly #readLast: StatementSync;
  readonly #readAttempts: StatementSync;

  constructor(db: DatabaseSync, memory: StoreMemory, selector: Selector) {
    this.#memory = memory;
    this.#selector = selector;
    this.#readEvent = db.prepare('SELECT id, type, channel, created, body, metadata FROM event WHERE id = ?');
    this.#readLast = db.prepare('SELECT last FROM delivery WHERE event = ? AND endpoint = ?');
    this.#readAttempts = db.prepare('SELECT record FROM attempt WHERE event = ? AND endpoint = ? ORDER BY n DESC');
  }

  getEvent(id: string, bodies: Uint8Array[]): Results['getEvent'] {
    const row = getRow<EventRow>(this.#readEvent, id);
    if (row === undefined) return undefined;
    const { created, body, ...rest } = row;
    bodies.push(body ?? new Uint8Array(0));
    return { ...rest, createdAt: created, bodyLength: body?.length ?? 0 };
  }

  /** Up to `page.limit` deliveries, of a bounded number of rows. */
  findStep(filter: DeliveryFilter, page: Page): Results['findStep'] {
    const from = page.after === undefined ? undefined : parsePosition(page.after);
    const selection = this.#selector.select(filter);
    if (selection === undefined) return { found: [], next: undefined };
    const boundary = this.#selector.findBoundary(selection, from, ROWS_PER_STEP, true);
    const [where, parameters] = joinConditions(selection, from, boundary, true);
    const rows = getRows<FoundRow>(
      this.#selector.prepare(
        `SELECT d.event AS seq, d.endpoint, d.state, d.due, d.attempt, d.settled, d.last, e.id, e.type, e.channel, e.created
         FROM ${selection.source} CROSS JOIN event e ON e.seq = d.event WHERE ${where} ORDER BY d.event DESC, d.endpoint DESC LIMIT ?`,
      ),
      ...parameters,
      page.limit,
    );
    const found = rows.map((row) => ({ position: formatPosition(row), record: this.#toRecord(row) }));
    if (rows.length === page.limit) return { found, next: found.at(-1)?.position };
    return { found, next: boundary === undefined ? undefined : formatPosition(boundary) };
  }

  /** The newest 20 attempts. */
  findAttempts(event: string, endpoint: string): AttemptRecord[] | undefined {
    const seq = this.#selector.findSeq(event);
    const lane = this.#memory.find(endpoint);
    if (seq === undefined || lane === undefined) return undefined;
    const row = getRow<{ last: string | null }>(this.#readLast, seq, lane.num);
    if (row === undefined) return undefined;
    const older = getRows<{ record: string }>(this.#readAttempts, seq, lane.num).map(({ record }) => record);
    return [...(row.last === null ? [] : [row.last]), ...older].map((record) => JSON.parse(record) as AttemptRecord);
  }

  #toRecord(row: FoundRow): DeliveryRecord {
    const isWaiting = row.state === DUE || row.state === BLOCKED;
    return {
      event: row.id,
      endpoint: this.#memory.findByNumber(row.endpoint)?.name ?? '',
      type: row.type,
      ...(row.channel !== null && { channel: row.channel }),
      state: STATE_NAMES[row.state],
      createdAt: row.created,
      attempts: row.attempt,
      ...(isWaiting && { due: row.due }),
      ...(row.settled !== null && { settledAt: row.settled }),
      ...(row.last !== null && { lastAttempt: JSON.parse(row.last) as AttemptRecord }),
    };
  }
}

function formatPosition({ seq, endpoint }: Position): string {
  return `${seq}.${endpoint}`;
}

function parsePosition(text: string): Position {
  const match = POSITION.exec(text);
  if (match === null)
    throw new SidegateError('user', 'invalid_position', 'the position is not one that an earlier page returned as `next`');
  return { seq: Number(match[1]), endpoint: Number(match[2]) };
}
