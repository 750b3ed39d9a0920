/** The behavior of a sender, for senders.ts and the profiles of the presets. */

/** Documented behavior of one sender. Properties that its documentation omits are undefined, and treated as in Standard Webhooks. */
export interface SenderProfile {
  /** Statuses that count as delivered. Default: any 2xx. */
  readonly acknowledgedBy?: readonly number[];
  /** The text of a response without which the sender does not count a delivery as delivered. */
  readonly acknowledgement?: string;
  /** Which failures are retried (429 counts as a server error). Default: everything that was not delivered. */
  readonly retries?: 'failures' | 'server-errors' | 'nothing';
  /** Statuses that are never retried, regardless of `retries`. */
  readonly givesUpOn?: readonly number[];
  /** Statuses that disable the endpoint. */
  readonly disabledBy?: readonly number[];
  /** How long the sender waits for the response, in seconds. */
  readonly waitsSeconds?: number;
  /** Retry schedule, in words. */
  readonly schedule?: string;
}
