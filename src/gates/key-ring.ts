/** The keys of one route, replaced as a whole when a secret is rotated; requests under way keep the set they started with. */
import type { EpochMilliseconds } from '../core/clock.ts';
import type { VerifyKey } from '../schemes/scheme.ts';

/** A route's keys at one moment. */
export interface KeySet {
  /** Those that can be used, in the configured order. */
  readonly keys: readonly VerifyKey[];
  /** Names of keys whose secret cannot be read right now. */
  readonly unavailable: readonly string[];
}

/** Holds the current KeySet. */
export class KeyRing {
  #set: KeySet;
  #expires: boolean;

  constructor(set: KeySet) {
    this.#set = set;
    this.#expires = set.keys.some((key) => key.notAfter !== undefined);
  }

  /** Takes over a new set; the next request sees it. */
  replace(set: KeySet): void {
    this.#set = set;
    this.#expires = set.keys.some((key) => key.notAfter !== undefined);
  }

  /** The keys that are live at `now`. */
  live(now: EpochMilliseconds): readonly VerifyKey[] {
    if (!this.#expires) return this.#set.keys;
    return this.#set.keys.filter((key) => key.notAfter === undefined || now < key.notAfter);
  }

  /** All keys, live or not. */
  get all(): readonly VerifyKey[] {
    return this.#set.keys;
  }

  /** Some key's secret is missing, so a mismatch may be our own fault. */
  get isIncomplete(): boolean {
    return this.#set.unavailable.length > 0;
  }
}
