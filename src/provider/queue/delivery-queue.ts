/** The interface of the delivery queue; test/contract/delivery-queue.contract.ts checks it on each database. */
import type pg from 'pg';
import type { Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import type { EndpointStore, Target } from '../endpoints/endpoint.ts';
import type { EventSource } from '../events/event.ts';

/** An event that was accepted, as the queue stores it. */
export interface NewEvent {
  /** Unique; see `EVENT_ID` in provider/events/event.ts. */
  readonly id: string;
  readonly type: string;
  readonly tenant?: string | undefined;
  readonly createdAt: EpochMilliseconds;
  /** Sent unchanged in every attempt. */
  readonly body: Buffer;
  /** The bytes of the body before this one are not compared with those of a stored event with the same ID: they have the time at which the event was posted. Default: 0. */
  readonly comparedFrom?: number | undefined;
  /** Up to 64 KiB of JSON that the queue does not interpret: the trace context, the head of an inbox request. */
  readonly metadata: string;
  /** At most one for each endpoint; may be empty. Found again if the event has to wait. */
  targets: readonly Target[];
}

/** `duplicate`: the same event is stored already. `conflict`: another event is stored under this ID. */
export type AppendResult = 'stored' | 'duplicate' | 'conflict';

/**
 * `waiting`: due now or later, or in flight. `delivered`: acknowledged with 2xx. `dead`: rejected permanently, or all attempts failed.
 * `skipped`: not sent because the endpoint was disabled or deleted.
 */
export const DELIVERY_STATES = ['waiting', 'delivered', 'dead', 'skipped'] as const;
export type DeliveryState = (typeof DELIVERY_STATES)[number];

/** One event for one endpoint, taken by a lane. */
export interface Delivery {
  readonly event: string;
  readonly endpoint: string;
  /** Of the endpoint when the delivery was taken: see `EndpointStore.readVersion`. */
  readonly version: number;
  readonly type: string;
  readonly tenant?: string | undefined;
  readonly createdAt: EpochMilliseconds;
  /** Attempts made so far, over all replays. It fences settlements: a settlement with another number is ignored. */
  readonly attempt: number;
  /** Attempts made since the delivery was appended or last replayed: the position in the schedule. */
  readonly tries: number;
  /** Replayed by hand: its failures do not count towards disabling the endpoint. */
  readonly isReplay: boolean;
  readonly due: EpochMilliseconds;
  readonly body: Buffer;
  readonly metadata: string;
}

export type Settlement =
  | { readonly kind: 'delivered' }
  /** `isAsked`: the endpoint asked for this time with `Retry-After`, so another schedule does not change it. */
  | { readonly kind: 'retry'; readonly due: EpochMilliseconds; readonly isAsked?: boolean | undefined }
  | { readonly kind: 'dead' }
  /** No attempt was made, as the endpoint is disabled or deleted, or has another tenant. */
  | { readonly kind: 'skipped' }
  /** No attempt was made; the delivery stays due at `due`. Does not change `attempt` and `tries`. */
  | { readonly kind: 'postponed'; readonly due: EpochMilliseconds };

export interface AttemptRecord {
  readonly at: EpochMilliseconds;
  readonly duration: Milliseconds;
  readonly status?: number | undefined;
  /** From `ATTEMPT_OUTCOMES` in provider/attempt/attempt.ts. */
  readonly outcome: string;
  /** Why it failed; at most 300 characters, without secrets. */
  readonly detail?: string | undefined;
}

export interface SettledDelivery {
  readonly event: string;
  /** `Delivery.attempt` as taken. */
  readonly attempt: number;
  readonly at: EpochMilliseconds;
  readonly settlement: Settlement;
  /** Absent if no attempt was made. */
  readonly record?: AttemptRecord | undefined;
}

/** The state of the lane of an endpoint: small JSON that only the holder of the lane changes. */
export interface LaneState {
  /** Failed attempts in a row, without replays. */
  readonly failures: number;
  /** The first of them. */
  readonly firstFailureAt?: EpochMilliseconds | undefined;
  /** The last of them. */
  readonly lastFailure?: AttemptRecord | undefined;
  /** No attempt starts before: the breaker, `Retry-After`, 429. */
  readonly pausedUntil?: EpochMilliseconds | undefined;
  /** When that was decided. */
  readonly pausedAt?: EpochMilliseconds | undefined;
  /** Signs in a row, replays included, that the endpoint is unreachable or asks for less; any other response ends the streak. */
  readonly streak?: number | undefined;
  /** First attempts that failed since the last success, up to 20. */
  readonly failedFirsts?: number | undefined;
  /**
   * Types whose last attempts all failed although the endpoint responds, at most 64. The queue ranks their first attempts behind those of
   * other types, also of deliveries that are queued already. A type is removed at its first success, and at most one is added per second
   * while attempts are not paused.
   */
  readonly failingTypes?: readonly string[] | undefined;
  /** When an attempt last used its whole `timeout`. */
  readonly timedOutAt?: EpochMilliseconds | undefined;
  /** When one last succeeded since then, in whole seconds. */
  readonly succeededAt?: EpochMilliseconds | undefined;
  /** The longest success since an attempt timed out, else the last one, in whole seconds; undefined below a second. */
  readonly slowMs?: Milliseconds | undefined;
  /** When the last one was added. */
  readonly failingTypeAt?: EpochMilliseconds | undefined;
  /** Other types whose last attempts failed, and how many in a row; at most 64. */
  readonly failedTypes?: readonly (readonly [type: string, failures: number])[] | undefined;
  /** Any success since the endpoint was created or enabled: opens the full concurrency. */
  readonly isProven: boolean;
  /** The rate limit's tokens, and when they were counted, in the time of the store. */
  readonly tokens?: number | undefined;
  readonly tokensAt?: EpochMilliseconds | undefined;
  /** `enabledAt` of the endpoint that this state belongs to; enabling an endpoint again resets the state. */
  readonly since: EpochMilliseconds;
  /** `toIdentity` of the endpoint; another one resets the state, too. */
  readonly identity?: string | undefined;
  /** Removed by the next run of a replica that knows another endpoint of this ID, or any if it is `unknown`. */
  readonly absence?: LaneAbsence | undefined;
}

/** All runs of the lane in this time, on any replica, left deliveries to the others. */
export interface LaneAbsence {
  /** `unknown`: the endpoint is. Otherwise it has another tenant here than the deliveries, and this is its identity. */
  readonly kind: string;
  readonly since: EpochMilliseconds;
  readonly seenAt: EpochMilliseconds;
}

export type TakeOnly = 'first' | 'untried' | 'fresh' | 'heads';

/** For so long, an event goes before older ones while attempts of its endpoint time out. */
export const FRESH_MS: Milliseconds = 10_000;

/** The exclusive, leased right to send to one endpoint. Deliveries that were taken and not settled when the run ends stay due. */
export interface Lane {
  readonly endpoint: string;
  /** Undefined for an endpoint that was never served. */
  readonly state: LaneState | undefined;
  /** Aborts if the lease is lost or the queue stops. */
  readonly signal: AbortSignal;
  /** The lane was woken since the run began or gave back: what it took before may have been canceled, purged or erased. */
  readonly isOutdated: boolean;
  /** The size of the next delivery that is due, if the last take had no memory for it. */
  readonly needs?: number | undefined;
  /** There was no memory for it for so long that another replica may have the lane. Smaller deliveries go before it then, in the order of each key. */
  readonly isLeft?: boolean;
  /** Deliveries that were taken, and whose attempts did not start. They can be taken again. */
  giveBack(deliveries: readonly Pick<Delivery, 'event'>[]): void;
  /**
   * Due deliveries, at most `limit`, never one that this lane already took and did not settle: first attempts, then first attempts of
   * `failingTypes`, then retries and replays; of each rank the oldest due first. `only`: `first`: nothing of the later ranks; `untried`:
   * nothing of the last one; `fresh`: first attempts, also of `failingTypes`, that became due in the last `FRESH_MS`, of each rank the newest first;
   * `heads`: all, without bodies and metadata, to skip them.
   * `maxBytes`: of all together.
   */
  take(limit: number, now: EpochMilliseconds, only?: TakeOnly, maxBytes?: number): Promise<readonly Delivery[]>;
  /**
   * Durable when it resolves. Ignored are settlements whose `attempt` is outdated, and, once another replica has the lane, `state` and all
   * settlements but `delivered`. That one also counts for a delivery that was canceled after its request was sent.
   */
  settle(settled: readonly SettledDelivery[], state: LaneState): Promise<void>;
}

/** The result of a lane run: when the lane has to be served again; undefined: when its next delivery is due. */
export interface LaneResult {
  /** Not before this time, even if deliveries are due: the endpoint is paused. */
  readonly notBefore?: EpochMilliseconds | undefined;
  /** Another replica may have the lane at once: this one cannot serve it. */
  readonly isLeft?: true | undefined;
}

/** Serves one lane for a slice of time; see provider/lanes/lane-runner.ts. */
export type RunLane = (lane: Lane) => Promise<LaneResult>;

/** Selects events. All given fields must match. */
export interface EventFilter {
  readonly type?: string | undefined;
  readonly tenant?: string | undefined;
  /** Events created at this time or later. */
  readonly from?: EpochMilliseconds | undefined;
  /** Events created before this time. */
  readonly to?: EpochMilliseconds | undefined;
  /** Events with a delivery to this endpoint; with `states`, one that is in one of these states. */
  readonly endpoint?: string | undefined;
  readonly states?: readonly DeliveryState[] | undefined;
  /** Events of the app that have a body, and no delivery to this endpoint. */
  readonly lacks?: string | undefined;
  /** Events that no endpoint selected. */
  readonly isUnrouted?: true | undefined;
}

/** An endpoint, and whose events it may get. */
export interface Receiver {
  readonly endpoint: string;
  readonly allTenants: boolean;
  /** Undefined: events without a tenant, unless it is for `allTenants`. */
  readonly tenant?: string | undefined;
}

/** Selects deliveries. All given fields must match. */
export interface DeliveryFilter extends Omit<EventFilter, 'isUnrouted'> {
  readonly event?: string | undefined;
  /** Deliveries to one of these endpoints, of an event that it may get. */
  readonly receivers?: readonly Receiver[] | undefined;
}

export interface Page {
  /** 1 to 250. */
  readonly limit: number;
  /** `next` of the page before. `find` rejects with SidegateError `invalid_position` of kind `user` for any other text. */
  readonly after?: string | undefined;
}

/** A page of events, by default the newest first. */
export interface EventPageRequest extends Page {
  readonly first?: 'oldest' | undefined;
}

export interface DeliveryRecord extends Pick<Delivery, 'event' | 'endpoint' | 'type' | 'tenant' | 'createdAt'> {
  readonly state: DeliveryState;
  readonly attempts: number;
  /** Only while waiting. */
  readonly due?: EpochMilliseconds | undefined;
  readonly settledAt?: EpochMilliseconds | undefined;
  readonly lastAttempt?: AttemptRecord | undefined;
}

export interface Found<T> {
  /** Can be fewer than the limit, or none, although more follow: one page reads a bounded part of the store. */
  readonly found: readonly T[];
  /** Undefined on the last page. */
  readonly next: string | undefined;
}

/** A stored event. Its body is empty if it was erased. */
export interface StoredEvent extends Omit<NewEvent, 'comparedFrom' | 'targets'> {
  readonly isErased: boolean;
}

/** A stored event without what can be large. */
export interface EventHead extends Pick<StoredEvent, 'type' | 'tenant' | 'createdAt' | 'isErased'> {
  readonly source: EventSource;
  /** Of the body and the metadata. */
  readonly bytes: number;
}

export interface EventRecord extends Pick<NewEvent, 'id' | 'type' | 'tenant' | 'createdAt'> {
  /** How many endpoints it was for. */
  readonly deliveries: number;
  readonly waiting: number;
  /** Dead or skipped. */
  readonly failed: number;
}

/** `retry`: due now; what was settled starts its schedule again. `cancel`: what waits is skipped. `purge`: removed; their events stay, so that they are not accepted again. */
export const REPAIR_ACTIONS = ['retry', 'cancel', 'purge'] as const;
export type RepairAction = (typeof REPAIR_ACTIONS)[number];

export interface RepairProgress {
  /** Deliveries that were changed so far; `total`: all that match, counted when it started; at the end, equal to `changed`. */
  readonly changed: number;
  readonly total: number;
}

/** Figures of the queue. Counting must stay cheap with a million deliveries. */
export interface QueueStats {
  readonly waiting: number;
  readonly dead: number;
  readonly skipped: number;
  /** When the oldest overdue delivery became due. */
  readonly oldestDue?: EpochMilliseconds | undefined;
  /** Events of which a delivery waits, which the bounds count. */
  readonly events: number;
  readonly bytes: number;
  /** All events. */
  readonly storedEvents: number;
  readonly storedBytes: number;
  readonly maxEvents: number;
  readonly maxBytes: number;
  /** The part that is used of the share of the endpoint, and of the tenant, with most of it: 1 is all. */
  readonly usedShares: Readonly<Record<'endpoint' | 'tenant', number>>;
  /** When the newest event was created that `prune` has removed; 0: none. One created later that is not stored is lost. */
  readonly prunedUntil: EpochMilliseconds;
}

export interface QueueBounds {
  readonly maxEvents: number;
  /** Of events that wait; beyond it, those that do not wait leave. */
  readonly maxBytes: number;
  /** The part of both that may wait for one endpoint, so that the others have room: 0 to 1. */
  readonly endpointShare: number;
  /** The part of both that may wait for one tenant. */
  readonly tenantShare: number;
}

export interface EndpointBacklog {
  readonly waiting: number;
  readonly oldestDue?: EpochMilliseconds | undefined;
}

/** The inbox of a route, which may not exist any more. */
export interface InboxBacklog {
  readonly endpoint: string;
  readonly waiting: number;
}

/** `queue_full`: a bound or a share is used up. */
export class QueueFullError extends SidegateError {
  /** `queue`, `endpoint NAME` or `tenant NAME`. */
  readonly full: string;

  constructor(message: string, full: string) {
    super('system', 'queue_full', message);
    this.full = full;
  }
}

export interface Serving {
  /** Starts no further lane run, aborts the signal of running ones, and resolves when all of them have returned. */
  stop(): Promise<void>;
}

/** The queue in a transaction of another connection. */
export interface JoinedQueue {
  /**
   * Like `DeliveryQueue.append`, and durable when the transaction commits. After `queue_full`, `too_large` and `unstorable` the transaction can go
   * on. Any other error is that of the connection, which has to roll back.
   */
  append(events: readonly NewEvent[]): Promise<readonly AppendResult[]>;
  /** After the commit: the deliveries of these events are due. */
  serve(events: readonly NewEvent[]): void;
}

export interface DeliveryQueue {
  readonly endpoints: EndpointStore;
  /** The time of the store, of which all times are that the queue stores or gets: the clocks of replicas differ, and one that is ahead must not delay what another one sends. */
  readonly clock: Clock;
  /**
   * Connects or opens the file and checks the store's settings. Rejects with a SidegateError of kind `user` if the store would lose events
   * (a file on tmpfs), with a text that says how to fix it. Returns problems that do not prevent the start, for the log.
   */
  open(): Promise<readonly string[]>;
  /**
   * Stores events with all their deliveries, durably when it resolves. An ID that is already stored changes nothing: `duplicate`, or
   * `conflict` if it is another event. All other events of one call are stored, or none. Rejects with QueueFullError at a bound or a
   * share, or with SidegateError `too_large` for an event that exceeds one by itself, `unstorable` for a value that the store cannot hold,
   * `queue_busy`, or `queue_unavailable`. `route`: finds the targets again after a wait, in which they would take memory.
   */
  append(events: readonly NewEvent[], route?: (event: NewEvent) => readonly Target[]): Promise<readonly AppendResult[]>;
  /** For the transactions of a connection; undefined if it is not to the database of the queue, or may not use its tables. */
  join(client: pg.ClientBase): Promise<JoinedQueue | undefined>;
  /**
   * Runs `run` for each endpoint with due deliveries: at most one run for an endpoint over all replicas, at most `lanes` at once here.
   * Deliveries that a run took and did not settle are due again when it has ended. A run that rejected is repeated about a second later.
   * Tenants take turns, and those endpoints together for which `toTenant` returns undefined.
   */
  serve(lanes: number, run: RunLane, toTenant?: (endpoint: string) => string | undefined): Serving;
  /** Serves the endpoint soon, even before `notBefore`: it was enabled, or has another rate limit. Each repair does the same. */
  wake(endpoint: string): Promise<void>;
  findEvent(id: string): Promise<EventHead | undefined>;
  /** Waits until there is memory for the event, which counts until `used` resolves; by default, until it is returned. */
  getEvent(id: string, used?: Promise<void>): Promise<StoredEvent | undefined>;
  /** Newest event first. */
  find(filter: DeliveryFilter, page: Page): Promise<Found<DeliveryRecord>>;
  /** The newest 20 attempts, newest first; undefined if the delivery does not exist. */
  findAttempts(event: string, endpoint: string): Promise<readonly AttemptRecord[] | undefined>;
  findEvents(filter: EventFilter, page: EventPageRequest): Promise<Found<EventRecord>>;
  /**
   * Changes matching deliveries, in small steps. Those that are settled after `now`, while it runs, are not part of it, nor are erased events
   * part of a retry. Ends with `changed` equal to `total`. A retry that would exceed a bound or a share changes the
   * deliveries that fit, and then rejects with SidegateError `queue_full`, whose text says how many do not and why.
   */
  repair(action: RepairAction, filter: DeliveryFilter, now: EpochMilliseconds): AsyncIterable<RepairProgress>;
  /** Counts what a repair would change. */
  count(action: RepairAction, filter: DeliveryFilter, now: EpochMilliseconds): Promise<number>;
  /** Creates the delivery of an event to an endpoint, due now. False: it exists, the event does not, or it was erased. Rejects with SidegateError `queue_full` at a bound or a share. */
  addDelivery(event: string, endpoint: string, now: EpochMilliseconds, orderKey?: string): Promise<boolean>;
  /** Removes the bodies of an event, or of all events of a tenant; what waits is skipped. Their IDs stay stored. Returns how many. */
  erase(which: { readonly event: string } | { readonly tenant: string }, now: EpochMilliseconds): Promise<number>;
  /** Deliveries that wait for a retry follow this schedule. Changes nothing if this was the last one that was given for the endpoint. */
  reschedule(endpoint: string, delays: readonly Milliseconds[], now: EpochMilliseconds): Promise<void>;
  /**
   * Removes events of which no delivery is waiting: delivered ones created before `settledBefore`, others created before `deadBefore`, and
   * the oldest ones while the store exceeds its size. At most `most`; returns how many.
   */
  prune(settledBefore: EpochMilliseconds, deadBefore: EpochMilliseconds, most: number): Promise<number>;
  stats(now: EpochMilliseconds): Promise<QueueStats>;
  backlogs(endpoints: readonly string[], now: EpochMilliseconds): Promise<readonly EndpointBacklog[]>;
  /** The inboxes with deliveries that wait, are dead or are skipped. */
  inboxes(): Promise<readonly InboxBacklog[]>;
  /** The state that the last run of each lane settled, on any replica; undefined for an endpoint that was never served, or not for a month. */
  laneStates(endpoints: readonly string[]): Promise<readonly (LaneState | undefined)[]>;
  /** After `Serving.stop`: flushes and closes. */
  close(): Promise<void>;
}
