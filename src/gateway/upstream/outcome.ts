/** How an exchange with the app ended, and what that means for the claim of the event. */
import type { Milliseconds } from '../../core/clock.ts';
import type { Refusal } from '../../core/refusal.ts';
import type { UpstreamFailure } from './upstream.ts';

/** How an exchange ended. `contentBytes`: the size of the response body as the app sent it. */
export type ForwardOutcome =
  /** The app sent a complete response, whether or not the sender was still there to read it. */
  | {
      readonly kind: 'responded';
      readonly status: number;
      readonly contentBytes?: number;
      /** No connection uses the memory of the request's body any more. */
      readonly isRequestWritten?: boolean;
      readonly upstreamMs: Milliseconds;
    }
  /** Nothing was written to the sender yet: the refusal must still be sent. */
  | { readonly kind: 'failed'; readonly refusal: Refusal; readonly failure: UpstreamFailure; readonly upstreamMs: Milliseconds }
  /**
   * The app failed in the middle of its response: the connection to the sender was cut, so that the response does not look
   * complete.
   */
  | {
      readonly kind: 'broken';
      readonly status: number;
      readonly contentBytes?: number;
      readonly failure: UpstreamFailure;
      readonly upstreamMs: Milliseconds;
    }
  /** The connection was upgraded to another protocol, which ends with `closed`. */
  | { readonly kind: 'upgraded'; readonly status: number; readonly closed: Promise<void>; readonly upstreamMs: Milliseconds }
  /**
   * The sender disconnected or sent too slowly, and the upstream connection was cut. `refusal` is for a sender that is still
   * connected.
   */
  | {
      readonly kind: 'aborted';
      readonly status: number;
      readonly contentBytes?: number;
      readonly refusal: Refusal | undefined;
      readonly upstreamMs: Milliseconds;
    };

/** Maps the outcome to the settlement of the event's claim. */
export function toSettlement(outcome: ForwardOutcome): 'confirm' | 'release' | 'hold' {
  switch (outcome.kind) {
    case 'responded':
      return outcome.status >= 200 && outcome.status < 300 ? 'confirm' : 'release';
    case 'failed':
      // The app may still be handling the event: it is safe to forward it again only after the lease expires.
      return outcome.failure.nothingSent ? 'release' : 'hold';
    case 'broken':
    case 'upgraded':
    case 'aborted':
      return 'hold';
  }
}
