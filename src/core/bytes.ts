/** Bytes that must not be read leniently: canonical base64 and hex, elements of DER, and comparison in constant time. */
import { timingSafeEqual } from 'node:crypto';

/** A size in bytes. */
export type Bytes = number;

/** Compares in time that depends only on the lengths. Returns false for unequal lengths, where `timingSafeEqual` throws. */
export function isEqualInConstantTime(a: Buffer, b: Buffer): boolean {
  return a.length === b.length && timingSafeEqual(a, b);
}

/**
 * Decodes canonical base64 (RFC 4648 §4: right padding, unused bits zero, no other characters); undefined for anything else.
 * Node's decoder skips other characters silently, so the result is encoded again and compared.
 */
export function parseBase64(text: string): Buffer | undefined {
  if (text.length % 4 !== 0) return undefined;
  const bytes = Buffer.from(text, 'base64');
  return bytes.toString('base64') === text ? bytes : undefined;
}

/** Like `parseBase64`, but the padding may be missing as a whole. For keys, whose text is not compared with anything. */
export function parseBase64Key(text: string): Buffer | undefined {
  return parseBase64(text.includes('=') ? text : text.padEnd(Math.ceil(text.length / 4) * 4, '='));
}

/** Like `parseBase64`, for base64url without padding (RFC 4648 §5). */
export function parseBase64Url(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, 'base64url');
  return bytes.toString('base64url') === text ? bytes : undefined;
}

/**
 * Decodes an even number of hex digits of either case; undefined for anything else. Node's decoder truncates at the first bad
 * digit.
 */
export function parseHex(text: string): Buffer | undefined {
  if (text.length % 2 !== 0) return undefined;
  const bytes = Buffer.from(text, 'hex');
  return bytes.length * 2 === text.length ? bytes : undefined;
}

/** An element of DER (X.690): its tag, and where its value starts and ends. */
interface DerElement {
  readonly tag: number;
  readonly start: number;
  readonly end: number;
}

/**
 * The element at an offset. Undefined if it has another tag than `tag`, or if its value is incomplete (X.690 §8.1). That is as much as the gate
 * needs of lists and certificates that OpenSSL has parsed already.
 */
export function readElement(der: Buffer, at: number, tag = der[at]): DerElement | undefined {
  if (tag === undefined || at + 2 > der.length || der[at] !== tag) return undefined;
  const first = der[at + 1] as number;
  const digits = first < 0x80 ? 0 : first & 0x7f;
  const start = at + 2 + digits;
  if (digits > 4 || start > der.length) return undefined;
  const length = digits === 0 ? first : der.readUIntBE(at + 2, digits);
  return start + length > der.length ? undefined : { tag, start, end: start + length };
}
