import crypto, { createHmac } from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import { expect, test, vi } from 'vitest';
import { VerifiedCache } from '../../../src/users/verifier.ts';
import { FakeClock } from '../../support/fake-clock.ts';

/** Makes a cache, and returns its key too, which leaves it by no other way than the call that makes it. */
function makeCache(): { readonly cache: VerifiedCache; readonly key: Buffer } {
  const made = vi.spyOn(crypto, 'randomBytes');
  syncBuiltinESMExports();
  const cache = new VerifiedCache({ ttl: 1_000, maxEntries: 2 }, new FakeClock());
  const [result] = made.mock.results;
  made.mockRestore();
  syncBuiltinESMExports();
  return { cache, key: result?.value as unknown as Buffer };
}

test('identifies credentials by their HMAC-SHA-256 (RFC 2104), each field after its length', () => {
  const { cache, key } = makeCache();
  const expected = createHmac('sha256', key).update('9:192.0.2.15:4:anné', 'utf8').update('p\xe4ss', 'latin1').digest('base64');
  for (let i = 0; i < 2; i++)
    expect(cache.toDigest({ user: 'anné', password: Buffer.from('p\xe4ss', 'latin1') }, '192.0.2.1')).toBe(expected);
});

test('distinguishes users whose names differ only in characters outside latin1', () => {
  const cache = new VerifiedCache({ ttl: 1_000, maxEntries: 2 }, new FakeClock());
  const [one, other] = ['\u0141', '\u0241'].map((user) => cache.toDigest({ user, password: Buffer.from('p') }, '192.0.2.1'));
  expect(one).not.toBe(other);
});
