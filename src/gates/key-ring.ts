/** The keys of one route, replaced as a whole when a secret is rotated; requests under way keep the set they started with. */
import type { EpochMilliseconds } from '../core/clock.ts';
import type { Secret } from '../core/secret.ts';
import type { VerifyKey } from '../schemes/scheme.ts';

/** A route's keys at one moment. */
export interface KeySet {
  /** Those that can be used, in the configured order. */
  readonly keys: readonly VerifyKey[];
  /** Names of keys whose secret cannot be read right now. */
  readonly unavailable: readonly string[];
  /** Of the handshake, where it is configured and can be read right now. */
  readonly handshakeToken?: Secret | undefined;
}

/** From when on, and up to when, a key is accepted. */
interface KeyDates {
  readonly notBefore?: EpochMilliseconds | undefined;
  readonly notAfter?: EpochMilliseconds | undefined;
}

/** Holds the current KeySet. */
export class KeyRing {
  #set: KeySet;
  #isTimed: boolean;

  constructor(set: KeySet) {
    this.#set = set;
    this.#isTimed = set.keys.some(isTimed);
  }

  /** Takes over a new set; the next request sees it. */
  replace(set: KeySet): void {
    this.#set = set;
    this.#isTimed = set.keys.some(isTimed);
  }

  /** The keys that are live at `now`. */
  live(now: EpochMilliseconds): readonly VerifyKey[] {
    if (!this.#isTimed) return this.#set.keys;
    return this.#set.keys.filter((key) => isWithinTime(key, now));
  }

  /** The handshake's own token; undefined where there is none, or none right now. */
  get handshakeToken(): Secret | undefined {
    return this.#set.handshakeToken;
  }

  /** Some key's secret is missing, so a mismatch may be our own fault. */
  get isIncomplete(): boolean {
    return this.#set.unavailable.length > 0;
  }

  /** Whether the key's secret cannot be read right now. */
  isUnavailable(name: string): boolean {
    return this.#set.unavailable.includes(name);
  }
}

/** Whether `now` lies within what the key's dates allow. */
export function isWithinTime({ notBefore, notAfter }: KeyDates, now: EpochMilliseconds): boolean {
  return (notBefore === undefined || notBefore <= now) && (notAfter === undefined || now < notAfter);
}

function isTimed({ notBefore, notAfter }: VerifyKey): boolean {
  return notBefore !== undefined || notAfter !== undefined;
}
