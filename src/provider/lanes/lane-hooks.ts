/** Lane runs report through these hooks, for metrics, log lines and traces. Hooks must not throw. */
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { AttemptResult } from '../attempt/attempt.ts';
import type { DisabledReason, Endpoint } from '../endpoints/endpoint.ts';
import type { Delivery } from '../queue/delivery-queue.ts';
import type { Decision } from '../schedule/schedule.ts';

/** Why no attempt follows. `gone`: the endpoint was disabled as well. */
export type DeadReason = Extract<Decision, { kind: 'dead' }>['reason'];

export interface LaneHooks {
  /** An attempt ended. `decision` is undefined if it was aborted by a shutdown; then it is made again. */
  onAttempt(endpoint: Endpoint, delivery: Delivery, result: AttemptResult, decision: Decision | undefined): void;
  /** A delivery is dead. */
  onExhausted(endpoint: Endpoint, delivery: Delivery, reason: DeadReason): void;
  /** Deliveries were not sent because the endpoint is disabled or deleted, or has another tenant. */
  onSkipped(endpoint: string, count: number): void;
  /** The endpoint was disabled by its responses. */
  onDisabled(endpoint: Endpoint, reason: DisabledReason): void;
  /** `open`: the endpoint is unreachable, asks for less, or fails almost everything (see lane-state.ts). `closed`: no longer. */
  onBreaker(endpoint: Endpoint, state: 'open' | 'closed'): void;
  /** An attempt failed while the breaker is open, or opened it, or the endpoint is still away. The next attempt, by any replica, does not start before `until`. */
  onFailing(endpoint: Endpoint, until: EpochMilliseconds): void;
  /** An operational event could not be stored, for instance because the queue is full. */
  onOperationalEventLost(type: string, error: unknown): void;
}
