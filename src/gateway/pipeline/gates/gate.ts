/** The gates of a route: each answers one question, never writes to the response and never calls another gate. A throw is a refusal. */
import type { CheckedDestination, Sender, User } from '../../../core/admitted.ts';
import type { ClaimGrant, VerifiedEvent } from '../../../core/event.ts';
import type { ParsedHead } from '../../../core/parsed-head.ts';
import type { Refusal } from '../../../core/refusal.ts';
import type { Verdict } from '../../../core/verdict.ts';

/** Asked about the head alone. A promise only where the answer needs one: most gates answer at once. */
export interface HeadGate {
  check(head: ParsedHead): Verdict | Promise<Verdict>;
}

/** Names the client certificate that the route allows. */
export interface CertificateGate {
  check(head: ParsedHead): string | Refusal;
}

/** Says who proved by a password who they are. */
export interface PasswordGate {
  check(head: ParsedHead): User | Refusal | Promise<User | Refusal>;
}

/** Is the verified body of the media type that the head names? */
export type BodyCheck = (body: Buffer) => Verdict;

/** Judges the declared content, and gives the check that its body has to pass once it is verified. */
export interface ContentGate {
  check(head: ParsedHead): BodyCheck | Refusal;
}

/** Finds the addresses of where a client of the forward proxy wants to go. */
export interface DestinationGate {
  check(head: ParsedHead): Promise<CheckedDestination | Refusal>;
}

/** Reads the body and proves who signed it. */
export interface EventGate {
  verify(head: ParsedHead, sender: Sender): Promise<VerifiedEvent | Refusal>;
}

/** Asked about a verified event; nobody else's content gets here. */
export interface VerifiedEventGate {
  check(event: VerifiedEvent, head: ParsedHead): Verdict;
}

/** Claims a verified event for this request; before the signature holds, an attacker could use up the ids of valid deliveries. */
export interface ClaimGate {
  claim(event: VerifiedEvent, head: ParsedHead): ClaimGrant | Refusal | Promise<ClaimGrant | Refusal>;
}

/** What a route asks of a webhook delivery. */
export interface WebhookGates {
  readonly event: EventGate;
  readonly verified: readonly VerifiedEventGate[];
  /** Each sees the event after the one before it granted it. */
  readonly claims: readonly ClaimGate[];
}

/** What a route asks, in this order: cheap and header-only first. */
export interface RouteGates {
  readonly certificate?: CertificateGate | undefined;
  readonly handshake?: HeadGate | undefined;
  readonly content?: ContentGate | undefined;
  readonly password?: PasswordGate | undefined;
  /** Asked of users only. */
  readonly destination?: DestinationGate | undefined;
  readonly webhook?: WebhookGates | undefined;
}
