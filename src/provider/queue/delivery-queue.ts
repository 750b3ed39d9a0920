/** The interface of the delivery queue. Both engines implement it; test/contract/delivery-queue.contract.ts checks both. */
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import type { EndpointStore } from '../endpoints/endpoint-store.ts';
import type { Target } from '../endpoints/target.ts';

/** An event that was accepted, as the queue stores it. */
export interface NewEvent {
  /** Unique; see `EVENT_ID` in provider/events/event.ts. */
  readonly id: string;
  readonly type: string;
  readonly channel?: string | undefined;
  readonly createdAt: EpochMilliseconds;
  /** Sent unchanged in every attempt. */
  readonly body: Buffer;
  /** Up to 64 KiB of JSON that the queue does not interpret: the trace context, the head of an inbox request. */
  readonly metadata: string;
  /** At most one for each endpoint; may be empty. */
  readonly targets: readonly Target[];
}

export type AppendResult = 'stored' | 'duplicate';

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
  readonly type: string;
  readonly channel?: string | undefined;
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

/** The result of an attempt. */
export type Settlement =
  | { readonly kind: 'delivered' }
  | { readonly kind: 'retry'; readonly due: EpochMilliseconds }
  | { readonly kind: 'dead' }
  /** No attempt was made, as the endpoint is disabled or deleted. */
  | { readonly kind: 'skipped' }
  /** No attempt was made; the delivery stays due at `due`. Does not change `attempt` and `tries`. */
  | { readonly kind: 'postponed'; readonly due: EpochMilliseconds };

/** The record of one attempt. */
export interface AttemptRecord {
  readonly at: EpochMilliseconds;
  readonly duration: Milliseconds;
  /** The status of the response, if there was one. */
  readonly status?: number | undefined;
  /** From `ATTEMPT_OUTCOMES` in provider/attempt/attempt.ts. */
  readonly outcome: string;
  /** Why it failed; at most 300 characters, without secrets. */
  readonly detail?: string | undefined;
}

/** Settles one taken delivery. */
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
  /**
   * Failed attempts in a row, replays included, for the breaker and the concurrency. An event that the endpoint rejected permanently is
   * neither a failure nor a success here.
   */
  readonly streak?: number | undefined;
  /** Any success since the endpoint was created or enabled: opens the full concurrency. */
  readonly isProven: boolean;
  /** The rate limit's tokens, and when they were counted, in the time of the store. */
  readonly tokens?: number | undefined;
  readonly tokensAt?: EpochMilliseconds | undefined;
  /** `enabledAt` of the endpoint that this state belongs to; enabling an endpoint again resets the state. */
  readonly since: EpochMilliseconds;
  /** Removed by the next run of a replica that can serve the endpoint. */
  readonly absence?: LaneAbsence | undefined;
}

/** All runs of the lane in this time, on any replica, found the endpoint disabled, or did not know it. */
export interface LaneAbsence {
  readonly kind: 'disabled' | 'unknown';
  readonly since: EpochMilliseconds;
  readonly seenAt: EpochMilliseconds;
}

/** The exclusive, leased right to send to one endpoint. Deliveries that were taken and not settled when the run ends stay due. */
export interface Lane {
  readonly endpoint: string;
  /** Undefined for an endpoint that was never served. */
  readonly state: LaneState | undefined;
  /** Aborts if the lease is lost or the queue stops; attempts in flight are then not settled by this holder if the lease was lost. */
  readonly signal: AbortSignal;
  /** The time of the store, for the rate limit: the clocks of the replicas that hold the lane one after the other may differ. */
  storeTime(): EpochMilliseconds;
  /** Due deliveries, oldest due first, at most `limit`, never one that this lane already took and did not settle. */
  take(limit: number, now: EpochMilliseconds): Promise<readonly Delivery[]>;
  /** Durable when it resolves. Settlements whose `attempt` is outdated are ignored. */
  settle(settled: readonly SettledDelivery[], state: LaneState): Promise<void>;
}

/**
 * The longest pause of a lane. A run asks for at most an hour (`Retry-After`); a stored time that is further ahead was written by a clock that
 * was wrong, and counts as no pause. Twice as long, so that a clock that is a little behind does not end a valid pause.
 */
export const MAX_LANE_PAUSE_MS: Milliseconds = 2 * 3_600_000;

/** The result of a lane run: when the lane has to be served again; undefined: when its next delivery is due. */
export interface LaneResult {
  /** Not before this time, even if deliveries are due: the endpoint is paused. At most `MAX_LANE_PAUSE_MS` ahead. */
  readonly notBefore?: EpochMilliseconds | undefined;
}

/** Serves one lane for a slice of time; see provider/lanes/lane-runner.ts. */
export type RunLane = (lane: Lane) => Promise<LaneResult>;

/** Selects deliveries. All given fields must match. */
export interface DeliveryFilter {
  readonly event?: string | undefined;
  readonly endpoint?: string | undefined;
  readonly type?: string | undefined;
  readonly states?: readonly DeliveryState[] | undefined;
  /** Events created at this time or later. */
  readonly from?: EpochMilliseconds | undefined;
  /** Events created before this time. */
  readonly to?: EpochMilliseconds | undefined;
}

/** A part of a list. */
export interface Page {
  /** 1 to 250. */
  readonly limit: number;
  /** `next` of the page before. `find` rejects with SidegateError `invalid_position` of kind `user` for any other text. */
  readonly after?: string | undefined;
}

