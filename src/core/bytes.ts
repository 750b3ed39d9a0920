/** Byte-level helpers that must not be lenient: canonical base64 and constant-time comparison. */
import { timingSafeEqual } from 'node:crypto';

/** Compares in time that depends on the lengths only; unequal lengths are unequal instead of a throw. */
export function isEqualInConstantTime(a: Buffer, b: Buffer): boolean {
  return a.length === b.length && timingSafeEqual(a, b);
}

/**
 * Decodes canonical base64 (RFC 4648 §4: right padding, unused bits zero, no other characters), or undefined.
 * Node's own decoder skips junk silently, so the text must survive the round trip.
 */
export function parseBase64(text: string): Buffer | undefined {
  if (text.length % 4 !== 0) return undefined;
  const bytes = Buffer.from(text, 'base64');
  return bytes.toString('base64') === text ? bytes : undefined;
}

/** The same for base64url without padding (RFC 4648 §5). */
export function parseBase64Url(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, 'base64url');
  return bytes.toString('base64url') === text ? bytes : undefined;
}

/** Decodes an even number of hex digits of either case, or undefined. Node's own decoder truncates at the first bad digit. */
export function parseHex(text: string): Buffer | undefined {
  if (text.length % 2 !== 0) return undefined;
  const bytes = Buffer.from(text, 'hex');
  return bytes.length * 2 === text.length ? bytes : undefined;
}
