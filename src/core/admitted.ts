/** The proof that a request passed every gate of its route. Only gateway/pipeline/run-gates.ts may import `admit` (a lint rule holds it). */
import type { BodyStream } from './body.ts';
import type { ClaimedEvent } from './event.ts';
import type { ParsedHead } from './parsed-head.ts';
import type { Refusal } from './refusal.ts';

declare const proof: unique symbol;

/** The password that let a request in, for connections that outlive the request. */
export interface Login {
  /** Calls `end` once, when the user or the password is removed; now, if that has happened. The result stops watching. */
  onRevoked(end: () => void): () => void;
}

/** Who proved by a password who they are. */
export interface User {
  readonly name: string;
  /** Only where the client asks for another protocol or a tunnel. */
  readonly login?: Login;
}

/** How a destination of the forward proxy is reached: addresses that were checked, by a rule of its list. */
export interface CheckedDestination {
  readonly rule: string;
  readonly addresses: readonly string[];
}

/** Who sent a request, as far as gates know before its content is read. */
export interface Sender {
  readonly user: User | undefined;
  /** The name of the client certificate that the route lets in. */
  readonly certificateName: string | undefined;
}

/** A request that passed; nothing else can be forwarded. */
export interface Admitted {
  readonly [proof]: true;
  readonly head: ParsedHead;
  /** The route's configured name. */
  readonly route: string;
  readonly sender: Sender;
  /** Undefined where the route verifies no signature. */
  readonly claimed: ClaimedEvent | undefined;
  /** Of the forward proxy only. */
  readonly destination: CheckedDestination | undefined;
  /** Why the request would have been refused, had its route not been told to observe only. */
  readonly observed: Refusal | undefined;
  /** The content to forward: the very bytes that were verified, or a stream where no gate looks at it. */
  readonly body: Buffer | BodyStream;
}

/** Creates the proof. */
export function admit(admitted: Omit<Admitted, typeof proof>): Admitted {
  return admitted as Admitted;
}
