/** Names what senders number their things by, as keys of the store: short, and safe to look at. */
import { hash } from 'node:crypto';

/** Longer texts are hashed, so that a key stays short whatever the sender chooses. */
const LONGEST_PLAIN = 64;
const PLAIN = /^[\x21-\x7e]+$/;

/** Short texts stay legible for whoever looks into the store; `i` and `h` keep a plain one from posing as a hashed one. */
export function toStoreKey(group: string, text: string): string {
  const isPlain = text.length <= LONGEST_PLAIN && PLAIN.test(text);
  return isPlain ? `${group}:i:${text}` : `${group}:h:${hash('sha256', text, 'base64url')}`;
}
