/** The gates of a route: each checks one thing, never writes to the response and never calls another gate. A throw is a refusal. */
import type { CheckedDestination, User, VerifiedSender } from '../../../core/admitted.ts';
import type { ClaimGrant, VerifiedEvent } from '../../../core/event.ts';
import type { GateDecision, Refusal } from '../../../core/refusal.ts';
import type { Client, ParsedHead } from '../../../core/request.ts';

/** Checks the head alone. Returns a promise only if it must: most gates decide synchronously. */
export interface HeadGate {
  check(head: ParsedHead): GateDecision | Promise<GateDecision>;
}

/** Checks the client certificate and returns the name that the route allows. */
export interface CertificateGate {
  check(head: ParsedHead): string | Refusal;
}

/** The part of a request that its password depends on. */
type PasswordHead = Pick<ParsedHead, 'headers' | 'upgrade'> & { readonly client: Pick<Client, 'address' | 'scheme'> };

/** Checks the password and returns its user. */
export interface PasswordGate {
  check(head: PasswordHead): User | Refusal | Promise<User | Refusal>;
}

/** Checks that the verified body is of the media type that the head names. */
export type BodyCheck = (body: Buffer) => GateDecision;

/** Checks the declared content, and returns the check that the body must pass once it is verified. */
export interface ContentGate {
  check(head: ParsedHead): BodyCheck | Refusal;
}

/** Checks the destination of a forward proxy request and resolves its addresses. */
export interface DestinationGate {
  check(head: ParsedHead): Promise<CheckedDestination | Refusal>;
}

/** Verifies who signed the body of a request. Returns a promise only if it must. */
type EventVerifier = (body: Buffer, sender: VerifiedSender) => VerifiedEvent | Refusal | Promise<VerifiedEvent | Refusal>;

/** Verifies who signed a request: checks the head before the body is read, and returns what verifies the body. */
export interface EventGate {
  /** Maximum size of the content, in bytes. */
  readonly maxBody: number;
  check(head: ParsedHead): EventVerifier | Refusal;
}

/** Checks a verified event; unverified content never gets here. */
export interface VerifiedEventGate {
  check(event: VerifiedEvent, head: ParsedHead): GateDecision;
}

/** Claims a verified event for this request; before the signature is verified, an attacker could use up the ids of valid deliveries. */
export interface ClaimGate {
  claim(event: VerifiedEvent, head: ParsedHead): ClaimGrant | Refusal | Promise<ClaimGrant | Refusal>;
}

/** The gates for webhook deliveries. */
export interface WebhookGates {
  readonly event: EventGate;
  readonly verified: readonly VerifiedEventGate[];
  /** Each runs only if the one before it granted the event. */
  readonly claims: readonly ClaimGate[];
}

/** The gates of a route, in this order: cheap and header-only first. */
export interface RouteGates {
  readonly certificate?: CertificateGate | undefined;
  readonly handshake?: HeadGate | undefined;
  readonly content?: ContentGate | undefined;
  readonly password?: PasswordGate | undefined;
  /** Runs only for authenticated users. */
  readonly destination?: DestinationGate | undefined;
  readonly webhook?: WebhookGates | undefined;
}
