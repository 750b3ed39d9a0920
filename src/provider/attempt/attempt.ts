/** One attempt to send a delivery: its interface, its outcomes, and when the receiver wants the next one. */
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import type { RawHeaders } from '../../core/headers.ts';
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
