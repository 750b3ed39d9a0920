/** Newest versions of one process: bounded, and never forgetting one before its time. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { ExpiringMap } from '../expiring-map.ts';
import type { EnterRequest, EnterResult, LeaveRequest, NewestVersions } from './newest-versions.ts';

/** Bounds of the store. */
export interface MemoryVersionsOptions {
  /** Most resources at once. */
  readonly maxResources: number;
}

interface Newest {
  readonly version: string;
  /** Monotonic, like all times here. */
  readonly until: Milliseconds;
}

interface Holder {
  readonly token: string;
  readonly until: Milliseconds;
}

interface Place {
  readonly newest: Newest | undefined;
  readonly holder: Holder | undefined;
  readonly expiresAt: Milliseconds;
}

/** Builds the store. */
export function createMemoryNewestVersions(clock: Clock, options: MemoryVersionsOptions): NewestVersions {
  return new MemoryNewestVersions(clock, options.maxResources);
}

class MemoryNewestVersions implements NewestVersions {
  readonly #clock: Clock;
  readonly #places: ExpiringMap<Place>;

  constructor(clock: Clock, maxResources: number) {
    this.#clock = clock;
    this.#places = new ExpiringMap(clock, { most: maxResources, what: 'resources' });
  }

  async enter({ key, version, token, leaseMs }: EnterRequest): Promise<EnterResult> {
    const now = this.#clock.monotonic();
    const { newest, holder } = this.#read(key, now);
    if (newest !== undefined && version < newest.version) return { state: 'stale' };
    if (holder !== undefined && holder.token !== token) return { state: 'busy', remainingMs: holder.until - now };
    this.#write(key, newest, { token, until: now + leaseMs });
    return { state: 'entered' };
  }

  async leave({ key, token, handled }: LeaveRequest): Promise<boolean> {
    const now = this.#clock.monotonic();
    const { newest, holder } = this.#read(key, now);
    const isMine = holder?.token === token;
    if (!isMine && handled === undefined) return false;
    const raised = handled === undefined ? newest : raise(newest, { version: handled.version, until: now + handled.retentionMs });
    this.#write(key, raised, isMine ? undefined : holder);
    return isMine || holder === undefined;
  }

  async close(): Promise<void> {
    this.#places.close();
  }

  /** What is there now: each half has a time of its own. */
  #read(key: string, now: Milliseconds): Pick<Place, 'newest' | 'holder'> {
    const place = this.#places.get(key);
    return { newest: toLive(place?.newest, now), holder: toLive(place?.holder, now) };
  }

  #write(key: string, newest: Newest | undefined, holder: Holder | undefined): void {
    if (newest === undefined && holder === undefined) this.#places.delete(key);
    else this.#places.put(key, { newest, holder, expiresAt: Math.max(newest?.until ?? 0, holder?.until ?? 0) });
  }
}

function toLive<Half extends { readonly until: Milliseconds }>(half: Half | undefined, now: Milliseconds): Half | undefined {
  return half !== undefined && now < half.until ? half : undefined;
}

function raise(newest: Newest | undefined, handled: Newest): Newest {
  if (newest === undefined || handled.version > newest.version) return handled;
  return handled.version < newest.version || handled.until < newest.until ? newest : handled;
}
