import { createHmac, createSecretKey } from 'node:crypto';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { createHmacFunction, type HmacDigest } from '../../../src/core/hmac.ts';

const DIGESTS: readonly HmacDigest[] = ['sha1', 'sha256', 'sha384', 'sha512'];
/** The length at which messages are no longer copied. */
const LONGEST_COPY = 16_384;

function toExpected(digest: string, key: Buffer, chunks: readonly (string | Buffer)[]): string {
  const bytes = chunks.map((chunk) => (typeof chunk === 'string' ? Buffer.from(chunk, 'latin1') : chunk));
  return createHmac(digest, key).update(Buffer.concat(bytes)).digest('hex');
}

/** Lengths around the blocks of the hash functions, where padding and hashing of the key begin. */
const keys = fc
  .oneof(fc.constantFrom(1, 20, 32, 63, 64, 65, 127, 128, 129, 4_096), fc.integer({ min: 1, max: 300 }))
  .chain((length) => fc.uint8Array({ minLength: length, maxLength: length }))
  .map((bytes) => Buffer.from(bytes));
const latin1 = fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes).toString('latin1'));
const buffers = fc.uint8Array({ maxLength: 2_000 }).map((bytes) => Buffer.from(bytes));
const long = fc
  .constantFrom(LONGEST_COPY - 1, LONGEST_COPY, LONGEST_COPY + 1, 70_000)
  .map((length) => Buffer.alloc(length, 'long message '));
const messages = fc.oneof(
  { weight: 9, arbitrary: fc.array(fc.oneof(latin1, buffers), { maxLength: 6 }) },
  fc.tuple(latin1, long),
);

it.each(DIGESTS)('computes the same HMAC-%s as OpenSSL, for keys and messages of all lengths', (digest) => {
  const compute = createHmacFunction(digest);
  fc.assert(
    fc.property(keys, messages, (key, chunks) => {
      expect(compute(createSecretKey(key), chunks).toString('hex')).toBe(toExpected(digest, key, chunks));
    }),
    { numRuns: 300 },
  );
});

it('keeps results, keys and algorithms apart, although they share memory', () => {
  const [short, other] = [createSecretKey(Buffer.alloc(32, 1)), createSecretKey(Buffer.alloc(200, 2))];
  const [sha256, sha512] = [createHmacFunction('sha256'), createHmacFunction('sha512')];
  const message = [Buffer.alloc(1_000, 'a')];
  const results = [sha256(short, message), sha512(short, message), sha256(other, message), sha512(other, [])];
  sha256(other, ['overwrites the shared memory']);
  expect(results.map((each) => each.toString('hex'))).toEqual([
    toExpected('sha256', Buffer.alloc(32, 1), message),
    toExpected('sha512', Buffer.alloc(32, 1), message),
    toExpected('sha256', Buffer.alloc(200, 2), message),
    toExpected('sha512', Buffer.alloc(200, 2), []),
  ]);
});

it('uses the low byte of characters beyond latin1, as createHmac does', () => {
  const key = createSecretKey(Buffer.from('secret'));
  const text = 'id-\u{1f600}é.';
  expect(createHmacFunction('sha256')(key, [text]).toString('hex')).toBe(
    createHmac('sha256', key).update(text, 'latin1').digest('hex'),
  );
});
