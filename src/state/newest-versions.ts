/** The contract of ordering: the app handles one event of a resource at a time, and none that is older than a handled one. */
import type { Milliseconds } from '../core/clock.ts';

/** An event that the gate wants to forward to the app. */
export interface EnterRequest {
  /** Identifies the resource; bounded; includes the route. */
  readonly key: string;
  /** Digits only. The newer of two versions is the one that sorts later, byte by byte. */
  readonly version: string;
  /** Unique to this attempt. Printable, without spaces. */
  readonly token: string;
  /** How long the resource stays reserved if `leave` is never called. */
  readonly leaseMs: Milliseconds;
}

/** Whether the event may be forwarded now. */
export type EnterResult =
  | { readonly state: 'entered' }
  /** A newer version was already handled. A version that equals the newest is not stale. */
  | { readonly state: 'stale' }
  /** The app is handling another event of the resource, of any version. */
  | { readonly state: 'busy'; readonly remainingMs: Milliseconds };

/** The end of the handling of one event. */
export interface LeaveRequest {
  readonly key: string;
  readonly token: string;
  /** The version that was handled, and how long to remember it; omit it if the event was not handled. */
  readonly handled?: { readonly version: string; readonly retentionMs: Milliseconds };
}

/**
 * Keeps the newest handled version of each resource, and which event the app is handling; replicas share both if they share the store.
 * All methods are atomic, take one round trip, and reject with StoreUnavailable within a bounded time.
 */
export interface NewestVersions {
  /** Reserves the resource for `leaseMs`. If `token` already holds it, the lease is renewed. An expired lease counts as absent. */
  enter(request: EnterRequest): Promise<EnterResult>;
  /**
   * Frees the resource if `token` holds it. Always records the handled version, even if the lease expired or another event holds the
   * resource now, because the app did handle it; the newest version only increases. Returns false if another event holds the
   * resource, or if it was free and nothing was handled.
   */
  leave(request: LeaveRequest): Promise<boolean>;
  /** Closes connections; later calls reject with StoreUnavailable. */
  close(): Promise<void>;
}
