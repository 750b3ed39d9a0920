import { createHmac } from 'node:crypto';
import { expect, test } from 'vitest';
import { compileSignatures, toEntries } from '../../../../src/verify/schemes/head.ts';
import { judge, NOW, PUBLIC_URL, toCase, toPreset } from '../../../support/preset-cases.ts';

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

test('spaces separate entries, also after a comma, and nothing else does', () => {
  expect(toEntries('v1,a v1,b', ' ')).toEqual(['v1,a', 'v1,b']);
  expect(toEntries('v1,a, v1,b, v1,c', ' ')).toEqual(['v1,a', 'v1,b', 'v1,c']);
  expect(toEntries('v1,a,  v1,b,', ' ')).toEqual(['v1,a', '', 'v1,b,']);
});

test('of the secrets of Supabase each signs, whichever the route has', () => {
  const secrets = [Buffer.alloc(32, 1), Buffer.alloc(32, 2), Buffer.alloc(32, 3)];
  const timestamp = String(NOW / 1000);
  const body = Buffer.from('{"user":{}}');
  const sign = (secret: Buffer): string => createHmac('sha256', secret).update(`msg_1.${timestamp}.${body}`).digest('base64');
  const signature = secrets.map((secret) => `v1,${sign(secret)}`).join(', ');
  for (const secret of secrets) {
    const text = `whsec_${secret.toString('base64')}`;
    const one = toCase(toPreset('supabase'), { secret: text, signingSecret: text });
    expect(judge(one, { id: 'msg_1', timestamp, method: 'POST', url: `${PUBLIC_URL}/hook`, body, signature })).toBe('ok');
  }
});
