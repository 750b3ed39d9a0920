/** Records how long each key has been observed, and logs when old keys are still used: the evidence that a rotation is complete. */
import { type Clock, type EpochMilliseconds, type Milliseconds, toInstant } from '../../core/clock.ts';
import type { Logger } from './logger.ts';

/** A key of the config. */
export interface WatchedKey {
  readonly route: string;
  readonly key: string;
  /** Where its secret comes from: a key with the same name but another source is another key. */
  readonly source: string;
}

/** A delivery that was verified by a key other than the first live one of its route. */
interface OldKeyUse {
  readonly route: string;
  readonly key: string;
  /** The key that should have signed. */
  readonly first: string;
  readonly at: EpochMilliseconds;
  /** How many deliveries the key verified, including this one. */
  readonly matches: number;
}

interface Watched {
  readonly source: string;
  since: EpochMilliseconds;
  /** Monotonic; when the use of the key was last logged. */
  loggedAt: Milliseconds | undefined;
}

/** Otherwise a sender that never switches to the new key would fill the log. */
const LOG_INTERVAL_MS: Milliseconds = 3_600_000;

/** Observes keys across config reloads. */
export class KeyEvidence {
  readonly #clock: Clock;
  readonly #logger: Logger;
  #keys = new Map<string, Watched>();

  constructor(clock: Clock, logger: Logger) {
    this.#clock = clock;
    this.#logger = logger;
  }

  /** Replaces the set of keys; those already known keep the start of their observation. */
  take(keys: readonly WatchedKey[]): void {
    const next = new Map<string, Watched>();
    for (const { route, key, source } of keys) {
      const id = toId(route, key);
      const known = this.#keys.get(id);
      next.set(id, known?.source === source ? known : { source, since: this.#clock.now(), loggedAt: undefined });
    }
    this.#keys = next;
  }

  /** Restarts the observation: the secret of the key was replaced, so earlier evidence no longer applies. */
  renew(route: string, key: string): void {
    const known = this.#keys.get(toId(route, key));
    if (known !== undefined) known.since = this.#clock.now();
  }

  /** Since when this name stands for the current secret. */
  since(route: string, key: string): EpochMilliseconds {
    return this.#keys.get(toId(route, key))?.since ?? this.#clock.now();
  }

  /** Logs that an old key is still used, at most once an hour per key. */
  oldKeyUsed({ route, key, first, at, matches }: OldKeyUse): void {
    const known = this.#keys.get(toId(route, key));
    if (known === undefined) return;
    const now = this.#clock.monotonic();
    if (known.loggedAt !== undefined && now - known.loggedAt < LOG_INTERVAL_MS) return;
    known.loggedAt = now;
    this.#logger.info('key_match_by_old_key', { route, key, first, neededAt: toInstant(at), matches });
  }
}

/** The names of routes and keys contain no spaces. */
function toId(route: string, key: string): string {
  return `${route} ${key}`;
}
