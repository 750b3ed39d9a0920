/** Decides what follows an attempt, from its result and the endpoint's schedule (facts: Standard Webhooks, "Deliverability and reliability"). */
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import type { Endpoint } from '../endpoints/endpoint.ts';
import type { AttemptResult } from './attempt.ts';

/** The decision after an attempt. */
export type Decision =
  | { readonly kind: 'delivered' }
  | { readonly kind: 'retry'; readonly due: EpochMilliseconds; readonly isAsked?: boolean | undefined }
  /** No attempt follows. `gone`: the endpoint was disabled as well. */
  | { readonly kind: 'dead'; readonly reason: 'exhausted' | 'rejected' | 'gone' };
export type DeadReason = Extract<Decision, { kind: 'dead' }>['reason'];

/** An attempt that ended. */
interface Ended {
  readonly result: AttemptResult;
  /** `Delivery.tries` before this attempt. */
  readonly tries: number;
  readonly endpoint: Pick<Endpoint, 'schedule' | 'retryClientErrors'>;
  readonly now: EpochMilliseconds;
  /** 0 to 1, for the jitter. */
  readonly random: number;
}

/** Delays vary by this share in both directions, so that retries of many deliveries do not come at once. */
const JITTER = 0.2;
const MAX_RETRY_AFTER_MS = 24 * 3_600_000;
/**
 * The same request can succeed later. 401, 403, 404: mostly a deployment, a secret or a route of the receiver that is being fixed. 408, 425, 429:
 * request timeout, too early, too many requests.
 */
const RETRIED_CLIENT_ERRORS: ReadonlySet<number> = new Set([401, 403, 404, 408, 425, 429]);

/**
 * An attempt that failed is retried after the next delay of the schedule, until the schedule ends. `Retry-After` can postpone the retry, never
 * bring it forward: by at most 24 h, and at most by the delays that remain in the schedule, so that a short schedule stays short. A redirect is
 * a failure. An attempt that the egress guard blocked is one, too: the delivery must end some day, although no request was sent.
 */
export function decide({ result, tries, endpoint, now, random }: Ended): Decision {
  if (result.outcome === 'delivered') return { kind: 'delivered' };
  if (result.outcome === 'gone') return { kind: 'dead', reason: 'gone' };
  if (isRejection(result, endpoint.retryClientErrors)) return { kind: 'dead', reason: 'rejected' };
  const delay = endpoint.schedule[tries];
  if (delay === undefined) return { kind: 'dead', reason: 'exhausted' };
  const horizon = endpoint.schedule.slice(tries).reduce((sum, each) => sum + each, 0);
  const retryAfter = Math.min(result.retryAfter ?? 0, MAX_RETRY_AFTER_MS, horizon);
  const scheduled = withJitter(delay, random);
  if (retryAfter > scheduled) return { kind: 'retry', due: Math.round(now + retryAfter), isAsked: true };
  return { kind: 'retry', due: Math.round(now + scheduled) };
}

/** `delay`, 20 % shorter to 20 % longer. `random`: 0 to 1. */
export function withJitter(delay: Milliseconds, random: number): Milliseconds {
  return delay * (1 - JITTER + 2 * JITTER * random);
}

/** The endpoint answered that it will never accept this event. */
function isRejection({ outcome, status = 0 }: AttemptResult, retried: Endpoint['retryClientErrors']): boolean {
  if (outcome !== 'client_error' || RETRIED_CLIENT_ERRORS.has(status)) return false;
  return retried !== 'all' && !retried.includes(status);
}
