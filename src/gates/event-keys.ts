/** What an event is called in the store: by its id, and by the digest of what was signed. */
import { hash } from 'node:crypto';

/** Longer ids are hashed, so that a key stays short whatever the sender chooses. */
const LONGEST_PLAIN_ID = 64;
const FINGERPRINT_LENGTH = 16;

/** Short ids stay legible for whoever looks into the store; `i`, `h` and `d` keep one form from posing as another. */
export function toIdKey(route: string, id: string): string {
  return id.length <= LONGEST_PLAIN_ID ? `${route}:i:${id}` : `${route}:h:${hash('sha256', id, 'base64url')}`;
}

/** Of what the signature covers, where that is not the id. */
export function toDigestKey(route: string, digest: string): string {
  return `${route}:d:${digest}`;
}

/** Tells contents, or ids, apart; without spaces. */
export function toFingerprint(value: Buffer | string): string {
  return hash('sha256', value, 'base64url').slice(0, FINGERPRINT_LENGTH);
}
