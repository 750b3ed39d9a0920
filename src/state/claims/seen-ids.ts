/** The promise that dedup stands on: of all who claim an id at once, one gets it. */
import type { Milliseconds } from '../../core/clock.ts';

/** What a claim found. `sameContent` is false where the id was seen with another fingerprint. */
export type ClaimResult =
  | { readonly state: 'new' }
  | { readonly state: 'in-progress'; readonly remainingMs: Milliseconds; readonly sameContent: boolean }
  | { readonly state: 'handled'; readonly sameContent: boolean };

/** One attempt to claim an id. */
export interface ClaimRequest {
  /** Bounded, printable; carries the route. */
  readonly key: string;
  /** Unique to this attempt: it fences later confirms and releases. Printable, without spaces. */
  readonly token: string;
  /** A short digest of the content (printable, without spaces): tells a retry from a reused id. */
  readonly fingerprint: string;
  /** How long the claim holds if nobody settles it. */
  readonly leaseMs: Milliseconds;
}

/** What `forget` found, and cleared; `fingerprint` is the one it was claimed or confirmed with. */
export type Forgotten =
  | { readonly was: 'absent'; readonly fingerprint?: never }
  | { readonly was: 'in-progress' | 'handled'; readonly fingerprint: string };

/** Why a store could not answer; the cause is for the log. */
export type StoreFailure = 'unreachable' | 'timeout' | 'full' | 'error';

/** A store that cannot keep its promise right now. Every SeenIds method rejects with this and nothing else. */
export class StoreUnavailable extends Error {
  readonly failure: StoreFailure;

  constructor(failure: StoreFailure, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'StoreUnavailable';
    this.failure = failure;
  }
}

/** Gives the failure back; anything else is a bug, and is thrown on to be refused as one. */
export function toStoreUnavailable(thrown: unknown): StoreUnavailable {
  if (thrown instanceof StoreUnavailable) return thrown;
  throw thrown;
}

/**
 * Ids seen, shared by all replicas where the store is. All methods are atomic, take one round trip, and reject with
 * StoreUnavailable within a bounded time.
 */
export interface SeenIds {
  /** Claims the key for `leaseMs` unless it is claimed or handled. A lapsed lease counts as absent. */
  claim(request: ClaimRequest): Promise<ClaimResult>;
  /**
   * Records the id as handled for `retentionMs`, if `token` holds the claim, or the claim lapsed and nobody took it.
   * False: the claim passed to someone else (or is handled already), and nothing changed.
   */
  confirm(key: string, token: string, fingerprint: string, retentionMs: Milliseconds): Promise<boolean>;
  /** Forgets the claim if `token` holds it, so that the next claim is new. False: it does not, and nothing changed. */
  release(key: string, token: string): Promise<boolean>;
  /**
   * Clears the key whatever its state, so that the next claim is new, and says what was there. A claim in progress is cleared, too:
   * another may then claim the id while the first one is still at work; where nobody does, its confirm finds nobody and records
   * the id as handled. For operators: who forgets an id asks for its event to be handled again.
   */
  forget(key: string): Promise<Forgotten>;
  /** False while the store is known to be down; for a gauge, never for a decision. */
  isUp(): boolean;
  /** Closes connections; later calls reject with StoreUnavailable. */
  close(): Promise<void>;
}
