/** How an exchange with the app ended, and what that means for the claim of the event. */
import type { Milliseconds } from '../../core/clock.ts';
import type { Claim } from '../../core/event.ts';
import type { Refusal } from '../../core/refusal.ts';
import type { UpstreamFailure } from '../../http/client/upstream.ts';

/** How an exchange ended. `contentBytes`: the size of the response body as the app sent it. */
export type ForwardOutcome =
  /** The app sent a complete response, whether or not the sender was still there to read it. */
  | {
      readonly kind: 'responded';
      readonly status: number;
      readonly contentBytes?: number;
      /** No connection uses the memory of the request's body any more. */
      readonly isRequestWritten?: boolean;
      /** Not the app responded, but the queue stored the request as the event with this ID. */
      readonly queuedAs?: string;
      readonly upstreamMs: Milliseconds;
    }
  /** Nothing was written to the sender yet: the refusal must still be sent. */
  | { readonly kind: 'failed'; readonly refusal: Refusal; readonly failure: UpstreamFailure; readonly upstreamMs: Milliseconds }
  /**
   * The app failed after the head of its response: the connection to the sender was cut, so that the response does not look
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
   * The sender disconnected or sent too slowly, and the upstream connection was cut, if there was one. `refusal` is for a sender that is
   * still connected.
   */
  | {
      readonly kind: 'aborted';
      readonly status: number;
      readonly contentBytes?: number;
      readonly refusal: Refusal | undefined;
      /** Undefined if the app got nothing. */
      readonly upstreamMs: Milliseconds | undefined;
    };

/**
 * Settles a claim as soon as the head of the app's final response has arrived: the status says whether the app handled the event, and
 * the body may take longer than the lease. A body that breaks off changes nothing.
 */
export function settleByStatus(claim: Claim | undefined, status: number): void {
  claim?.[toStatusSettlement(status)]();
}

function toStatusSettlement(status: number): 'confirm' | 'release' {
  return status >= 200 && status < 300 ? 'confirm' : 'release';
}

/** Maps the outcome to the settlement of the event's claim. */
export function toSettlement(outcome: ForwardOutcome): keyof Claim {
  switch (outcome.kind) {
    case 'responded':
    case 'broken':
      return toStatusSettlement(outcome.status);
    case 'failed':
      // The app may still be handling the event: it is safe to forward it again only after the lease expires.
      return outcome.failure.nothingSent ? 'release' : 'hold';
    case 'upgraded':
    case 'aborted':
      return 'hold';
  }
}
