/** Bytes that must not be read leniently: canonical base64 and hex, elements of DER, comparison in constant time, and the first byte of content. */
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

export const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);
/** Tab, line feed, vertical tab, form feed, carriage return and space. */
const WHITE_SPACE = new Set([0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x20]);
/** Of JSON, XML and multipart: NUL, a quote, a dash, and brackets. */
const NO_FORM_STARTS = new Set([0, 0x22, 0x2d, 0x3c, 0x5b, 0x7b]);
/** All bytes of UTF-8 are lower; the byte order marks of UTF-16 begin with 0xfe or 0xff. */
export const MIN_NON_UTF_8 = 0xfe;

/** Not JSON, XML, multipart, or another encoding than UTF-8: the name of a parameter begins like none of them. */
export function canBeForm(body: Buffer): boolean {
  const first = findFirstByte(body);
  return first === undefined || !(NO_FORM_STARTS.has(first) || first >= MIN_NON_UTF_8);
}

/** The first byte that is not white space, after an optional byte order mark. */
export function findFirstByte(body: Buffer): number | undefined {
  const hasMark = body.subarray(0, BYTE_ORDER_MARK.length).equals(BYTE_ORDER_MARK);
  let at = hasMark ? BYTE_ORDER_MARK.length : 0;
  while (at < body.length && WHITE_SPACE.has(body[at] ?? 0)) at++;
  return body[at];
}
