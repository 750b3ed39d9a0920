/** The keys of one route, replaced as a whole when a secret is rotated. */
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { Secret } from '../../core/secret.ts';
import { Material } from '../schemes/keys.ts';
import type { VerifyKey } from '../schemes/scheme.ts';

/** A route's keys at one moment. */
export interface KeySet {
  /** The usable keys, in the configured order. */
  readonly keys: readonly VerifyKey[];
  /** Names of keys whose secret cannot be read right now, or must not be used, because it has another purpose. */
  readonly unavailable: readonly string[];
  /** The handshake's token, if it is configured and can be read right now. */
  readonly handshakeToken?: Secret | undefined;
  /** User and password in the signed URL, if they are configured and can be read right now. */
  readonly urlCredentials?: Secret | undefined;
}

/** The validity period of a key. */
interface KeyDates {
  readonly notBefore?: EpochMilliseconds | undefined;
  readonly notAfter?: EpochMilliseconds | undefined;
}

/** Holds the current KeySet. */
export class KeyRing {
  #set: KeySet;
  /** By the configured name; undefined: no keys are available right now. */
  readonly #remote = new Map<string, readonly VerifyKey[] | undefined>();
  #keys: readonly VerifyKey[] = [];
  #isTimed = false;
  #onMiss: () => boolean = () => false;
  #next: KeyRing | null | undefined;

  constructor(set: KeySet) {
    this.#set = set;
    this.#join();
  }

  /** Replaces the set; the next request uses the new one. */
  replace(set: KeySet): void {
    this.#set = set;
    this.#join();
  }

  /**
   * A new config is active, with the ring `next` or without the route: deliveries whose bodies still arrive are verified only by keys that it, and
   * each config after it, has too and accepts.
   */
  retire(next: KeyRing | undefined): void {
    this.#next = next ?? null;
  }

  /** Replaces the keys that were fetched from a URL, by the name of the key set. */
  setRemote(name: string, keys: readonly VerifyKey[] | undefined): void {
    this.#remote.set(name, keys);
    this.#join();
  }

  /** Sets the callback for signatures that no key matches. It returns true if newer keys may be about to arrive. */
  watchMisses(action: () => boolean): void {
    this.#onMiss = action;
  }

  /** Reports a signature that no key matches. Returns true if newer keys may be about to arrive. */
  miss(): boolean {
    return this.#onMiss();
  }

  /** The keys that are valid at `now`. */
  live(now: EpochMilliseconds): readonly VerifyKey[] {
    if (this.#next !== undefined) return toKept(this.#keys, this.#next?.live(now));
    if (!this.#isTimed) return this.#keys;
    return this.#keys.filter((key) => isWithinTime(key, now));
  }

  /** The handshake's token; undefined if none is configured, or if it cannot be read right now. */
  get handshakeToken(): Secret | undefined {
    return this.#next === undefined ? this.#set.handshakeToken : this.#next?.handshakeToken;
  }

  /** User and password in the signed URL; undefined if none are configured, or if they cannot be read right now. */
  get urlCredentials(): Secret | undefined {
    return this.#next === undefined ? this.#set.urlCredentials : this.#next?.urlCredentials;
  }

  /** All configured keys, valid now or not. */
  get all(): readonly VerifyKey[] {
    return this.#set.keys;
  }

  /** Names of the keys that cannot be used right now. */
  get unavailable(): readonly string[] {
    return this.#set.unavailable;
  }

  /** Whether some key is unavailable, so that a mismatch may be our fault. */
  get isIncomplete(): boolean {
    return (
      this.#set.unavailable.length > 0 || [...this.#remote.values()].includes(undefined) || this.#next?.isIncomplete === true
    );
  }

  /** Whether the key's secret cannot be read right now. */
  isUnavailable(name: string): boolean {
    const isUnread = this.#remote.has(name) && this.#remote.get(name) === undefined;
    return isUnread || this.#set.unavailable.includes(name) || this.#next?.isUnavailable(name) === true;
  }

  #join(): void {
    this.#keys = [...[...this.#remote.values()].flatMap((keys) => keys ?? []), ...this.#set.keys];
    this.#isTimed = this.#keys.some(isTimed);
  }
}

/** Whether `now` is within the key's validity period. */
export function isWithinTime({ notBefore, notAfter }: KeyDates, now: EpochMilliseconds): boolean {
  return (notBefore === undefined || notBefore <= now) && (notAfter === undefined || now < notAfter);
}

/** The keys that are among the others. */
function toKept(keys: readonly VerifyKey[], others: readonly VerifyKey[] = []): VerifyKey[] {
  return keys.filter((key) => others.some((other) => isSameKey(key, other)));
}

/** A key may keep its name and get another secret. */
export function isSameKey(a: VerifyKey, b: VerifyKey): boolean {
  if (a.name !== b.name) return false;
  return !(a.material instanceof Material && b.material instanceof Material) || a.material.key.equals(b.material.key);
}

function isTimed({ notBefore, notAfter }: VerifyKey): boolean {
  return notBefore !== undefined || notAfter !== undefined;
}
