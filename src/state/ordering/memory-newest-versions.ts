/** The NewestVersions of one process: bounded, and no version is forgotten before its expiry. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { ExpiringMap } from '../expiring-map.ts';
import type { EnterRequest, EnterResult, LeaveRequest, NewestVersions } from './newest-versions.ts';

interface Newest {
  readonly version: string;
  /** Monotonic, like all times here. */
  readonly until: Milliseconds;
}

/** The event that the app is handling. */
interface ResourceHolder {
  readonly token: string;
  readonly until: Milliseconds;
}

interface Resource {
  readonly newest: Newest | undefined;
  readonly holder: ResourceHolder | undefined;
  readonly expiresAt: Milliseconds;
}

/** Creates the store. */
export function createMemoryNewestVersions(
  clock: Clock,
  options: {
    /** Maximum number of resources. */
    readonly maxResources: number;
  },
): NewestVersions {
  return new MemoryNewestVersions(clock, options.maxResources);
}

class MemoryNewestVersions implements NewestVersions {
  readonly #clock: Clock;
  readonly #resources: ExpiringMap<Resource>;

  constructor(clock: Clock, maxResources: number) {
    this.#clock = clock;
    this.#resources = new ExpiringMap(clock, { maxEntries: maxResources, what: 'resources' });
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
    const isHolder = holder?.token === token;
    if (!isHolder && handled === undefined) return false;
    const raised = handled === undefined ? newest : raise(newest, { version: handled.version, until: now + handled.retentionMs });
    this.#write(key, raised, isHolder ? undefined : holder);
    return isHolder || holder === undefined;
  }

  async close(): Promise<void> {
    this.#resources.close();
  }

  /** The parts that have not expired; each has its own expiry. */
  #read(key: string, now: Milliseconds): Pick<Resource, 'newest' | 'holder'> {
    const resource = this.#resources.get(key);
    return { newest: toLive(resource?.newest, now), holder: toLive(resource?.holder, now) };
  }

  #write(key: string, newest: Newest | undefined, holder: ResourceHolder | undefined): void {
    if (newest === undefined && holder === undefined) this.#resources.delete(key);
    else this.#resources.put(key, { newest, holder, expiresAt: Math.max(newest?.until ?? 0, holder?.until ?? 0) });
  }
}

function toLive<Part extends { readonly until: Milliseconds }>(part: Part | undefined, now: Milliseconds): Part | undefined {
  return part !== undefined && now < part.until ? part : undefined;
}

function raise(newest: Newest | undefined, handled: Newest): Newest {
  if (newest === undefined || handled.version > newest.version) return handled;
  return handled.version < newest.version || handled.until < newest.until ? newest : handled;
}
