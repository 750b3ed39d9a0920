/** The keys of one route, replaced as a whole when a secret is rotated; requests under way keep the set they started with. */
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { Secret } from '../../core/secret.ts';
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
  /** By the configured name; undefined: none are known right now. */
  readonly #remote = new Map<string, readonly VerifyKey[] | undefined>();
  #keys: readonly VerifyKey[] = [];
  #isTimed = false;
  #onMiss: () => boolean = () => false;

  constructor(set: KeySet) {
    this.#set = set;
    this.#join();
  }

  /** Takes over a new set; the next request sees it. */
  replace(set: KeySet): void {
    this.#set = set;
    this.#join();
  }

  /** Takes over the keys that are behind a URL, under one name. */
  setRemote(name: string, keys: readonly VerifyKey[] | undefined): void {
    this.#remote.set(name, keys);
    this.#join();
  }

  /** Is told of every signature that no key fits; true where newer keys may be on their way. */
  watchMisses(action: () => boolean): void {
    this.#onMiss = action;
  }

  /** No key fits a signature. True: newer keys may be on their way. */
  miss(): boolean {
    return this.#onMiss();
  }

  /** The keys that are live at `now`. */
  live(now: EpochMilliseconds): readonly VerifyKey[] {
    if (!this.#isTimed) return this.#keys;
    return this.#keys.filter((key) => isWithinTime(key, now));
  }

  /** The handshake's own token; undefined where there is none, or none right now. */
  get handshakeToken(): Secret | undefined {
    return this.#set.handshakeToken;
  }

  /** All keys, live or not. */
  get all(): readonly VerifyKey[] {
    return this.#set.keys;
  }

  /** Some key's secret is missing, so a mismatch may be our own fault. */
  get isIncomplete(): boolean {
    return this.#set.unavailable.length > 0 || [...this.#remote.values()].includes(undefined);
  }

  /** Whether the key's secret cannot be read right now. */
  isUnavailable(name: string): boolean {
    return this.#set.unavailable.includes(name) || (this.#remote.has(name) && this.#remote.get(name) === undefined);
  }

  #join(): void {
    this.#keys = [...[...this.#remote.values()].flatMap((keys) => keys ?? []), ...this.#set.keys];
    this.#isTimed = this.#keys.some(isTimed);
  }
}

/** Whether `now` lies within what the key's dates allow. */
export function isWithinTime({ notBefore, notAfter }: KeyDates, now: EpochMilliseconds): boolean {
  return (notBefore === undefined || notBefore <= now) && (notAfter === undefined || now < notAfter);
}

function isTimed({ notBefore, notAfter }: VerifyKey): boolean {
  return notBefore !== undefined || notAfter !== undefined;
}
