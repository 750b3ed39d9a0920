/** Rows that a process remembers, if no other one changes them. */
import type { QueueStats } from '../delivery-queue.ts';

/** Beyond these, all are forgotten, and read again. */
const MAX_LANES = 10_000;

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

export interface LaneChange {
  readonly num: number;
  waiting: number;
  bytes: number;
  dead: number;
  skipped: number;
}

export interface TenantChange {
  readonly name: string;
  events: number;
  bytes: number;
  stored_events: number;
  stored_bytes: number;
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
