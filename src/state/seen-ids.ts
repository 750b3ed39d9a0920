/** The contract of dedup: of all concurrent claims of an ID, exactly one succeeds. */
import type { Milliseconds } from '../core/clock.ts';

/** The result of a claim. `fingerprint`: the one that the ID is claimed or was confirmed with. `remainingMs`: of the lease or the retention. */
export type ClaimResult =
  | { readonly state: 'new' }
  | { readonly state: 'in-progress'; readonly remainingMs: Milliseconds; readonly fingerprint: string }
  | { readonly state: 'handled'; readonly remainingMs: Milliseconds; readonly fingerprint: string };

/** One attempt to claim an ID. */
export interface ClaimRequest {
  /** Bounded and printable; includes the route. */
  readonly key: string;
  /** Unique to this attempt: it fences later confirms and releases. Printable, without spaces. */
  readonly token: string;
  /** A short digest of the body (printable, without spaces), which distinguishes a retry from a reused ID. */
  readonly fingerprint: string;
  /** How long the claim holds if nobody settles it. */
  readonly leaseMs: Milliseconds;
}

/** The state that `forget` removed; `fingerprint` is the one that the ID was claimed or confirmed with. */
export type Forgotten =
  | { readonly was: 'absent'; readonly fingerprint?: never }
  | { readonly was: 'in-progress' | 'handled'; readonly fingerprint: string };

/** Why a store could not respond; the error's cause is for the log. */
export type StoreFailure = 'unreachable' | 'timeout' | 'full' | 'error';

/** The store cannot fulfil its contract right now. Every method of SeenIds rejects with this error and no other. */
export class StoreUnavailable extends Error {
  readonly failure: StoreFailure;

  constructor(failure: StoreFailure, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'StoreUnavailable';
    this.failure = failure;
  }
}

/** Returns a StoreUnavailable, and rethrows anything else, which is a bug. */
export function toStoreUnavailable(thrown: unknown): StoreUnavailable {
  if (thrown instanceof StoreUnavailable) return thrown;
  throw thrown;
}

/**
 * Remembers IDs; replicas share them if they share the store. All methods are atomic, take one round trip, and reject with
 * StoreUnavailable within a bounded time.
 */
export interface SeenIds {
  /** Claims the key for `leaseMs` unless it is claimed or handled. An expired claim counts as absent. */
  claim(request: ClaimRequest): Promise<ClaimResult>;
  /**
   * Records the ID as handled for `retentionMs` if `token` holds the claim, or if the claim expired and nobody else took it.
   * Returns false and changes nothing if another token holds the claim or the ID is already handled.
   */
  confirm(key: string, token: string, fingerprint: string, retentionMs: Milliseconds): Promise<boolean>;
  /** Removes the claim if `token` holds it, so that the next claim is new. Otherwise returns false and changes nothing. */
  release(key: string, token: string): Promise<boolean>;
  /**
   * Removes the key in any state, so that the next claim is new, and returns what was there. This includes a claim in progress:
   * another delivery can then claim the ID while the first is still being handled. If none does, the first one's confirm records
   * the ID as handled. For operators, who forget an ID so that its event is handled again.
   */
  forget(key: string): Promise<Forgotten>;
  /** False while the store is known to be down; for a gauge, never for a decision. */
  isUp(): boolean;
  /** Closes connections; later calls reject with StoreUnavailable. */
  close(): Promise<void>;
}
