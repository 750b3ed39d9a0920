/** The promise that ordering stands on: of a resource's events one is with the app at a time, and none that is older than a handled one. */
import type { Milliseconds } from '../../core/clock.ts';

/** One event that wants to the app. */
export interface EnterRequest {
  /** Names the resource: bounded; carries the route. */
  readonly key: string;
  /** Digits only; of two versions the newer is the one that sorts behind the other, byte by byte. */
  readonly version: string;
  /** Unique to this attempt. Printable, without spaces. */
  readonly token: string;
  /** How long the place is kept if nobody leaves it. */
  readonly leaseMs: Milliseconds;
}

/** What an event is told. */
export type EnterResult =
  | { readonly state: 'entered' }
  /** A newer version was handled; one that equals the newest is not stale. */
  | { readonly state: 'stale' }
  /** Another event of the resource is with the app now, whatever its version. */
  | { readonly state: 'busy'; readonly remainingMs: Milliseconds };

/** The end of one event's time with the app. */
export interface LeaveRequest {
  readonly key: string;
  readonly token: string;
  /** What was handled, and how long it is remembered from now on; left out: nothing was. */
  readonly handled?: { readonly version: string; readonly retentionMs: Milliseconds };
}

/**
 * The newest version handled of each resource, and who is with the app now; shared by all replicas where the store is. All methods
 * are atomic, take one round trip, and reject with StoreUnavailable within a bounded time.
 */
export interface NewestVersions {
  /** Takes the resource's place for `leaseMs`. Asked again by the token that has it, the lease begins anew. A lapsed lease counts as absent. */
  enter(request: EnterRequest): Promise<EnterResult>;
  /**
   * Frees the place if `token` holds it, and records what was handled in any case: the newest version is raised, never lowered, even
   * where the lease lapsed or the place passed to another, as it tells of what the app has done. False: the place is another's
   * and stays so, or it was free and nothing was handled.
   */
  leave(request: LeaveRequest): Promise<boolean>;
  /** Closes connections; later calls reject with StoreUnavailable. */
  close(): Promise<void>;
}
