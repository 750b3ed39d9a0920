/** The messages of the store of the queue: with SQLite, another thread executes its operations. Bodies travel beside them. */
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { Delivery, NewEvent, QueueBounds, SettledDelivery } from './delivery-queue.ts';

export interface WorkerSettings {
  readonly path: string;
  readonly bounds: QueueBounds;
}

/** An event, with its body in the buffer of the batch. */
export type EventMessage = Omit<NewEvent, 'body'> & { readonly bodyLength: number };

/** The part of a delivery that a settlement would otherwise read again. */
interface DeliveryFacts {
  readonly key: string | null;
  readonly tenant?: string | undefined;
  /** Of the event. */
  readonly bytes: number;
  /** Deliveries of the event that waited when it was taken. */
  readonly waiting: number;
  /** See the column. */
  readonly replay: number;
}

/** One settled delivery; `event` is the ID of its event, `seq` its number, `record` the JSON of an AttemptRecord. A database that lost commits in a failover gives numbers again. */
export interface SettleMessage extends Pick<SettledDelivery, 'event' | 'attempt' | 'at' | 'settlement'> {
  readonly seq: number;
  /** When it was due as it was taken: a retry during the attempt makes that earlier. */
  readonly due: EpochMilliseconds;
  readonly record: string | undefined;
  readonly facts: DeliveryFacts;
}

/** A taken delivery, with its body in the buffer of the reply. */
export interface TakenMessage extends Omit<Delivery, 'endpoint' | 'tenant' | 'body'> {
  readonly seq: number;
  readonly bodyLength: number;
  readonly facts: DeliveryFacts;
}

/** A place between deliveries, or between events. */
export type Position = Readonly<Record<'event' | 'lane', number>>;

/** Where a repair goes on: after this delivery, up to the event `end`. */
export type RepairPosition = Position & { readonly end: number };

/** Where the search for events of a tenant, the oldest first, goes on. `isWhole`: it began with the first one. */
export interface PrunePosition extends Readonly<Record<'created' | 'seq', number>> {
  readonly tenant: string;
  readonly kind: 'failed = 0' | 'failed > 0';
  readonly isWhole: boolean;
}

/** A part of a list. */
export interface FoundStep<T> {
  /** With the position of each, for the next page. */
  readonly found: readonly { readonly position: string; readonly record: T }[];
  /** Where the next step continues; undefined: at the end. */
  readonly next: string | undefined;
}

/** A failed operation. `user`: the caller's fault; `system`: the store's. */
export interface Failure {
  readonly kind: 'user' | 'system';
  readonly code: string;
  readonly message: string;
  /** Of a QueueFullError. */
  readonly full?: string | undefined;
}

/** All operations of one turn of the event loop: one transaction. */
export interface Batch {
  /** JSON of `Operation[]`, which costs less CPU than structured clones of many small objects. */
  readonly operations: string;
  /** The bodies of all appended events, one after the other. */
  readonly bodies: ArrayBuffer;
}

/** The replies to a batch, in its order. */
export interface BatchReply {
  /** JSON of `Reply[]`. */
  readonly replies: string;
  /** The bodies of all taken deliveries and read events: the small ones after each other in the first buffer, then one for each large one. */
  readonly bodies: ArrayBuffer[];
}

/** The first message of the thread. */
export type Opened = { readonly isOpen: true; readonly unreadCommits: number } | ({ readonly isOpen: false } & Failure);
