/** What the contract suite of the delivery queue needs to know about an engine. */
import type { Clock, Milliseconds } from '../../../src/core/clock.ts';
import type { DeliveryQueue, QueueBounds } from '../../../src/provider/queue/delivery-queue.ts';
import type { QueueParts } from '../../../src/provider/queue/sql-queue.ts';

export type { QueueBounds };

/** What a test sets of a queue. */
export type QueueOver = Partial<QueueBounds & Pick<QueueParts, 'hooks' | 'memory'>>;

/** An empty store under test. */
export interface QueueStore {
  /** What due times are compared with. */
  readonly clock: Clock;
  /** Lets at least this much of the clock's time pass. */
  readonly pass: (duration: Milliseconds) => Promise<void>;
  /** Opens a queue on the store; the caller closes it before it opens the next one, unless the engine is shared. */
  readonly open: (over?: QueueOver) => Promise<DeliveryQueue>;
  /** Several queues can be open on the store at once. */
  readonly isShared: boolean;
  /** How a child process opens the same store: the path of a module that exports `openQueue(argument: string)`, and the argument. */
  readonly child: { readonly module: string; readonly argument: string };
  /** Runs a statement while no queue is open. */
  readonly damage: (statement: string) => void;
  /** Removes the store; all queues are closed by then. */
  readonly remove: () => Promise<void>;
}

/** Creates an empty store. */
export type CreateQueueStore = () => Promise<QueueStore>;
