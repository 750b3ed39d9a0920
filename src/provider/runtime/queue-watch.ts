/** Notices what no failed operation shows: a queue that fills up, that went back to an earlier state, or whose disk fills up. */
import { statfsSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { type DeliveryQueue, type EventRecord, mayLeaveEarly, type QueueStats } from '../queue/delivery-queue.ts';

/** The growth is that of so much time, ... */
const WINDOW_MS: Milliseconds = 600_000;
/** ... and of at least so much: a burst after the start says nothing about the next hour. */
const MIN_WINDOW_MS: Milliseconds = 60_000;

type Undelivered = Pick<QueueStats, 'events' | 'bytes'>;

/** When the queue will be full. */
export class FillForecast {
  readonly #samples: (Undelivered & { readonly at: Milliseconds })[] = [];

  /** Seconds until the first bound is reached if the growth continues; infinity while nothing grows. `at`: monotonic. */
  add(
    { events, bytes, maxEvents, maxBytes }: Undelivered & Pick<QueueStats, 'maxEvents' | 'maxBytes'>,
    at: Milliseconds,
  ): number {
    this.#samples.push({ at, events, bytes });
    while (this.#samples.length > 2 && (this.#samples[1]?.at ?? at) <= at - WINDOW_MS) this.#samples.shift();
    if (events >= maxEvents || bytes >= maxBytes) return 0;
    const first = this.#samples[0];
    if (first === undefined || at - first.at < MIN_WINDOW_MS) return Number.POSITIVE_INFINITY;
    const seconds = (at - first.at) / 1_000;
    const toBound = (value: number, before: number, bound: number): number =>
      value > before ? ((bound - value) * seconds) / (value - before) : Number.POSITIVE_INFINITY;
    return Math.min(toBound(events, first.events, maxEvents), toBound(bytes, first.bytes, maxBytes));
  }
}

/**
 * Whether the store went back: the newest event that was seen is no longer stored, although nothing removes an event that young. That is so
 * after a restore from a backup, after a failover that lost commits, and if somebody emptied the tables.
 */
export class LossWatch {
  readonly #queue: Pick<DeliveryQueue, 'findEvents' | 'getEvent'>;
  readonly #retention: Milliseconds;
  #newest: EventRecord | undefined;

  constructor(queue: Pick<DeliveryQueue, 'findEvents' | 'getEvent'>, retention: Milliseconds) {
    this.#queue = queue;
    this.#retention = retention;
  }

  /** Returns the event that was lost. Reads one event, and only if there is a newer one. */
  async look(stats: QueueStats, now: EpochMilliseconds): Promise<string | undefined> {
    const before = this.#newest;
    const [newest] = (await this.#queue.findEvents({}, { limit: 1 })).events;
    this.#newest = newest;
    if (before === undefined || before.id === newest?.id) return undefined;
    // Half of it, as clocks of replicas differ.
    if (before.createdAt < now - this.#retention / 2 || mayLeaveEarly(stats)) return undefined;
    return (await this.#queue.getEvent(before.id)) === undefined ? before.id : undefined;
  }
}

/** The file of a queue in SQLite, and its disk. */
export class QueueFileWatch {
  readonly #path: string;
  #opened: string | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  /** `isSame`: the path still leads to the file that is open. Throws if the file system does not respond. */
  look(): { readonly freeBytes: number; readonly totalBytes: number; readonly isSame: boolean } {
    const file = statSync(this.#path, { throwIfNoEntry: false });
    const found = file === undefined ? '' : `${file.dev}:${file.ino}`;
    this.#opened ??= found;
    const { bavail, blocks, bsize } = statfsSync(dirname(this.#path));
    return { freeBytes: bavail * bsize, totalBytes: blocks * bsize, isSame: found === this.#opened };
  }
}
