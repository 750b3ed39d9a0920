/** Encodes DER (ITU-T X.690 §10): the types that certificates need. */
import { type EpochMilliseconds, toInstant } from '../../core/clock.ts';

const TAG = {
  boolean: 0x01,
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  oid: 0x06,
  utf8String: 0x0c,
  utcTime: 0x17,
  generalizedTime: 0x18,
  sequence: 0x30,
  set: 0x31,
} as const;
const CONTEXT = 0x80;
const CONSTRUCTED = 0x20;
/** Years from 2050 on need four digits (RFC 5280 §4.1.2.5). */
const FIRST_GENERALIZED_YEAR = 2050;
const LAST_YEAR = 9999;

/** Encodes a tag, a length and a value. */
function encode(tag: number, content: Buffer): Buffer {
  return Buffer.concat([Buffer.from([tag]), encodeLength(content.length), content]);
}

function encodeLength(length: number): Buffer {
  if (length < 0x80) return Buffer.from([length]);
  const digits = toBigEndian(length);
  return Buffer.from([0x80 | digits.length, ...digits]);
}

function toBigEndian(value: number): number[] {
  const bytes: number[] = [];
  for (let left = value; left > 0; left = Math.floor(left / 256)) bytes.unshift(left % 256);
  return bytes;
}

/** Encodes values in this order. */
export function sequence(...parts: readonly Buffer[]): Buffer {
  return encode(TAG.sequence, Buffer.concat(parts));
}

/** Encodes a set of one value. Certificates need no larger sets, which would have to be sorted (X.690 §10.3). */
export function setOf(part: Buffer): Buffer {
  return encode(TAG.set, part);
}

/** Encodes true. All booleans of a certificate default to false, and DER omits defaults (X.690 §11.5). */
export function yes(): Buffer {
  return encode(TAG.boolean, Buffer.from([0xff]));
}

/** Encodes a non-negative integer, given in big-endian order. */
export function integer(magnitude: Buffer): Buffer {
  let start = 0;
  while (start < magnitude.length - 1 && magnitude[start] === 0) start++;
  const shortest = magnitude.length === 0 ? Buffer.from([0]) : magnitude.subarray(start);
  // The highest bit is the sign.
  return encode(TAG.integer, (shortest[0] ?? 0) >= 0x80 ? Buffer.concat([Buffer.from([0]), shortest]) : shortest);
}

/** Encodes bits; the last `unused` bits of the last byte are ignored. */
export function bitString(bits: Buffer, unused = 0): Buffer {
  return encode(TAG.bitString, Buffer.concat([Buffer.from([unused]), bits]));
}

/** Encodes bytes. */
export function octetString(bytes: Buffer): Buffer {
  return encode(TAG.octetString, bytes);
}

/** Encodes text. */
export function utf8String(text: string): Buffer {
  return encode(TAG.utf8String, Buffer.from(text, 'utf8'));
}

/** Encodes an object identifier such as `2.5.29.14`. */
export function oid(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split('.').map(Number);
  return encode(TAG.oid, Buffer.from([first * 40 + second, ...rest].flatMap(toBase128)));
}

function toBase128(value: number): number[] {
  const digits = [value % 128];
  for (let left = Math.floor(value / 128); left > 0; left = Math.floor(left / 128)) digits.unshift(0x80 | (left % 128));
  return digits;
}

/** Encodes a value with a context-specific tag, which contains the value's own tag (explicit tagging). */
export function explicit(number: number, value: Buffer): Buffer {
  return encode(CONTEXT | CONSTRUCTED | number, value);
}

/** Encodes a value with a context-specific tag, which replaces its own tag (implicit tagging). */
export function implicit(number: number, content: Buffer): Buffer {
  return encode(CONTEXT | number, content);
}

/** A point in time, to the second and in UTC: two digits of the year up to 2049, four from 2050 (RFC 5280 §4.1.2.5). Throws beyond the year 9999. */
export function time(at: EpochMilliseconds): Buffer {
  const digits = `${toInstant(at).slice(0, 19).replace(/[-:T]/g, '')}Z`;
  const year = Number(/^\d{4}/.exec(digits)?.[0]);
  if (!(year >= 1950 && year <= LAST_YEAR))
    throw new RangeError(`the year of ${toInstant(at)} is outside the range of a certificate (1950 to ${LAST_YEAR})`);
  return year < FIRST_GENERALIZED_YEAR
    ? encode(TAG.utcTime, Buffer.from(digits.slice(2), 'latin1'))
    : encode(TAG.generalizedTime, Buffer.from(digits, 'latin1'));
}
