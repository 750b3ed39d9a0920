import { createHmac, createPublicKey, verify } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { Secret } from '../../../../src/core/secret.ts';
import {
  createDeliverySigner,
  createSigningSecret,
  findPublicKey,
  formatSigningSecret,
  parseSigningSecret,
  type SigningSecret,
} from '../../../../src/verify/sign/signing-keys.ts';

const toText = (prefix: string, bytes: number): string => `${prefix}${Buffer.alloc(bytes, 9).toString('base64')}`;
const parse = (text: string): SigningSecret => {
  const parsed = parseSigningSecret(text);
  if ('problem' in parsed) throw new Error(parsed.problem);
  return parsed;
};

describe('parseSigningSecret', () => {
  test.each([24, 32, 64])('accepts a whsec_ secret of %i bytes, and formats it unchanged', (bytes) => {
    const text = toText('whsec_', bytes);
    const parsed = parse(text);
    expect(parsed.version).toBe('v1');
    expect(parsed.secret.expose()).toEqual(Buffer.alloc(bytes, 9));
    expect(formatSigningSecret(parsed)).toBe(text);
  });

  test('accepts a whsk_ seed, and the seed with its public key', () => {
    const parsed = parse(toText('whsk_', 32));
    expect(parsed.version).toBe('v1a');
    const publicKey = Buffer.from(findPublicKey(parsed)?.slice('whpk_'.length) ?? '', 'base64');
    const both = parse(`whsk_${Buffer.concat([Buffer.alloc(32, 9), publicKey]).toString('base64')}`);
    expect(both.secret.expose()).toEqual(parsed.secret.expose());
    expect(formatSigningSecret(both)).toBe(toText('whsk_', 32));
  });

  test.each([
    ['an empty secret', ''],
    ['a secret without a prefix', 'MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'],
    ['a secret that is only a prefix', 'whsec_'],
    ['23 bytes', toText('whsec_', 23)],
    ['65 bytes', toText('whsec_', 65)],
    ['missing padding', toText('whsec_', 32).replace(/=+$/, '')],
    ['a space at the end', `${toText('whsec_', 24)} `],
    ['base64url', `whsec_${Buffer.alloc(24, 0xff).toString('base64url')}`],
    ['a prefix in upper case', toText('WHSEC_', 32)],
    ['a public key', toText('whpk_', 32)],
    ['a seed of 31 bytes', toText('whsk_', 31)],
    ['a private key whose halves do not belong together', toText('whsk_', 64)],
  ])('rejects %s, and never quotes the text', (_, text) => {
    const parsed = parseSigningSecret(text);
    if (!('problem' in parsed)) throw new Error('accepted');
    const digits = text.replace(/^[a-z]+_/i, '').trim();
    if (digits !== '') expect(`${parsed.problem} ${parsed.hint}`).not.toContain(digits);
    expect(parsed.hint).not.toBe('');
  });
});

test('creates secrets of 32 random bytes', () => {
  const [a, b] = [createSigningSecret(), createSigningSecret()];
  expect(a.secret.length).toBe(32);
  expect(formatSigningSecret(a)).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
  expect(formatSigningSecret(a)).not.toBe(formatSigningSecret(b));
  expect(findPublicKey(a)).toBeUndefined();
});

describe('createDeliverySigner', () => {
  const body = Buffer.from('{"test": 2432232314}');

  test('signs as the published vectors of v1 and v1a', () => {
    const v1 = createDeliverySigner(parse('whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'));
    expect(v1.sign('msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.', body)).toBe('v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=');
  });

  test('makes signatures that node:crypto verifies', () => {
    const bytes = Buffer.alloc(40, 3);
    const mac = createHmac('sha256', bytes).update('id.1.').update(body).digest('base64');
    expect(createDeliverySigner({ version: 'v1', secret: new Secret(bytes) }).sign('id.1.', body)).toBe(`v1,${mac}`);

    const parsed = parse(toText('whsk_', 32));
    const [version, signature = ''] = createDeliverySigner(parsed).sign('id.1.', body).split(',');
    expect(version).toBe('v1a');
    const raw = Buffer.from(findPublicKey(parsed)?.slice('whpk_'.length) ?? '', 'base64');
    const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x: raw.toString('base64url') }, format: 'jwk' });
    expect(verify(null, Buffer.concat([Buffer.from('id.1.'), body]), key, Buffer.from(signature, 'base64'))).toBe(true);
  });

  test('throws for a seed of the wrong length', () => {
    expect(() => createDeliverySigner({ version: 'v1a', secret: new Secret(Buffer.alloc(31)) })).toThrow();
  });
});
