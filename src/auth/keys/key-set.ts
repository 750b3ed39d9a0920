/** A sender's public keys behind a URL (RFC 7517 §5): fetched ahead, kept while they are fresh enough, asked for early when none fits. */
import type { JsonWebKey } from 'node:crypto';
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { runDetached } from '../../core/safe-events.ts';
import { type HttpsGet, RemoteFailure } from './https-get.ts';

/** Where the keys are, and how often they are looked at. */
export interface KeySetOptions {
  readonly url: URL;
  readonly refresh: Milliseconds;
  /** The longest that keys count without being fetched anew; shorter where their server gives them a shorter cache lifetime. */
  readonly keepFor: Milliseconds;
}

/** Told what became of each fetch. */
export interface KeySetEvents {
  /** Undefined: those that were there are too old to be relied on. */
  onKeys(keys: readonly JsonWebKey[] | undefined): void;
  onTrouble(message: string): void;
}

const LARGEST_BYTES = 65_536;
const MOST_KEYS = 20;
const TIMEOUT_MS: Milliseconds = 5_000;
const FIRST_RETRY_MS: Milliseconds = 5_000;
/** A signature that no key fits is often a stranger's: asking early must not be his to bring about at will. */
const LEAST_BETWEEN_MS: Milliseconds = 60_000;
/** Keys that may not be cached at all still count for so long, or each failed fetch would stop the route. */
const MIN_LIFETIME_MS: Milliseconds = 300_000;

/** Keeps one set up to date until it is closed. */
export class RemoteKeySet {
  readonly #options: KeySetOptions;
  readonly #get: HttpsGet;
  readonly #clock: Clock;
  readonly #events: KeySetEvents;
  #timer: CancelTimer | undefined;
  /** Ends the keys on time, however the fetches go: a sender revokes a key by removing it from the set. */
  #expiry: CancelTimer | undefined;
  #fetchedAt: Milliseconds | undefined;
  #askedAt: Milliseconds | undefined;
  #failures = 0;
  #isFetching = false;
  #isClosed = false;

  constructor(options: KeySetOptions, get: HttpsGet, clock: Clock, events: KeySetEvents) {
    this.#options = options;
    this.#get = get;
    this.#clock = clock;
    this.#events = events;
    runDetached(this.#fetch());
  }

  /** None of the keys fits a signature: there may be new ones, and they are asked for. False: those here are new enough to be all. */
  askEarly(): boolean {
    const now = this.#clock.monotonic();
    if (this.#fetchedAt !== undefined && now - this.#fetchedAt < LEAST_BETWEEN_MS) return false;
    if (this.#askedAt === undefined || now - this.#askedAt >= LEAST_BETWEEN_MS) runDetached(this.#fetch());
    return true;
  }

  /** Asks no more. */
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
    this.#askedAt = this.#clock.monotonic();
    try {
      const { body, freshFor } = await this.#get(url, { maxBytes: LARGEST_BYTES, timeout: TIMEOUT_MS });
      this.#onFetched(parseKeySet(body, url), freshFor);
    } catch (thrown) {
      this.#onFailed(toErrorText(thrown));
    } finally {
      this.#isFetching = false;
    }
  }

  #onFetched(keys: readonly JsonWebKey[], freshFor: Milliseconds | undefined): void {
    if (this.#isClosed) return;
    const { refresh, keepFor } = this.#options;
    this.#failures = 0;
    this.#fetchedAt = this.#clock.monotonic();
    const lifetime = freshFor === undefined ? keepFor : Math.min(keepFor, Math.max(freshFor, MIN_LIFETIME_MS));
    this.#expiry?.();
    this.#expiry = this.#clock.after(lifetime, () => this.#onExpired());
    this.#events.onKeys(keys);
    // Half the lifetime is left for retries.
    this.#again(Math.min(refresh, lifetime / 2));
  }

  #onExpired(): void {
    this.#fetchedAt = undefined;
    this.#events.onKeys(undefined);
  }

  #onFailed(message: string): void {
    if (this.#isClosed) return;
    this.#events.onTrouble(message);
    this.#again(Math.min(FIRST_RETRY_MS * 2 ** this.#failures, this.#options.refresh));
    this.#failures++;
  }

  #again(delay: Milliseconds): void {
    this.#timer = this.#clock.after(delay, () => this.#fetch());
  }
}

/** A set without a single key is no answer: it would lock the sender out. */
function parseKeySet(bytes: Buffer, { host }: URL): readonly JsonWebKey[] {
  let value: unknown;
  try {
    value = JSON.parse(bytes.toString('utf8'));
  } catch {
    throw new RemoteFailure(`${host}: the answer is no JSON`);
  }
  const keys = (value as { keys?: unknown } | null)?.keys;
  if (!Array.isArray(keys) || keys.length === 0) throw new RemoteFailure(`${host}: the answer is no JWK Set with keys`);
  if (keys.length > MOST_KEYS) throw new RemoteFailure(`${host}: more than ${MOST_KEYS} keys`);
  return keys.filter((key): key is JsonWebKey => typeof key === 'object' && key !== null);
}
