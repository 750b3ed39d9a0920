/** Streams that replicas share while a console is open: recent deliveries, and their figures for the overview. */
import type { Milliseconds } from '../core/clock.ts';

/** The content of a batch. */
export type SharedStream = 'deliveries' | 'figures';

/** A batch that a replica published. */
export interface SharedBatch {
  /** Its place in the order of all batches: the time of the store in Unix milliseconds, and a number. */
  readonly id: string;
  readonly text: string;
}

/** The shared streams; every call rejects if the store does not respond in time. */
export interface SharedStreams {
  /** Whether a console is open at any replica. */
  isWatched(): Promise<boolean>;
  /** Keeps the console open for so long. */
  watch(duration: Milliseconds): Promise<void>;
  /** Adds a batch; the oldest ones are removed. */
  publish(stream: SharedStream, text: string): Promise<void>;
  /** The batches after this ID, the oldest first; `0` for all. */
  read(stream: SharedStream, after: string): Promise<readonly SharedBatch[]>;
}
