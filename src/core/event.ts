/** The stages of an event: what its headers say, what its signature proves, and the claim that prevents handling it twice. */
import type { EpochMilliseconds, Milliseconds } from './clock.ts';

/** One decoded signature from the header. */
export interface ParsedSignature {
  readonly algorithm: string;
  readonly bytes: Buffer;
}

/** A JSON Web Token whose claims are not decoded yet; nothing in it is verified. */
export interface SealedToken {
  readonly text: string;
  /** Its header, with one of the algorithms that the scheme accepts. */
  readonly header: Readonly<Record<string, unknown>>;
  /** Decoded. */
  readonly signature: Buffer;
}

/** A token with its claims. */
export interface DecodedToken extends SealedToken {
  readonly claims: Readonly<Record<string, unknown>>;
}

/** The content of the signature headers, before anything is verified. */
export interface SignedHead {
  /** The ID of the delivery; undefined if no header carries one. */
  readonly id: string | undefined;
  /** The timestamp as received, because that text is what was signed; undefined if no header carries one. */
  readonly timestampText: string | undefined;
  readonly timestamp: EpochMilliseconds | undefined;
  /** The event type from headers that the sender does not sign, normalized. */
  readonly kind?: string;
  /** The values of the signed fields, in the order in which they are signed; undefined for those that are still in the body. */
  readonly fields?: readonly (string | undefined)[];
  /** The decoded signatures to check, limited in number. */
  readonly signatures: readonly ParsedSignature[];
  /** If the signature is a token in a header. */
  readonly token?: DecodedToken;
}

/** Which event a verified delivery carries. */
export interface EventIdentity {
  /** The ID that operators see and `forget` takes; undefined if the sender gives none and signs nothing. */
  readonly id: string | undefined;
  /**
   * The digest of everything that was signed, if the signature does not cover the ID: anyone who holds a delivery could replay it
   * under another ID.
   */
  readonly digest?: string;
  /** The digest of the signed content alone, if `digest` also covers an unsigned event type. */
  readonly contentDigest?: string;
  /**
   * The part of the body that the signature does not cover, so that it can differ under the same signature; undefined if there is none. It is
   * the same in each retry. Two bodies that an app could read differently have different ones, or different signed values.
   */
  readonly openContent?: Buffer;
  /**
   * All of the body and of the signed fields that is the same in each retry, if the digest is not the same because of a new time, nonce or
   * boundary. Two deliveries under one unsigned ID are the same event if it is equal.
   */
  readonly lastingContent?: Buffer;
  /** Undefined if the sender signs none. */
  readonly timestamp: EpochMilliseconds | undefined;
}

/** The substitute for an ID, for senders that give none. */
export function toDigestId(digest: string): string {
  return `sha256-${digest}`;
}

/** An event whose signature was verified. */
export interface VerifiedEvent extends EventIdentity {
  /** The event type from unsigned headers, normalized; undefined if the scheme has none. */
  readonly kind?: string | undefined;
  /** The configured name of the key that matched. */
  readonly keyName: string;
  /** The raw bytes that were signed. */
  readonly body: Buffer;
  /** The request target without signed values and the signature, with the headers to compare and those of the kind; undefined if the target is enough. */
  readonly openHead?: string;
}

/** The exclusive right to forward an event to the app. It is settled exactly once. */
export interface Claim {
  /**
   * The app handled the event: remember its ID for the retention. Never throws; if the store is down, this is retried in the
   * background.
   */
  confirm(): void;
  /** The app did not handle the event: let the sender's retry pass. Never throws, like `confirm`. */
  release(): void;
  /** The outcome is unknown: let the lease expire, so that a retry never overlaps a slow handler. */
  hold(): void;
}

/** How long a lease must last after the app has timed out: timeouts are noticed up to this much late. */
export const LEASE_MARGIN_MS: Milliseconds = 100;

/** The result of the gates that use the store. */
export interface ClaimGrant {
  /** Undefined if nothing about the event must be remembered. */
  readonly claim: Claim | undefined;
  /** A newer event of the same resource was already handled, but the route forwards stale events. */
  readonly isStale: boolean;
  /** The store is down and the route forwards anyway: the event may be a duplicate, or older than one that was handled. */
  readonly isUnchecked: boolean;
  /** Monotonic time at which the claim's lease ends: from then on, another request can have the claim. Infinity without a claim. */
  readonly expiresAt: Milliseconds;
}

/** A verified event that no other request is forwarding. */
export interface ClaimedEvent extends ClaimGrant {
  readonly event: VerifiedEvent;
}
