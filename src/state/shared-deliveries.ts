/** Recent deliveries that replicas share while a console is open. */
import type { Milliseconds } from '../core/clock.ts';

/** A batch that a replica published. */
export interface DeliveryBatch {
  /** Its place in the order of all batches. */
  readonly id: string;
  readonly text: string;
}

/** The shared deliveries; every call rejects if the store does not respond in time. */
export interface SharedDeliveries {
  /** Whether a console is open at any replica. */
  isWatched(): Promise<boolean>;
  /** Keeps the console open for so long. */
  watch(duration: Milliseconds): Promise<void>;
  /** Adds a batch; the oldest ones are removed. */
  publish(text: string): Promise<void>;
  /** The batches after this ID, the oldest first; `0` for all. */
  read(after: string): Promise<readonly DeliveryBatch[]>;
}
