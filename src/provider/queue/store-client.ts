/** The interface of a store to the queue, and what its clients share: SQLite in a thread, or PostgreSQL. */

import type pg from 'pg';
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import { type LaneState, QueueFullError } from './delivery-queue.ts';
import type { Failure } from './messages.ts';
import type { OperationKind, Operations, Reply, Results } from './sql/store.ts';

/**
 * The right to serve a lane, with the state that its last run settled. `holder`: the replica that has the lease; null: only one process can open the store.
 * `busy`: another replica has it.
 */
export type Claimed = { readonly state: LaneState | undefined; readonly holder: string | null } | 'busy';

/** News for other replicas. */
export type Announcement = { readonly due?: readonly string[]; readonly wake?: string; readonly endpoints?: true };

/** Appends in the open transaction of another connection. */
export type JoinedStore = (operation: Operations['append'], bodies: readonly Buffer[]) => Promise<Results['append']>;

export type WithBodies<Result> = { readonly result: Result; readonly bodies: readonly Buffer[] };

export interface StoreClient {
  /** It can no longer be used. Absent if it always repairs itself. */
  readonly isBroken?: boolean;
  /** The time of the store minus the time of this process. Absent if both are the same. */
  readonly clockOffset?: Milliseconds;
  /** Runs an operation with the others of this turn. Rejects with a SidegateError. */
  call<K extends OperationKind>(kind: K, operation: Operations[K], bodies?: readonly Buffer[]): Promise<Results[K]>;
  /** The same for an operation whose result has bodies. */
  read<K extends 'take' | 'readPayload'>(kind: K, operation: Operations[K]): Promise<WithBodies<Results[K]>>;
  claim(endpoint: string): Promise<Claimed>;
  /** These three: unless only one process can use the store. `isLeft`: another replica may have the lane at once, or all that do not run. Never rejects. */
  release?(endpoint: string | undefined, isLeft: boolean): Promise<void>;
  /** Undefined if the connection is not to the database of the store, or may not use its tables. */
  join?(client: pg.ClientBase): Promise<JoinedStore | undefined>;
  announce?(news: Announcement): void;
  close(): Promise<void>;
}

export interface StoreEvents extends QueueHooks {
  /** A delivery of the endpoint is due at this time. */
  readonly onDue: (endpoint: string, at: EpochMilliseconds) => void;
  /** A delivery of the endpoint is due now, by what another replica says. False, and nothing happens, if it never had one here. */
  readonly onNews: (endpoint: string) => boolean;
  /** Another replica woke the endpoint. */
  readonly onWake: (endpoint: string) => void;
  /** Another replica changed endpoints. */
  readonly onEndpoints: () => void;
  /** Another replica may have the lane now: attempts in flight are not settled by this one. */
  readonly onLeaseLost: (endpoint: string) => void;
}

/** Opens the store. Rejects with a SidegateError of kind `user` if it would lose events. */
export type OpenStore = (events: StoreEvents) => Promise<{ readonly client: StoreClient; readonly warnings: readonly string[] }>;

/** Reports of the queue, for logs and metrics. */
export interface QueueHooks {
  /** It can no longer be used until the process is restarted. */
  readonly onFatal: (error: Error) => void;
  /** A lane run rejected; it is repeated. */
  readonly onRunError: (endpoint: string, error: unknown) => void;
  /** For 5 s, the process had no memory to read a delivery of so many bytes. At most once a minute for each endpoint. */
  readonly onNoMemory: (endpoint: string, bytes: number) => void;
  /** Nothing can be written: the disk is full, or the server is not there. */
  readonly onUnavailable: (reason: string) => void;
  readonly onAvailable: () => void;
  /** Events that were accepted are no longer stored. */
  readonly onLost: (hint: string) => void;
}

/** SQLSTATE of PostgreSQL, and the words of SQLite. */
const DISK_FULL = /\(53100\)|disk is full/;

/** Whether the text of `queue_unavailable` says so. */
export function isDiskFull(text: string): boolean {
  return DISK_FULL.test(text);
}

/** Returns what reports once that the store is unavailable, and once that it can be written again. `provesWriting`: without a failure, these replies show that the store can be written. */
export function watchAvailability(hooks: QueueHooks): (replies: readonly Reply[], provesWriting: boolean) => void {
  let isAvailable = true;
  return (replies, provesWriting) => {
    const failed = replies.find((reply) => !reply.isDone && reply.code === 'queue_unavailable');
    if (failed !== undefined && !failed.isDone) {
      if (isAvailable) hooks.onUnavailable(failed.message);
      isAvailable = false;
    } else if (!isAvailable && provesWriting) {
      isAvailable = true;
      hooks.onAvailable();
    }
  };
}

export function toReplyError({ kind, code, message, full }: Failure): SidegateError {
  return full === undefined ? new SidegateError(kind, code, message) : new QueueFullError(message, full);
}

/** Whether an operation had to wait too long for others: back pressure, no outage. */
export function isQueueBusy(thrown: unknown): boolean {
  return thrown instanceof SidegateError && thrown.code === 'queue_busy';
}
