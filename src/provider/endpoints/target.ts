/** Where an event goes: an endpoint, and how it is sent there. */
import { hash } from 'node:crypto';

/** An endpoint that an event is delivered to. */
export interface Target {
  readonly endpoint: string;
  /** Deliveries with the same key to the same endpoint are sent strictly one after the other, in the order they were appended. */
  readonly orderKey?: string | undefined;
  /** The endpoint is disabled: the delivery is stored as `skipped`, so that it can be retried. */
  readonly isSkipped?: boolean | undefined;
}

/**
 * The order key of a value of an event. A digest, because keys remain after the payload was erased, and the store cannot hold all text (U+0000 in
 * PostgreSQL). With the endpoint, so that values cannot be compared between endpoints.
 */
export function toOrderKey(endpoint: string, value: string | number | boolean): string {
  return hash('sha256', `${endpoint}\n${value}`, 'base64url').slice(0, 22);
}
