/** An event on its way: what its headers say, what its signature proved, and the claim that keeps it from being handled twice. */
import type { EpochMilliseconds } from './clock.ts';

/** One signature of the header's list, decoded. */
export interface ParsedSignature {
  readonly algorithm: string;
  readonly bytes: Buffer;
}

/** What the signature headers say, before anything is verified. */
export interface SignedHead {
  /** The delivery's id; undefined where no header has one. */
  readonly id: string | undefined;
  /** The timestamp's own text, which is what was signed; undefined where no header has one. */
  readonly timestampText: string | undefined;
  readonly timestamp: EpochMilliseconds | undefined;
  /** What the sender calls this kind of event, in headers that it does not sign; spellings that mean the same are one. */
  readonly kind?: string;
  /** The signatures to check, already decoded and counted. */
  readonly signatures: readonly ParsedSignature[];
}

/** Which event a verified delivery is. */
export interface EventIdentity {
  /** Shown to operators, and what `forget` takes; undefined where the sender gives none and signs nothing. */
  readonly id: string | undefined;
  /** Of all that was signed, where the signature does not cover the id: whoever holds one delivery could give it another. */
  readonly digest?: string;
  /** Of what was signed alone, where `digest` covers an unsigned kind of event as well. */
  readonly contentDigest?: string;
  /** Undefined where the sender signs none. */
  readonly timestamp: EpochMilliseconds | undefined;
}

/** What stands for an id where the sender gives none. */
export function toDigestId(digest: string): string {
  return `sha256-${digest}`;
}

/** An event whose signature was verified. */
export interface VerifiedEvent extends EventIdentity {
  /** The configured name of the key that matched. */
  readonly keyName: string;
  /** The raw bytes that were signed. */
  readonly body: Buffer;
}

/** The right to hand one event to the app, held until it is settled exactly once. */
export interface Claim {
  /** Handled: remember the id for the retention. Never rejects; a store that is down is retried behind the scenes. */
  confirm(): void;
  /** Not handled: the sender's retry must get through. Never rejects, like confirm. */
  release(): void;
  /** Outcome unknown: let the lease run out, so that a retry never overlaps a slow handler. */
  hold(): void;
}

/** What the gates that ask the store allow an event. */
export interface ClaimGrant {
  /** Undefined where nothing is to be remembered of the event. */
  readonly claim: Claim | undefined;
  /** A newer event of the same resource was handled already; the route has this one forwarded all the same. */
  readonly isStale: boolean;
  /** The store is down and the route forwards all the same: the event may be a repeat, or older than one that was handled. */
  readonly isUnchecked: boolean;
}

/** A verified event that no other request is handing to the app. */
export interface ClaimedEvent extends ClaimGrant {
  readonly event: VerifiedEvent;
}
