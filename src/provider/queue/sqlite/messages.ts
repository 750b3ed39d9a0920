/** The messages between the process and the thread that has the database. Bodies travel beside them, packed into one buffer. */
import type { EpochMilliseconds } from '../../../core/clock.ts';
import type { StoredEndpoint } from '../../endpoints/endpoint-store.ts';
import type { Target } from '../../endpoints/target.ts';
import type {
  AppendResult,
  AttemptRecord,
  DeliveryFilter,
  DeliveryPage,
  EndpointBacklog,
  Page,
  QueueStats,
  SettledLater,
  Settlement,
} from '../delivery-queue.ts';

/** How the thread is started. */
export interface WorkerSettings {
  readonly path: string;
  readonly maxEvents: number;
  readonly maxBytes: number;
}

/** An event, with its body in the buffer of the batch. */
export interface EventMessage {
  readonly id: string;
  readonly type: string;
  readonly channel: string | null;
  readonly createdAt: EpochMilliseconds;
  readonly metadata: string;
  readonly targets: readonly Target[];
  readonly bodyLength: number;
}

/** One settled delivery; `seq` is the number of its event. */
export interface SettleMessage {
  readonly seq: number;
  readonly attempt: number;
  readonly at: EpochMilliseconds;
  readonly settlement: Settlement;
  /** JSON of an AttemptRecord. */
  readonly record: string | undefined;
}

/** A taken delivery, with its body in the buffer of the reply. */
export interface TakenMessage {
  readonly seq: number;
  readonly event: string;
  readonly type: string;
  readonly channel: string | null;
  readonly createdAt: EpochMilliseconds;
  readonly attempt: number;
  readonly tries: number;
  readonly isReplay: boolean;
  readonly due: EpochMilliseconds;
  readonly metadata: string;
  readonly bodyLength: number;
}

/** Where a replay goes on: after this delivery, up to this event. */
export interface ReplayPosition {
  readonly seq: number;
  readonly endpoint: number;
  readonly end: number;
}

/** An event, in the order of their creation. */
export interface PrunePosition {
  readonly created: EpochMilliseconds;
  readonly seq: number;
}

/** The parameters of each operation. */
export interface Operations {
  append: { readonly events: readonly EventMessage[]; readonly now: EpochMilliseconds };
  settle: {
    readonly endpoint: string;
    readonly run: number;
    readonly settled: readonly SettleMessage[];
    /** JSON of the LaneState; undefined: it did not change, or the run has ended and no longer decides about it. */
    readonly state: string | undefined;
  };
  replayStep: {
    readonly filter: DeliveryFilter;
    readonly now: EpochMilliseconds;
    readonly excluded: SettledLater;
    readonly position: ReplayPosition;
  };
  replayMissing: { readonly filter: DeliveryFilter; readonly now: EpochMilliseconds };
  pruneStep: {
    readonly settledBefore: EpochMilliseconds;
    readonly deadBefore: EpochMilliseconds;
    readonly most: number;
    /** Undefined in the first step. */
    readonly after: PrunePosition | undefined;
  };
  /** Deliveries of events that were created later than `now`. */
  hasten: { readonly now: EpochMilliseconds };
  putEndpoint: { readonly endpoint: StoredEndpoint };
  removeEndpoint: { readonly id: string; readonly version: number | undefined };
  /** `run` numbers the run of the lane: deliveries that an earlier run took can be taken again. */
  take: { readonly endpoint: string; readonly run: number; readonly limit: number; readonly now: EpochMilliseconds };
  getEvent: { readonly id: string };
  findStep: { readonly filter: DeliveryFilter; readonly page: Page };
  findAttempts: { readonly event: string; readonly endpoint: string };
  countStep: { readonly filter: DeliveryFilter; readonly excluded: SettledLater; readonly position: ReplayPosition | undefined };
  stats: { readonly now: EpochMilliseconds };
  backlogs: { readonly endpoints: readonly string[]; readonly now: EpochMilliseconds };
  listEndpoints: Record<never, never>;
  /** Ends the thread. */
  close: Record<never, never>;
}

/** The result of each operation. */
export interface Results {
  append: readonly AppendResult[] | 'full';
  /** When the first of the deliveries becomes due that were made due again; undefined: none. */
  settle: EpochMilliseconds | undefined;
  replayStep: {
    readonly replayed: number;
    readonly endpoints: readonly string[];
    readonly position: ReplayPosition | undefined;
  };
  /** Whether a delivery was created. */
  replayMissing: boolean;
  pruneStep: {
    readonly removed: number;
    /** Where the next step continues; undefined: at the end. */
    readonly after: PrunePosition | undefined;
  };
  hasten: { readonly endpoints: readonly string[]; readonly isDone: boolean };
  putEndpoint: boolean;
  removeEndpoint: boolean;
  take: {
    readonly taken: readonly TakenMessage[];
    /** When the next delivery is due that is not taken; undefined: there is none. */
    readonly next: EpochMilliseconds | undefined;
  };
  getEvent:
    | {
        readonly id: string;
        readonly type: string;
        readonly channel: string | null;
        readonly createdAt: EpochMilliseconds;
        readonly metadata: string;
        readonly bodyLength: number;
      }
    | undefined;
  findStep: {
    /** With the position of each, for the next page. */
    readonly found: readonly { readonly position: string; readonly record: DeliveryPage['deliveries'][number] }[];
    /** Where the next step continues; undefined: at the end. */
    readonly next: string | undefined;
  };
  findAttempts: readonly AttemptRecord[] | undefined;
  countStep: { readonly count: number; readonly position: ReplayPosition; readonly isDone: boolean };
  stats: QueueStats;
  backlogs: readonly EndpointBacklog[];
  listEndpoints: readonly StoredEndpoint[];
  close: undefined;
}

export type OperationKind = keyof Operations;

/** An operation with its kind. */
export type Operation = { [K in OperationKind]: { readonly kind: K } & Operations[K] }[OperationKind];

/** A failed operation. `user`: the caller's fault; `system`: the store's. */
export interface Failure {
  readonly kind: 'user' | 'system';
  readonly code: string;
  readonly message: string;
}

/** All operations of one turn of the event loop: one transaction. */
export interface Batch {
  /** JSON of `Operation[]`, which costs less CPU than structured clones of many small objects. */
  readonly operations: string;
  /** The bodies of all appended events, one after the other. */
  readonly bodies: ArrayBuffer;
}

/** The result of one operation, or why it failed. */
export type Reply = { readonly isDone: true; readonly result: Results[OperationKind] } | ({ readonly isDone: false } & Failure);

/** The replies to a batch, in its order. */
export interface BatchReply {
  /** JSON of `Reply[]`. */
  readonly replies: string;
  /** The bodies of all taken deliveries and read events, one after the other. */
  readonly bodies: ArrayBuffer;
}

/** A lane as the store knows it when it is opened. */
export interface OpenedLane {
  readonly endpoint: string;
  /** Undefined: no delivery waits. */
  readonly next: EpochMilliseconds | undefined;
  /** JSON of the LaneState. */
  readonly state: string | undefined;
}

/** The first message of the thread. */
export type Opened = { readonly isOpen: true; readonly lanes: readonly OpenedLane[] } | ({ readonly isOpen: false } & Failure);
