/**
 * The proof that a request passed every gate of its route. Only gateway/pipeline/guarded-request.ts may import
 * `admit` (a lint rule enforces it).
 */

import type { ClaimedEvent } from './event.ts';
import type { Refusal } from './refusal.ts';
import type { BodyStream, ParsedHead } from './request.ts';

declare const proof: unique symbol;

/** The login that authorized a request. A stream or a tunnel may last longer than it. */
interface Login {
  /**
   * Calls `end` once when the user or the password is removed, or immediately if it already was. Returns a function that stops
   * watching.
   */
  onRevoked(end: () => void): () => void;
  /** Whether the user still has the password. */
  isLive(): boolean;
}

/** A user whose password was verified. */
export interface User {
  readonly name: string;
  readonly login?: Login;
}

/** A destination that the forward proxy may connect to: the rule that allows it, and its checked addresses. */
export interface CheckedDestination {
  readonly rule: string;
  readonly addresses: readonly string[];
}

/** The sender of a request, as far as the gates know it before the body is read. */
export interface VerifiedSender {
  readonly user: User | undefined;
  /** The name of the client certificate that the route accepts. */
  readonly certificateName: string | undefined;
}

/** A request that passed all gates; nothing else can be forwarded. */
export interface Admitted {
  readonly [proof]: true;
  readonly head: ParsedHead;
  /** The route's configured name. */
  readonly route: string;
  readonly sender: VerifiedSender;
  /** Undefined if the route verifies no signature. */
  readonly claimed: ClaimedEvent | undefined;
  /** Set only by the forward proxy. */
  readonly destination: CheckedDestination | undefined;
  /** The refusal that a route in observe mode did not enforce. */
  readonly observed: Refusal | undefined;
  /** The body to forward: the exact bytes that were verified, or a stream if no gate reads it. */
  readonly body: Buffer | BodyStream;
}

/** Creates the proof. */
export function admit(admitted: Omit<Admitted, typeof proof>): Admitted {
  return admitted as Admitted;
}
