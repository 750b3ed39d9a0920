/** The SeenIds of one process: bounded, and no ID is forgotten before its expiry. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { ExpiringMap } from '../expiring-map.ts';
import type { ClaimRequest, ClaimResult, Forgotten, SeenIds } from './seen-ids.ts';

interface SeenEntry {
  readonly isHandled: boolean;
  readonly token: string;
  readonly fingerprint: string;
  readonly expiresAt: Milliseconds;
}

/** Creates the store. */
export function createMemorySeenIds(
  clock: Clock,
  options: {
    /** Maximum number of IDs, claimed and handled together. */
    readonly maxIds: number;
  },
): SeenIds {
  return new MemorySeenIds(clock, options.maxIds);
}

class MemorySeenIds implements SeenIds {
  readonly #clock: Clock;
  readonly #entries: ExpiringMap<SeenEntry>;

  constructor(clock: Clock, maxIds: number) {
    this.#clock = clock;
    this.#entries = new ExpiringMap(clock, { maxEntries: maxIds, what: 'IDs' });
  }

  async claim({ key, token, fingerprint, leaseMs }: ClaimRequest): Promise<ClaimResult> {
    const now = this.#clock.monotonic();
    const entry = this.#entries.get(key);
    if (entry === undefined) {
      this.#entries.put(key, { isHandled: false, token, fingerprint, expiresAt: now + leaseMs });
      return { state: 'new' };
    }
    const { isHandled, expiresAt, fingerprint: stored } = entry;
    return { state: isHandled ? 'handled' : 'in-progress', remainingMs: expiresAt - now, fingerprint: stored };
  }

  async confirm(key: string, token: string, fingerprint: string, retentionMs: Milliseconds): Promise<boolean> {
    const entry = this.#entries.get(key);
    if (entry !== undefined && (entry.isHandled || entry.token !== token)) return false;
    this.#entries.put(key, { isHandled: true, token: '', fingerprint, expiresAt: this.#clock.monotonic() + retentionMs });
    return true;
  }

  async release(key: string, token: string): Promise<boolean> {
    const entry = this.#entries.get(key);
    if (entry === undefined || entry.isHandled || entry.token !== token) return false;
    this.#entries.delete(key);
    return true;
  }

  async forget(key: string): Promise<Forgotten> {
    const entry = this.#entries.get(key);
    if (entry === undefined) return { was: 'absent' };
    this.#entries.delete(key);
    return { was: entry.isHandled ? 'handled' : 'in-progress', fingerprint: entry.fingerprint };
  }

  isUp(): boolean {
    return this.#entries.isOpen;
  }

  async close(): Promise<void> {
    this.#entries.close();
  }
}