/** A delivery in a list. */
export interface DeliveryRecord {
  readonly event: string;
  readonly endpoint: string;
  readonly type: string;
  readonly channel?: string | undefined;
  readonly state: DeliveryState;
  readonly createdAt: EpochMilliseconds;
  readonly attempts: number;
  /** Only while waiting. */
  readonly due?: EpochMilliseconds | undefined;
  readonly settledAt?: EpochMilliseconds | undefined;
  readonly lastAttempt?: AttemptRecord | undefined;
}

export interface DeliveryPage {
  /** Newest event first. Can be fewer than the limit, or none, although more follow: one page reads a bounded part of the store. */
  readonly deliveries: readonly DeliveryRecord[];
  /** Absent on the last page. */
  readonly next?: string | undefined;
}

/** A stored event. */
export interface StoredEvent {
  readonly id: string;
  readonly type: string;
  readonly channel?: string | undefined;
  readonly createdAt: EpochMilliseconds;
  readonly body: Buffer;
  readonly metadata: string;
}

/** The progress of a replay. */
export interface ReplayProgress {
  /** Deliveries that were made due so far; `total`: all that match, counted when the replay started; at the end, equal to `replayed`. */
  readonly replayed: number;
  readonly total: number;
}

/** Clocks of replicas may differ by this. A settlement that is further in the future was stored by a clock that was wrong. */
const MAX_CLOCK_SKEW_MS: Milliseconds = 60_000;

/** A delivery that was settled after `after` and not later than `until` is not part of a replay that started at `after`. */
export interface SettledLater {
  readonly after: EpochMilliseconds;
  readonly until: EpochMilliseconds;
}

/** Describes the settlements during a replay that started at `start`. */
export function toSettledLater(start: EpochMilliseconds, now: EpochMilliseconds): SettledLater {
  return { after: start, until: now + MAX_CLOCK_SKEW_MS };
}

/** Figures of the queue. Counting must stay cheap with a million deliveries. */
export interface QueueStats {
  readonly waiting: number;
  readonly dead: number;
  readonly skipped: number;
  /** When the oldest overdue delivery became due. */
  readonly oldestDue?: EpochMilliseconds | undefined;
  readonly events: number;
  /** Bytes used by the store, as its bound counts them. */
  readonly bytes: number;
  readonly maxEvents: number;
  readonly maxBytes: number;
  /** Wake-ups that the sweep had to repair since the start; not 0 means that one was lost. */
  readonly sweepFinds: number;
}

/** Waiting deliveries of one endpoint. */
export interface EndpointBacklog {
  readonly waiting: number;
  readonly oldestDue?: EpochMilliseconds | undefined;
}

/** A problem of the store that does not prevent the start, for the log. */
export interface QueueWarning {
  readonly message: string;
}

/** Serving lanes, until stopped. */
export interface Serving {
  /** Starts no further lane run, aborts the signal of running ones, and resolves when all of them have returned. */
  stop(): Promise<void>;
}

/** Stores events and hands out lanes. */
export interface DeliveryQueue {
  readonly endpoints: EndpointStore;
  /**
   * Connects or opens the file and checks the store's settings. Rejects with a SidegateError of kind `user` if the store would lose events
   * (an evicting Redis, a file on tmpfs), with a text that says how to fix it.
   */
  open(): Promise<readonly QueueWarning[]>;
  /**
   * Stores events with all their deliveries, durably when it resolves. An ID that is already stored changes nothing: `duplicate`.
   * All events of one call are stored, or none. Rejects with SidegateError `queue_full` at a bound, or `queue_unavailable`.
   */
  append(events: readonly NewEvent[]): Promise<readonly AppendResult[]>;
  /**
   * Runs `run` for each endpoint with due deliveries: at most one run for an endpoint over all replicas, at most `lanes` at once here.
   * Deliveries that a run took and did not settle are due again when it has ended. A run that rejected is repeated about a second later.
   */
  serve(lanes: number, run: RunLane): Serving;
  /** Serves the endpoint soon, even before `notBefore`: it was enabled, or deliveries were replayed. */
  wake(endpoint: string): Promise<void>;
  getEvent(id: string): Promise<StoredEvent | undefined>;
  find(filter: DeliveryFilter, page: Page): Promise<DeliveryPage>;
  /** The newest 20 attempts, newest first; undefined if the delivery does not exist. */
  findAttempts(event: string, endpoint: string): Promise<readonly AttemptRecord[] | undefined>;
  /**
   * Makes matching deliveries that are not waiting due again, in small steps, with `tries` 0 and `isReplay` true. Those that are settled after
   * `now`, while it runs, are not part of it. `event` with `endpoint` also creates a delivery that did not exist, if the event matches and `states` is not given. Ends with `replayed` equal to `total`.
   */
  replay(filter: DeliveryFilter, now: EpochMilliseconds): AsyncIterable<ReplayProgress>;
  /** Removes events of which no delivery is waiting: delivered ones created before `settledBefore`, others created before `deadBefore`. At most `most`; returns how many. */
  prune(settledBefore: EpochMilliseconds, deadBefore: EpochMilliseconds, most: number): Promise<number>;
  stats(now: EpochMilliseconds): Promise<QueueStats>;
  backlogs(endpoints: readonly string[], now: EpochMilliseconds): Promise<readonly EndpointBacklog[]>;
  /** The state that the last run of each lane settled, on any replica; undefined for an endpoint that was never served, or not for a month. */
  laneStates(endpoints: readonly string[]): Promise<readonly (LaneState | undefined)[]>;
  /** After `Serving.stop`: flushes and closes. */
  close(): Promise<void>;
}
