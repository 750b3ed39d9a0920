/** Where an event goes: an endpoint, and how it is sent there. */

/** An endpoint that an event is delivered to. */
export interface Target {
  readonly endpoint: string;
  /** Deliveries with the same key to the same endpoint are sent strictly one after the other, in the order they were appended. */
  readonly orderKey?: string | undefined;
  /** The endpoint is disabled: the delivery is stored as `skipped`, so that it can be retried. */
  readonly isSkipped?: boolean | undefined;
}
