/** Stores events with their deliveries. */
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { EpochMilliseconds } from '../../../../core/clock.ts';
import type { Target } from '../../../endpoints/target.ts';
import type { AppendResult } from '../../delivery-queue.ts';
import type { EventMessage } from '../messages.ts';
import { BLOCKED, DUE, SKIPPED } from './database.ts';
import type { StoreMemory } from './lanes.ts';

/** Space in the file besides body and metadata: rows, indexes, half-filled pages. */
const EVENT_BYTES = 512;
const DELIVERY_BYTES = 192;

/** Bounds of the store. */
export interface Bounds {
  readonly maxEvents: number;
  readonly maxBytes: number;
}

/** Appends events, in a transaction of the caller. */
export class Appender {
  readonly #memory: StoreMemory;
  readonly #bounds: Bounds;
  readonly #findEvent: StatementSync;
  readonly #insertEvent: StatementSync;
  readonly #insertDelivery: StatementSync;
  readonly #findOrdered: StatementSync;

  constructor(db: DatabaseSync, memory: StoreMemory, bounds: Bounds) {
    this.#memory = memory;
    this.#bounds = bounds;
    this.#findEvent = db.prepare('SELECT 1 FROM event WHERE id = ?');
    // Not OR IGNORE, which would call an event with a missing property a duplicate.
    this.#insertEvent = db.prepare('INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING');
    this.#insertDelivery = db.prepare('INSERT INTO delivery VALUES (?, ?, ?, ?, 0, 0, 0, ?, ?, NULL)');
    this.#findOrdered = db.prepare(
      'SELECT 1 FROM delivery INDEXED BY delivery_order WHERE endpoint = ? AND order_key = ? AND state < 2 LIMIT 1',
    );
  }

  /** Stores all events, or none: `full`. */
  append(events: readonly EventMessage[], bodies: readonly Uint8Array[], now: EpochMilliseconds): AppendResult[] | 'full' {
    const sizes = events.map(countBytes);
    if (!this.#hasRoom(events, sizes)) return 'full';
    return events.map((event, i) => {
      const body = bodies[i];
      if (body === undefined || !this.#insert(event, body, sizes[i] ?? 0)) return 'duplicate';
      const seq = this.#memory.counters.nextSeq++;
      for (const target of event.targets) this.#addDelivery(seq, target, now);
      return 'stored';
    });
  }

  #hasRoom(events: readonly EventMessage[], sizes: readonly number[]): boolean {
    if (this.#fits(events.length, sum(sizes))) return true;
    // Duplicates need no room.
    const isNew = new Map<string, number>();
    for (const [i, { id }] of events.entries())
      if (!isNew.has(id) && this.#findEvent.get(id) === undefined) isNew.set(id, sizes[i] ?? 0);
    return isNew.size === 0 || this.#fits(isNew.size, sum([...isNew.values()]));
  }

  #fits(events: number, bytes: number): boolean {
    const { counters } = this.#memory;
    return counters.events + events <= this.#bounds.maxEvents && counters.bytes + bytes <= this.#bounds.maxBytes;
  }

  #insert({ id, type, channel, createdAt, metadata }: EventMessage, body: Uint8Array, bytes: number): boolean {
    const { counters } = this.#memory;
    const inserted = this.#insertEvent.run(counters.nextSeq, id, type, channel, createdAt, bytes, metadata, body);
    if (inserted.changes === 0) return false;
    counters.events++;
    counters.bytes += bytes;
    return true;
  }

  #addDelivery(seq: number, { endpoint, orderKey, isSkipped }: Target, now: EpochMilliseconds): void {
    const lane = this.#memory.obtain(endpoint);
    const key = orderKey ?? null;
    if (isSkipped === true) {
      this.#insertDelivery.run(seq, lane.num, SKIPPED, 0, now, key);
      this.#memory.counters.skipped++;
      return;
    }
    const isBlocked = key !== null && this.#findOrdered.get(lane.num, key) !== undefined;
    this.#insertDelivery.run(seq, lane.num, isBlocked ? BLOCKED : DUE, now, null, key);
    this.#memory.addWaiting(lane, 1);
  }
}

function countBytes({ bodyLength, metadata, targets }: EventMessage): number {
  return EVENT_BYTES + DELIVERY_BYTES * targets.length + bodyLength + Buffer.byteLength(metadata);
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
