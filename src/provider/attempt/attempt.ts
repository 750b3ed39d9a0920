/** One attempt to send a delivery: its interface, its outcomes, and what follows it (Standard Webhooks, "Deliverability and reliability"). */
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import type { RawHeaders } from '../../core/head.ts';
import { FAILURE_KINDS } from '../../http/dial/dial.ts';
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
  ...FAILURE_KINDS,
] as const;
export type AttemptOutcome = (typeof ATTEMPT_OUTCOMES)[number];

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

export interface Sender {
  /**
   * Signs with the current time and sends; never rejects. Aborting ends it with `aborted`. Nothing uses the body afterwards. Connections are kept for as long as `endpoint`
   * is the same object, as the registry returns it until the endpoint changes.
   */
  send(delivery: Delivery, endpoint: Endpoint, signal: AbortSignal): Promise<AttemptResult>;
  /** Whether something listens at the endpoint; absent, or undefined: unknown without an attempt. Never rejects. */
  isReachable?(endpoint: Endpoint): Promise<boolean> | undefined;
}

const GONE = 410;
const TOO_MANY_REQUESTS = 429;
const MAX_RETRY_AFTER_MS: Milliseconds = 86_400_000;
const SECONDS = /^[0-9]{1,15}$/;
/** IMF-fixdate (RFC 9110 §5.6.7), the only form that senders may generate. */
const HTTP_DATE = /^[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT$/;

/** The outcome of a final status. Redirects are failures: following them would bypass the checks of the address. */
export function toOutcome(status: number): AttemptOutcome {
  if (status < 300) return 'delivered';
  if (status < 400) return 'redirect';
  if (status === GONE) return 'gone';
  if (status === TOO_MANY_REQUESTS) return 'throttled';
  return status < 500 ? 'client_error' : 'server_error';
}

/** The delay that `Retry-After` asks for, at most 24 h; undefined if it is absent or malformed. The first of several counts. */
export function findRetryAfter(headers: RawHeaders, now: EpochMilliseconds): Milliseconds | undefined {
  for (let i = 0; i < headers.length; i += 2)
    if (headers[i]?.length === 11 && headers[i]?.toLowerCase() === 'retry-after') return toDelay(headers[i + 1] as string, now);
  return undefined;
}

function toDelay(value: string, now: EpochMilliseconds): Milliseconds | undefined {
  const delay = SECONDS.test(value) ? Number(value) * 1_000 : HTTP_DATE.test(value) ? Date.parse(value) - now : Number.NaN;
  return Number.isNaN(delay) ? undefined : Math.min(MAX_RETRY_AFTER_MS, Math.max(0, delay));
}

export type Decision =
  | { readonly kind: 'delivered' }
  | { readonly kind: 'retry'; readonly due: EpochMilliseconds; readonly isAsked?: boolean | undefined }
  /** No attempt follows. `gone`: the endpoint was disabled as well. */
  | { readonly kind: 'dead'; readonly reason: 'exhausted' | 'rejected' | 'gone' };
export type DeadReason = Extract<Decision, { kind: 'dead' }>['reason'];

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
