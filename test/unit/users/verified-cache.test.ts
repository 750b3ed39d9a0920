import { createHmac } from 'node:crypto';
import { expect, test, vi } from 'vitest';
import { VerifiedCache } from '../../../src/users/verified-cache.ts';
import { FakeClock } from '../../support/fake-clock.ts';

/** The key of a cache leaves it by no other way than the call that makes it. */
const made = vi.hoisted(() => [] as Buffer[]);
vi.mock('node:crypto', async (importOriginal) => {
  const real = await importOriginal<typeof import('node:crypto')>();
  const randomBytes = (size: number): Buffer => {
    const bytes = real.randomBytes(size);
    made.push(Buffer.from(bytes));
    return bytes;
  };
  return { ...real, randomBytes };
});

test('identifies credentials by their HMAC-SHA-256 (RFC 2104), each field after its length', () => {
  const cache = new VerifiedCache({ ttl: 1_000, maxEntries: 2 }, new FakeClock());
  const [bytes] = made;
  if (bytes === undefined) throw new Error('no key was made');
  const expected = createHmac('sha256', bytes).update('9:192.0.2.15:4:anné', 'utf8').update('p\xe4ss', 'latin1').digest('base64');
  for (let i = 0; i < 2; i++)
    expect(cache.toDigest({ user: 'anné', password: Buffer.from('p\xe4ss', 'latin1') }, '192.0.2.1')).toBe(expected);
});

test('distinguishes users whose names differ only in characters outside latin1', () => {
  const cache = new VerifiedCache({ ttl: 1_000, maxEntries: 2 }, new FakeClock());
  const [one, other] = ['\u0141', '\u0241'].map((user) => cache.toDigest({ user, password: Buffer.from('p') }, '192.0.2.1'));
  expect(one).not.toBe(other);
});
