/** A sender's public keys at a URL (RFC 7517 §5): refreshed in advance, expired when stale, and fetched early if no key matches. */

import type { JsonWebKey } from 'node:crypto';
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { parseJsonText } from '../../core/json-scan.ts';
import { runDetached } from '../../core/safe-events.ts';
import { type HttpsGet, RemoteFailure } from './https-get.ts';

/** The settings of a key set. */
export interface KeySetOptions {
  readonly url: URL;
  readonly refresh: Milliseconds;
  /** Maximum lifetime of keys that cannot be fetched again. A shorter cache lifetime from the server takes precedence. */
  readonly keepFor: Milliseconds;
}

const MAX_BYTES = 65_536;
const MAX_KEYS = 20;
const TIMEOUT_MS: Milliseconds = 5_000;
const FIRST_RETRY_MS: Milliseconds = 5_000;
/** Minimum of `refresh`. */
export const MIN_REFRESH_MS: Milliseconds = 60_000;
/** Minimum interval of early fetches: attackers can send signatures that no key matches, and must not trigger fetches at will. */
const MIN_EARLY_INTERVAL_MS: Milliseconds = 60_000;
/** Minimum lifetime, even for keys that must not be cached; otherwise each failed fetch would make the route unavailable. */
export const MIN_LIFETIME_MS: Milliseconds = 300_000;

/** Keeps one set up to date until it is closed. */
export class RemoteKeySet {
  #options: KeySetOptions;
  readonly #get: HttpsGet;
  readonly #clock: Clock;
  readonly #events;
  #timer: CancelTimer | undefined;
  /** Expires the keys even if fetches fail: a sender revokes a key by removing it from the set. */
  #expiry: CancelTimer | undefined;
  #fetchedAt: Milliseconds | undefined;
  #freshFor: Milliseconds | undefined;
  #requestedAt: Milliseconds | undefined;
  #failures = 0;
  #isFetching = false;
  #isClosed = false;

  constructor(
    options: KeySetOptions,
    get: HttpsGet,
    clock: Clock,
    events: {
      /** Undefined: the previous keys have expired. */
      onKeys(keys: readonly JsonWebKey[] | undefined): void;
      onFailure(message: string): void;
    },
  ) {
    this.#options = options;
    this.#get = get;
    this.#clock = clock;
    this.#events = events;
    runDetached(this.#fetch());
  }

  /** Changes the settings. The keys that are known keep their age. */
  configure(options: KeySetOptions): void {
    const { refresh, keepFor } = this.#options;
    this.#options = options;
    if (this.#fetchedAt !== undefined && (options.refresh !== refresh || options.keepFor !== keepFor))
      this.#plan(this.#fetchedAt);
  }

  /**
   * Fetches the keys early, because no key matches a signature. Returns false if the keys are too recent for newer ones to exist; then they
   * are fetched after the minute.
   */
  refreshEarly(): boolean {
    const now = this.#clock.monotonic();
    if (this.#fetchedAt !== undefined && now - this.#fetchedAt < MIN_EARLY_INTERVAL_MS) {
      this.#schedule(this.#fetchedAt + MIN_EARLY_INTERVAL_MS - now);
      return false;
    }
    if (this.#requestedAt === undefined || now - this.#requestedAt >= MIN_EARLY_INTERVAL_MS) runDetached(this.#fetch());
    return true;
  }

  /** Stops fetching. */
  close(): void {
    this.#isClosed = true;
    this.#timer?.();
    this.#expiry?.();
  }

  async #fetch(): Promise<void> {
    if (this.#isFetching || this.#isClosed) return;
    this.#isFetching = true;
    this.#timer?.();
    const { url } = this.#options;
    this.#requestedAt = this.#clock.monotonic();
    try {
      const { body, freshFor } = await this.#get(url, { maxBytes: MAX_BYTES, timeout: TIMEOUT_MS });
      this.#onFetched(parseKeySet(body, url), freshFor);
    } catch (thrown) {
      this.#onFailed(toErrorText(thrown));
    } finally {
      this.#isFetching = false;
    }
  }

  #onFetched(keys: readonly JsonWebKey[], freshFor: Milliseconds | undefined): void {
    if (this.#isClosed) return;
    this.#failures = 0;
    this.#fetchedAt = this.#clock.monotonic();
    this.#freshFor = freshFor;
    this.#events.onKeys(keys);
    this.#plan(this.#fetchedAt);
  }

  #plan(fetchedAt: Milliseconds): void {
    const { refresh, keepFor } = this.#options;
    const freshFor = this.#freshFor ?? keepFor;
    const lifetime = Math.min(keepFor, Math.max(freshFor, MIN_LIFETIME_MS));
    const age = this.#clock.monotonic() - fetchedAt;
    // Leaves half of the lifetime for retries.
    const due = Math.min(refresh, lifetime / 2) - age;
    this.#expiry?.();
    // A lifetime that was shortened ends after the fetch that it makes due.
    const left = Math.max(lifetime - age, due > 0 ? 0 : TIMEOUT_MS + FIRST_RETRY_MS);
    this.#expiry = this.#clock.after(left, () => this.#onExpired());
    if (due > 0) this.#schedule(due);
    else runDetached(this.#fetch());
  }

  #onExpired(): void {
    this.#fetchedAt = undefined;
    this.#events.onKeys(undefined);
  }

  #onFailed(message: string): void {
    if (this.#isClosed) return;
    this.#events.onFailure(message);
    this.#schedule(Math.min(FIRST_RETRY_MS * 2 ** this.#failures, this.#options.refresh));
    this.#failures++;
  }

  #schedule(delay: Milliseconds): void {
    this.#timer?.();
    this.#timer = this.#clock.after(Math.max(delay, FIRST_RETRY_MS), () => this.#fetch());
  }
}

/** Rejects a set without keys, because it would lock the sender out. */
function parseKeySet(bytes: Buffer, { host }: URL): readonly JsonWebKey[] {
  let value: unknown;
  try {
    value = parseJsonText(bytes);
  } catch {
    throw new RemoteFailure(`${host}: the response is not JSON`);
  }
  const keys = (value as { keys?: unknown } | null)?.keys;
  if (!Array.isArray(keys) || keys.length === 0) throw new RemoteFailure(`${host}: the response is not a JWK Set with keys`);
  if (keys.length > MAX_KEYS) throw new RemoteFailure(`${host}: more than ${MAX_KEYS} keys`);
  return keys.filter((key): key is JsonWebKey => typeof key === 'object' && key !== null);
}
