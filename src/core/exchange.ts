/** One request on its way through: what came in, and what the gates have established about it. */
import type { EpochMilliseconds, Milliseconds } from './clock.ts';
import type { HeaderFields } from './headers.ts';
import type { Refusal } from './refusal.ts';
import type { RequestTarget } from './target.ts';

/** Who sent the request, after the trusted proxies were taken into account. */
export interface Client {
  /** The address that limits and logs go by. */
  readonly address: string;
  /** The socket's other end. */
  readonly peer: string;
  /** The peer is a trusted proxy: its X-Forwarded-* may be believed. */
  readonly viaTrustedProxy: boolean;
  /** How the client came, as far as it can be believed. */
  readonly scheme: 'http' | 'https';
}

/** The request's content, read at most once, bounded. */
export interface RequestBody {
  /** The declared Content-Length in bytes; undefined for chunked; 0 where there is no content. */
  readonly declaredLength: number | undefined;
  /** Reads all of it, up to `maxBytes`; a refusal where it is too large, too slow or broken off. A second call gives the first's result. */
  read(maxBytes: number): Promise<Buffer | Refusal>;
}

/** A delivery whose signature held. */
export interface VerifiedDelivery {
  /** The verified id, the only one that dedup may go by. */
  readonly id: string;
  readonly timestampMs: EpochMilliseconds;
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

/** What gates established; each field is written by one gate only, and read after it. */
export interface Facts {
  delivery?: VerifiedDelivery;
  claim?: Claim;
  /** The store was down and the route said `onStoreError: forward`. */
  dedupBypassed?: boolean;
}

/** One request as gates see it. */
export interface Exchange {
  readonly requestId: string;
  readonly method: string;
  readonly target: RequestTarget;
  readonly headers: HeaderFields;
  readonly client: Client;
  readonly body: RequestBody;
  readonly receivedAt: EpochMilliseconds;
  readonly startedAt: Milliseconds;
  readonly facts: Facts;
}
