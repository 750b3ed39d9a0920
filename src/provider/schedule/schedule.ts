/** Decides what follows an attempt: a pure function (facts: Standard Webhooks, "Deliverability and reliability"). */
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { AttemptResult } from '../attempt/attempt.ts';
import type { Endpoint } from '../endpoints/endpoint.ts';

/** The decision after an attempt. */
export type Decision =
  | { readonly kind: 'delivered' }
  | { readonly kind: 'retry'; readonly due: EpochMilliseconds }
  | { readonly kind: 'dead'; readonly reason: 'exhausted' | 'rejected' | 'gone' };

/** Decides. `random`: 0 to 1, for the jitter. */
export type Decide = (input: {
  readonly result: AttemptResult;
  /** `Delivery.tries` before this attempt. */
  readonly tries: number;
  readonly endpoint: Pick<Endpoint, 'schedule' | 'retryClientErrors'>;
  readonly now: EpochMilliseconds;
  readonly random: number;
}) => Decision;
