import { expect, test } from 'vitest';
import { compileSignatures } from '../../../../src/verify/schemes/head.ts';

test.each([
  ['ed25519', 64, 4],
  ['hmac-sha256', 32, 10],
] as const)('of ten signatures with %s, each of %i bytes, %i are tried', (algorithm, length, tried) => {
  const forms = [{ prefix: 'v1,', algorithm }];
  const read = compileSignatures({ header: 'signature', list: ' ', encoding: 'base64', forms });
  const entries = Array.from({ length: 10 }, (_, i) => `v1,${Buffer.alloc(length, i).toString('base64')}`);
  const found = read(entries);
  expect(Array.isArray(found) && found.map(({ bytes }) => bytes[0])).toEqual(Array.from({ length: tried }, (_, i) => i));
});
