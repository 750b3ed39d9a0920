/** How an exchange with the app ended, and what that means for the event. */
import type { Milliseconds } from '../../core/clock.ts';
import type { Refusal } from '../../core/refusal.ts';
import type { UpstreamFailure } from './upstream.ts';

/** How it ended; `contentBytes`: of the app's answer, as they came. */
export type ForwardOutcome =
  /** The app's whole answer came; whether the sender was still there to take it does not matter. */
  | { readonly kind: 'responded'; readonly status: number; readonly contentBytes?: number; readonly upstreamMs: Milliseconds }
  /** Nothing was written to the sender yet: the refusal is still to be answered. */
  | { readonly kind: 'failed'; readonly refusal: Refusal; readonly failure: UpstreamFailure; readonly upstreamMs: Milliseconds }
  /** The app died within its answer: the sender's connection was cut, so that it cannot mistake the part for the whole. */
  | {
      readonly kind: 'broken';
      readonly status: number;
      readonly contentBytes?: number;
      readonly failure: UpstreamFailure;
      readonly upstreamMs: Milliseconds;
    }
  /** Both speak another protocol from now on, until `closed`. */
  | { readonly kind: 'upgraded'; readonly status: number; readonly closed: Promise<void>; readonly upstreamMs: Milliseconds }
  /** The sender left or sent too slowly, and the app was told by a cut connection; the refusal is for a sender that is still there. */
  | {
      readonly kind: 'aborted';
      readonly status: number;
      readonly contentBytes?: number;
      readonly refusal: Refusal | undefined;
      readonly upstreamMs: Milliseconds;
    };

/** What the outcome means for the event's claim. */
export function toSettlement(outcome: ForwardOutcome): 'confirm' | 'release' | 'hold' {
  switch (outcome.kind) {
    case 'responded':
      return outcome.status >= 200 && outcome.status < 300 ? 'confirm' : 'release';
    case 'failed':
      // The app may be at work on it still: only the lease's end makes it safe to hand the event out again.
      return outcome.failure.nothingSent ? 'release' : 'hold';
    case 'broken':
    case 'upgraded':
    case 'aborted':
      return 'hold';
  }
}
