/** What events and their resources are called in the store: short, and legible where that is safe; and how events are forgotten there. */
import { hash } from 'node:crypto';
import { toDigestId } from '../../core/event.ts';
import { type Forgotten, type SeenIds, StoreUnavailable } from '../../state/claims/seen-ids.ts';

/** Longer names are hashed, so that a key stays short whatever the sender chooses; so is what could not be printed. */
const PLAIN = /^[\x21-\x7e]{1,64}$/;
const FINGERPRINT_LENGTH = 16;
/** What `toDigestId` makes of a digest. */
const DIGEST_ID = /^sha256-([A-Za-z0-9_-]{16,43})$/;

/** Of an event by its id. */
export function toIdKey(route: string, id: string): string {
  return toKey(route, id);
}

/** Of what the signature covers, where that is not the id. */
export function toDigestKey(route: string, digest: string): string {
  return `${route}:d:${digest}`;
}

/** Of one of the kinds that the same signed content may come under; counted from 1. */
export function toKindKey(route: string, contentDigest: string, place: number): string {
  return `${route}:k${place}:${contentDigest}`;
}

/** Of a resource whose versions are of this kind (a digit). */
export function toResourceKey(route: string, kind: string, name: string): string {
  return toKey(`${route}:o${kind}`, name);
}

/** Tells contents, or ids, apart; without spaces. */
export function toFingerprint(value: Buffer | string): string {
  return hash('sha256', value, 'base64url').slice(0, FINGERPRINT_LENGTH);
}

/** `i`, `h` and `d` keep one form from posing as another. */
function toKey(group: string, name: string): string {
  return PLAIN.test(name) ? `${group}:i:${name}` : `${group}:h:${hash('sha256', name, 'base64url')}`;
}

/**
 * Clears one event, so that its next genuine delivery is let through: the id, and the digest that was recorded with it.
 * Rejects with StoreUnavailable; where only the digest is left, its text says how to clear that.
 */
export async function forgetEvent(store: SeenIds, route: string, id: string): Promise<Forgotten['was']> {
  const byId = await store.forget(toIdKey(route, id));
  const digest = byId.fingerprint ?? DIGEST_ID.exec(id)?.[1];
  if (digest === undefined) return byId.was;
  const byDigest = await forgetDigest(store, route, digest, byId.was);
  return byId.was === 'absent' ? byDigest : byId.was;
}

async function forgetDigest(store: SeenIds, route: string, digest: string, was: Forgotten['was']): Promise<Forgotten['was']> {
  try {
    return (await store.forget(toDigestKey(route, digest))).was;
  } catch (thrown) {
    if (!(thrown instanceof StoreUnavailable) || was === 'absent') throw thrown;
    // The id is gone, and with it the way to the digest: without this, nobody could ever finish what was begun.
    const message = `${thrown.message}; the id is forgotten, its content is not yet: forget the id ${toDigestId(digest)}`;
    throw new StoreUnavailable(thrown.failure, message, { cause: thrown });
  }
}
