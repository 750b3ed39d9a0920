/** The operations on the store of the queue, as messages: with SQLite, another thread executes them. Bodies travel beside them. */
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { StoredEndpoint } from '../endpoints/endpoint.ts';
import type {
  AppendResult,
  AttemptRecord,
  Delivery,
  DeliveryFilter,
  DeliveryRecord,
  EndpointBacklog,
  EventFilter,
  EventPageRequest,
  EventRecord,
  InboxBacklog,
  LaneState,
  NewEvent,
  Page,
  QueueBounds,
  QueueStats,
  RepairAction,
  SettledDelivery,
  StoredEvent,
  TakeOnly,
} from './delivery-queue.ts';

/** How the thread is started. */
export interface WorkerSettings {
  readonly path: string;
  readonly bounds: QueueBounds;
}

/** An event, with its body in the buffer of the batch. */
export interface EventMessage extends Omit<NewEvent, 'body'> {
  readonly bodyLength: number;
}

/** The part of a delivery that a settlement would otherwise read again. */
export interface DeliveryFacts {
  readonly key: string | null;
  readonly tenant?: string | undefined;
  /** Of the event. */
  readonly bytes: number;
  /** Deliveries of the event that waited when it was taken. */
  readonly waiting: number;
}

/** One settled delivery; `seq` is the number of its event, `record` the JSON of an AttemptRecord. */
export interface SettleMessage extends Pick<SettledDelivery, 'attempt' | 'at' | 'settlement'> {
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
export interface Position {
  readonly event: number;
  readonly lane: number;
}

/** Where a repair goes on: after this delivery, up to the event `end`. */
export interface RepairPosition extends Position {
  readonly end: number;
}

/** A part of a list. */
export interface FoundStep<T> {
  /** With the position of each, for the next page. */
  readonly found: readonly { readonly position: string; readonly record: T }[];
  /** Where the next step continues; undefined: at the end. */
  readonly next: string | undefined;
}

/** An endpoint with deliveries that wait. */
export interface DueLane {
  readonly endpoint: string;
  readonly next: EpochMilliseconds;
}

/** The parameters of each operation. */
export interface Operations {
  append: { readonly events: readonly EventMessage[]; readonly now: EpochMilliseconds };
  settle: {
    readonly endpoint: string;
    readonly run: number;
    /** The run began with the lease of this replica. If another one has the lane now, that one decides. */
    readonly holder: string | null;
    readonly settled: readonly SettleMessage[];
    /** JSON of the LaneState; undefined: it did not change, or the run has ended and no longer decides about it. */
    readonly state: string | undefined;
  };
  /** Deliveries that were settled after `now`, when the repair began, and not later than `until` are not part of it. */
  repairStep: {
    readonly action: RepairAction;
    readonly filter: DeliveryFilter;
    readonly now: EpochMilliseconds;
    readonly until: EpochMilliseconds;
    readonly position: RepairPosition;
  };
  addDelivery: {
    readonly event: string;
    readonly endpoint: string;
    readonly now: EpochMilliseconds;
    readonly orderKey: string | null;
  };
  /** Events with this ID, or all of a tenant. */
  eraseStep: {
    readonly event?: string | undefined;
    readonly tenant?: string | undefined;
    readonly now: EpochMilliseconds;
    /** The number of the event with which the step before ended; 0 at first. */
    readonly after: number;
    /** Events that the step reads. */
    readonly most: number;
  };
  pruneStep: { readonly settledBefore: EpochMilliseconds; readonly deadBefore: EpochMilliseconds; readonly most: number };
  /** Corrects the figures of what waits. */
  recount: Record<never, never>;
  /** Deliveries that would wait longer than their delay, because a clock was ahead. */
  hastenStep: { readonly now: EpochMilliseconds; readonly most: number };
  /** `delays`: of the schedule, in milliseconds. `after`: the number of the event with which the step before ended; 0 at first. */
  rescheduleStep: {
    readonly endpoint: string;
    readonly delays: readonly number[];
    readonly now: EpochMilliseconds;
    readonly after: number;
  };
  putEndpoint: { readonly endpoint: StoredEndpoint };
  removeEndpoint: { readonly id: string; readonly version: number | undefined };
  /** `run` numbers the run of the lane: deliveries that an earlier run took can be taken again. */
  take: {
    readonly endpoint: string;
    readonly run: number;
    readonly limit: number;
    readonly now: EpochMilliseconds;
    readonly only: TakeOnly | undefined;
    /** Numbers of events that the run took and gives back. */
    readonly returned: readonly number[];
  };
  getEvent: { readonly id: string };
  findStep: { readonly filter: DeliveryFilter; readonly page: Page };
  findEventsStep: { readonly filter: EventFilter; readonly page: EventPageRequest };
  findAttempts: { readonly event: string; readonly endpoint: string };
  countStep: {
    readonly action: RepairAction;
    readonly filter: DeliveryFilter;
    readonly now: EpochMilliseconds;
    readonly until: EpochMilliseconds;
    readonly position: RepairPosition | undefined;
  };
  stats: { readonly now: EpochMilliseconds };
  backlogs: { readonly endpoints: readonly string[]; readonly now: EpochMilliseconds };
  inboxes: Record<never, never>;
  laneStates: { readonly endpoints: readonly string[] };
  /** Endpoints with deliveries that wait, unless another replica has their lease at this time. */
  dueLanes: { readonly owner: string; readonly now: EpochMilliseconds };
  listEndpoints: Record<never, never>;
}

/** The result of each operation. */
export interface Results {
  append: readonly AppendResult[];
  settle: {
    /** When the first of the deliveries becomes due that were made due again; undefined: none. */
    readonly next: EpochMilliseconds | undefined;
    /** The lane has another holder: only acknowledged deliveries were settled. */
    readonly isLost: boolean;
  };
  repairStep: {
    readonly changed: number;
    /** Deliveries that would have exceeded a bound or a share, and what the first one would have exceeded. */
    readonly rejected: number;
    readonly reason: string | undefined;
    /** Those with deliveries that are due now, or that waited before. */
    readonly endpoints: readonly string[];
    readonly position: RepairPosition | undefined;
  };
  /** Whether a delivery was created. */
  addDelivery: boolean;
  eraseStep: {
    /** How many events. */
    readonly erased: number;
    /** Those with deliveries that waited. */
    readonly endpoints: readonly string[];
    /** Where the next step continues; undefined: at the end. */
    readonly next: number | undefined;
  };
  /** How many events. */
  pruneStep: number;
  /** How many tenants were wrong. */
  recount: number;
  hastenStep: { readonly endpoints: readonly string[]; readonly isDone: boolean };
  rescheduleStep: {
    /** How many deliveries. */
    readonly changed: number;
    /** Where the next step continues; undefined: at the end. */
    readonly next: number | undefined;
  };
  putEndpoint: boolean;
  removeEndpoint: boolean;
  take: {
    readonly taken: readonly TakenMessage[];
    /** When the next delivery is due that is not taken; undefined: there is none. */
    readonly next: EpochMilliseconds | undefined;
  };
  getEvent: (Omit<StoredEvent, 'body'> & Pick<EventMessage, 'bodyLength'>) | undefined;
  findStep: FoundStep<DeliveryRecord>;
  findEventsStep: FoundStep<EventRecord>;
  findAttempts: readonly AttemptRecord[] | undefined;
  countStep: { readonly count: number; readonly position: RepairPosition; readonly isDone: boolean };
  stats: QueueStats;
  backlogs: readonly EndpointBacklog[];
  inboxes: readonly InboxBacklog[];
  laneStates: readonly (LaneState | undefined)[];
  dueLanes: readonly DueLane[];
  listEndpoints: readonly StoredEndpoint[];
}

export type OperationKind = keyof Operations;

/** An operation with its kind. */
export type Operation = { [K in OperationKind]: { readonly kind: K } & Operations[K] }[OperationKind];

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

/** The result of one operation, or why it failed. */
export type Reply = { readonly isDone: true; readonly result: Results[OperationKind] } | ({ readonly isDone: false } & Failure);

/** The replies to a batch, in its order. */
export interface BatchReply {
  /** JSON of `Reply[]`. */
  readonly replies: string;
  /** The bodies of all taken deliveries and read events, one after the other. */
  readonly bodies: ArrayBuffer;
}

/** The first message of the thread. */
export type Opened = { readonly isOpen: true } | ({ readonly isOpen: false } & Failure);
