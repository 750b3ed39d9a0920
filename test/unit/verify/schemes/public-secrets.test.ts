/** Public keys that somebody configures as secrets: everyone could sign with them. */
import { generateKeyPairSync, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { Secret } from '../../../../src/core/secret.ts';
import { findPreset } from '../../../../src/verify/presets/catalogue.ts';
import { compileScheme } from '../../../../src/verify/schemes/compile.ts';
import type { SchemeDescription, SecretEncoding } from '../../../../src/verify/schemes/description.ts';
import type { Scheme } from '../../../../src/verify/schemes/scheme.ts';
import { useAuthority } from '../../../support/fixtures.ts';
import { makeToken, RSA_PAIR, toKeys, toPem } from '../../../support/tokens.ts';

const { publicKey } = RSA_PAIR;
const certificate = readFileSync(useAuthority().ca, 'utf8');
const spki = publicKey.export({ format: 'der', type: 'spki' });
const jwk = publicKey.export({ format: 'jwk' });
const vonage = findPreset('vonage') as SchemeDescription;

function parse(scheme: Scheme, text: string | Buffer, encoding?: SecretEncoding): ReturnType<Scheme['parseKey']> {
  return scheme.parseKey('k', new Secret(Buffer.from(text)), encoding);
}

const problem = { problem: 'this is a public key, not a secret' };

describe('a public key is rejected as the secret of an HMAC', () => {
  const scheme = compileScheme(vonage);
  test.each<[string, string | Buffer, SecretEncoding?]>([
    ['in PEM', toPem(publicKey)],
    ['in PEM after a space', ` ${toPem(publicKey)}`],
    ['in PEM as PKCS #1', publicKey.export({ format: 'pem', type: 'pkcs1' }).toString()],
    ['in PEM in base64', Buffer.from(toPem(publicKey)).toString('base64'), 'base64'],
    ['in DER', spki],
    ['in DER as PKCS #1', publicKey.export({ format: 'der', type: 'pkcs1' })],
    ['in DER in base64', spki.toString('base64')],
    ['in DER in base64, decoded', spki.toString('base64'), 'base64'],
    ['in DER in hex', spki.toString('hex'), 'hex'],
    ['in a certificate', certificate],
    ['in a certificate in base64', new X509Certificate(certificate).raw.toString('base64')],
    ['as a JWK', JSON.stringify(jwk)],
    ['as a JWK with line breaks', `\n${JSON.stringify(jwk, null, 2)}\n`],
    ['as a JWK Set', JSON.stringify({ keys: [jwk] })],
  ])('%s', (_title, text, encoding) => {
    expect(parse(scheme, text, encoding)).toMatchObject(problem);
  });

  test('but not what only looks like one', () => {
    for (const text of [
      '{"kty":"oct","k":"c2VjcmV0c2VjcmV0"}',
      '{ a long secret that starts oddly',
      'MIIBIjANBgkqhkiG9w0BAQEFAAOC',
    ])
      expect(parse(scheme, text)).toHaveProperty('key');
  });
});

describe('a scheme with secrets and key pairs', () => {
  const both: SchemeDescription = {
    ...vonage,
    signature: {
      header: 'Authorization',
      encoding: 'jwt',
      forms: [
        { prefix: 'Bearer ', algorithm: 'hmac-sha256' },
        { prefix: 'Bearer ', algorithm: 'rsa-sha256' },
      ],
    },
  };

  test.each<SecretEncoding | undefined>([undefined, 'utf8', 'base64', 'hex'])(
    'takes a text with the prefix of public keys for one, with encoding: %s',
    (encoding) => {
      const scheme = compileScheme(findPreset('standard-webhooks') as SchemeDescription);
      const raw = generateKeyPairSync('ed25519').publicKey.export({ format: 'der', type: 'spki' }).subarray(-32);
      expect(parse(scheme, `whpk_${raw.toString('base64')}`, encoding)).toMatchObject({
        key: { material: { algorithm: 'ed25519' } },
      });
    },
  );

  test.each([
    ['a JWK', JSON.stringify(jwk)],
    ['PEM', toPem(publicKey)],
  ])('takes %s for a public key, and accepts no HMAC by it', async (_title, text) => {
    const scheme = compileScheme(both);
    const [key] = toKeys(both, text);
    if (key === undefined || scheme.token === undefined) throw new Error('no key or no token');
    const { jwt } = scheme.token;
    const verify = (token: string) => {
      const read = jwt.readHeader(`Bearer ${token}`);
      return 'problem' in read ? read : jwt.verify(read, Buffer.alloc(0), [key], Date.now());
    };
    expect(await verify(makeToken({ alg: 'HS256' }, {}, text, 'HS256'))).toBe('mismatch');
    expect(await verify(makeToken({ alg: 'RS256' }, {}, RSA_PAIR.privateKey))).toMatchObject({ kind: 'stranger' });
  });
});
