/** What is known of how long each key was watched, and the log's word on old keys that are still needed: what a rotation is finished on. */
import { type Clock, type EpochMilliseconds, type Milliseconds, toInstant } from '../../core/clock.ts';
import type { Logger } from './logger.ts';

/** A key as the config names it. */
export interface WatchedKey {
  readonly route: string;
  readonly key: string;
  /** Where its secret comes from: another place is another key, whatever its name. */
  readonly source: string;
}

/** A delivery that was signed by a key which is not the first of its route's live ones. */
export interface OldKeyUse {
  readonly route: string;
  readonly key: string;
  /** The key that should have signed. */
  readonly first: string;
  readonly at: EpochMilliseconds;
  /** How many deliveries the key proved genuine, with this one. */
  readonly matches: number;
}

interface Watched {
  readonly source: string;
  since: EpochMilliseconds;
  /** Monotonic; when the log was last told. */
  toldAt: Milliseconds | undefined;
}

/** A sender that never changes over would fill the log else. */
const TELL_EVERY_MS: Milliseconds = 3_600_000;

/** Watches keys across reloads of the config. */
export class KeyEvidence {
  readonly #clock: Clock;
  readonly #logger: Logger;
  #keys = new Map<string, Watched>();

  constructor(clock: Clock, logger: Logger) {
    this.#clock = clock;
    this.#logger = logger;
  }

  /** Takes over the config's keys; those that were there before stay watched since then. */
  take(keys: readonly WatchedKey[]): void {
    const next = new Map<string, Watched>();
    for (const { route, key, source } of keys) {
      const id = toId(route, key);
      const known = this.#keys.get(id);
      next.set(id, known?.source === source ? known : { source, since: this.#clock.now(), toldAt: undefined });
    }
    this.#keys = next;
  }

  /** The key's secret was replaced: what was seen of the one before says nothing of this one. */
  renew(route: string, key: string): void {
    const known = this.#keys.get(toId(route, key));
    if (known !== undefined) known.since = this.#clock.now();
  }

  /** Since when the key of this name is the one that it is now. */
  since(route: string, key: string): EpochMilliseconds {
    return this.#keys.get(toId(route, key))?.since ?? this.#clock.now();
  }

  /** Says in the log, once an hour for each key, that it was still needed. */
  oldKeyUsed({ route, key, first, at, matches }: OldKeyUse): void {
    const known = this.#keys.get(toId(route, key));
    if (known === undefined) return;
    const now = this.#clock.monotonic();
    if (known.toldAt !== undefined && now - known.toldAt < TELL_EVERY_MS) return;
    known.toldAt = now;
    this.#logger.info('key_match_by_old_key', { route, key, first, neededAt: toInstant(at), matches });
  }
}

/** Neither names of routes nor of keys have spaces. */
function toId(route: string, key: string): string {
  return `${route} ${key}`;
}
