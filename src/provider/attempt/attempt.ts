/** One attempt to send a delivery: its interface and its outcomes. */
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import type { Endpoint } from '../endpoints/endpoint.ts';
import type { Delivery } from '../queue/delivery-queue.ts';

/** Labels of metrics and attempt records. */
export const ATTEMPT_OUTCOMES = [
  'delivered',
  'redirect',
  'client_error',
  'gone',
  'throttled',
  'server_error',
  'timeout',
  'dns',
  'connect',
  'tls',
  'reset',
  'protocol',
  'blocked',
  'aborted',
] as const;
export type AttemptOutcome = (typeof ATTEMPT_OUTCOMES)[number];

/** How an attempt ended. */
export interface AttemptResult {
  readonly outcome: AttemptOutcome;
  readonly startedAt: EpochMilliseconds;
  readonly duration: Milliseconds;
  readonly status?: number | undefined;
  /** From `Retry-After` in either form, as a delay; already bounded to 24 h. */
  readonly retryAfter?: Milliseconds | undefined;
  /** False: no byte of the request was sent, so the attempt does not count as one that the endpoint saw. */
  readonly isSent: boolean;
  readonly detail?: string | undefined;
}

/** Sends deliveries. */
export interface Sender {
  /**
   * Signs with the current time and sends; never rejects. Aborting ends it with `aborted`. Connections are kept for as long as `endpoint`
   * is the same object, as the registry returns it until the endpoint changes.
   */
  send(delivery: Delivery, endpoint: Endpoint, signal: AbortSignal): Promise<AttemptResult>;
  /** Whether something listens at the endpoint; absent, or undefined: unknown without an attempt. Never rejects. */
  isReachable?(endpoint: Endpoint): Promise<boolean> | undefined;
  /** Closes idle connections of endpoints that are no longer in use. */
  retain(endpoints: ReadonlySet<string>): void;
  close(): void;
}
