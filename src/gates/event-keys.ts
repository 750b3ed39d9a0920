/** What events and their resources are called in the store: short, and legible where that is safe. */
import { hash } from 'node:crypto';

/** Longer names are hashed, so that a key stays short whatever the sender chooses; so is what could not be printed. */
const PLAIN = /^[\x21-\x7e]{1,64}$/;
const FINGERPRINT_LENGTH = 16;

/** Of an event by its id. */
export function toIdKey(route: string, id: string): string {
  return toKey(route, id);
}

/** Of what the signature covers, where that is not the id. */
export function toDigestKey(route: string, digest: string): string {
  return `${route}:d:${digest}`;
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
