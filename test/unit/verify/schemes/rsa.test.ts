/** RSA signatures, and the forms of public keys. */
import { execFileSync } from 'node:child_process';
import {
  constants,
  createPrivateKey,
  generateKeyPairSync,
  type KeyObject,
  sign as signBytes,
  X509Certificate,
} from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { HeaderFields } from '../../../../src/core/head.ts';
import { Secret } from '../../../../src/core/secret.ts';
import { compileScheme } from '../../../../src/verify/schemes/compile.ts';
import type { Algorithm, SchemeDescription } from '../../../../src/verify/schemes/description.ts';
import type { Scheme, VerifyKey } from '../../../../src/verify/schemes/scheme.ts';
import { useFolder } from '../../../support/fixtures.ts';
import { RSA_PAIR, toPem } from '../../../support/tokens.ts';

const BODY = Buffer.from('{"a":1}');

function toScheme(algorithm: Algorithm = 'rsa-sha256'): Scheme {
  const description: SchemeDescription = {
    name: 'custom',
    signature: { header: 'X-Signature', encoding: 'base64', forms: [{ prefix: '', algorithm }] },
    signed: ['body'],
    separator: '',
    secret: { encoding: 'utf8' },
    publicKey: { encoding: 'base64', format: 'spki' },
    tolerance: { past: 0, future: 0 },
    contentTypes: ['application/json'],
  };
  return compileScheme(description);
}

function parse(text: string, scheme = toScheme()): VerifyKey | string {
  const parsed = scheme.parseKey('k', new Secret(Buffer.from(text)), undefined);
  return 'problem' in parsed ? `${parsed.problem}; ${parsed.hint}` : parsed.key;
}

function isVerified(scheme: Scheme, key: VerifyKey | string, signature: Buffer, body = BODY): boolean {
  if (typeof key === 'string') throw new Error(key);
  const head = scheme.readHead(new HeaderFields(['x-signature', signature.toString('base64')]), { allowDotInId: false });
  return !('code' in head) && scheme.verify(head, { method: 'POST', url: '', body }, [key]) !== undefined;
}

describe('an RSA signature', () => {
  const { privateKey, publicKey } = RSA_PAIR;
  const pss = (saltLength: number) => ({ padding: constants.RSA_PKCS1_PSS_PADDING, saltLength });
  const signatures: Record<string, Buffer> = {
    'rsa-sha256': signBytes('sha256', BODY, privateKey),
    'rsa-sha512': signBytes('sha512', BODY, privateKey),
    'rsa-pss-sha256': signBytes('sha256', BODY, { key: privateKey, ...pss(32) }),
    'rsa-pss-sha512': signBytes('sha512', BODY, { key: privateKey, ...pss(64) }),
  };
  const algorithms = Object.keys(signatures) as Algorithm[];

  test.each(algorithms)('by %s is verified, and by no other algorithm, key or body', (algorithm) => {
    const scheme = toScheme(algorithm);
    const key = parse(toPem(publicKey), scheme);
    const other = parse(toPem(generateKeyPairSync('rsa', { modulusLength: 2048 }).publicKey), scheme);
    for (const name of algorithms) expect(isVerified(scheme, key, signatures[name] ?? Buffer.alloc(0))).toBe(name === algorithm);
    const own = signatures[algorithm] ?? Buffer.alloc(0);
    expect(isVerified(scheme, other, own)).toBe(false);
    expect(isVerified(scheme, key, own, Buffer.from('{"a":2}'))).toBe(false);
    expect(isVerified(scheme, key, Buffer.concat([own, Buffer.alloc(1)]))).toBe(false);
    expect(isVerified(scheme, key, Buffer.concat([Buffer.alloc(1), own]))).toBe(false);
    expect(isVerified(scheme, key, own.subarray(1))).toBe(false);
    expect(isVerified(scheme, key, Buffer.alloc(256))).toBe(false);
    expect(isVerified(scheme, key, Buffer.alloc(256, 0xff))).toBe(false);
  });

  test.each(algorithms)('by %s is made with a private key', (algorithm) => {
    const scheme = toScheme(algorithm);
    const secret = new Secret(Buffer.from(toPem(privateKey)));
    const [[, value = ''] = []] = scheme.sign({ id: 'a', timestamp: 0, body: BODY }, secret, undefined);
    expect(isVerified(scheme, parse(toPem(publicKey), scheme), Buffer.from(value, 'base64'))).toBe(true);
  });

  test('by PSS is verified with any length of the salt', () => {
    const scheme = toScheme('rsa-pss-sha256');
    for (const length of [0, 20, 222])
      expect(
        isVerified(scheme, parse(toPem(publicKey), scheme), signBytes('sha256', BODY, { key: privateKey, ...pss(length) })),
      ).toBe(true);
  });
});

describe('an RSA key', () => {
  const { publicKey, privateKey } = RSA_PAIR;
  const der = publicKey.export({ format: 'der', type: 'spki' });
  const jwk = publicKey.export({ format: 'jwk' });

  test.each<[string, string]>([
    ['PEM', toPem(publicKey)],
    ['PEM as PKCS #1', publicKey.export({ format: 'pem', type: 'pkcs1' }).toString()],
    ['base64', der.toString('base64')],
    ['a JWK', JSON.stringify({ ...jwk, kid: 'one', use: 'sig', alg: 'RS256', created_at: 1, expired_at: null })],
  ])('is read as %s', (_title, text) => {
    expect(isVerified(toScheme(), parse(text), signBytes('sha256', BODY, privateKey))).toBe(true);
  });

  const toJwk = (key: KeyObject): string => JSON.stringify(key.export({ format: 'jwk' }));
  const small = generateKeyPairSync('rsa', { modulusLength: 1024 });
  const odd = generateKeyPairSync('rsa', { modulusLength: 2048, publicExponent: 3 });
  test.each<[string, string, RegExp]>([
    ['1024 bits', toPem(small.publicKey), /^the RSA key has 1024 bits; the sender must use a key of 2048 to 8192 bits/],
    ['a small exponent', toPem(odd.publicKey), /^the exponent of the RSA key is 3; /],
    ['a private key', toPem(privateKey), /^this is a private key; verification needs the public key/],
    ['a private key as a JWK', toJwk(privateKey), /^this is a private key/],
    ['a JWK Set', JSON.stringify({ keys: [jwk] }), /^this is a JWK Set; configure each of its keys/],
    ['a JWK for encryption', JSON.stringify({ ...jwk, use: 'enc' }), /^the JWK is not a key of this scheme; /],
    ['a JWK for another algorithm', JSON.stringify({ ...jwk, alg: 'PS256' }), /^the JWK is not a key of this scheme; .*RS256/],
    ['a JWK with a member twice', JSON.stringify(jwk).replace('{', '{"kty":"EC",'), /^the JWK cannot be parsed: .*repeated/],
    ['a JWK that ends too early', JSON.stringify(jwk).slice(0, -9), /^the JWK cannot be parsed/],
    ['a key of another kind', toPem(generateKeyPairSync('ed25519').publicKey), /an RSA key/],
    ['an HMAC secret', 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw', /an RSA key/],
  ])('is rejected: %s', (_title, text, expected) => {
    expect(parse(text)).toMatch(expected);
  });
});

describe('a certificate', () => {
  const folder = useFolder();
  const [cert, key] = [join(folder, 'own.crt'), join(folder, 'own.key')];
  const request = [
    'req',
    '-x509',
    '-newkey',
    'rsa:2048',
    '-nodes',
    '-days',
    '2',
    '-subj',
    '/CN=sender',
    '-keyout',
    key,
    '-out',
    cert,
  ];
  execFileSync('openssl', request, { stdio: 'ignore' });
  const pem = readFileSync(cert, 'utf8');
  const { validFrom, validTo } = new X509Certificate(pem);

  test('pins its key, which is valid as long as the certificate', () => {
    const pinned = parse(pem);
    expect(pinned).toMatchObject({ notBefore: Date.parse(validFrom), notAfter: Date.parse(validTo) + 1_000 });
    expect(isVerified(toScheme(), pinned, signBytes('sha256', BODY, createPrivateKey(readFileSync(key))))).toBe(true);
  });

  test('ends no later than the key is configured to end', () => {
    const end = Date.parse(validFrom) + 1_000;
    expect(toScheme().parseKey('k', new Secret(Buffer.from(pem)), undefined, end)).toMatchObject({ key: { notAfter: end } });
  });

  test('is rejected beside another one, or if it is cut off', () => {
    expect(parse(pem + pem)).toMatch(/^this is not one certificate in PEM; configure each/);
    expect(parse(pem.slice(0, 300))).toMatch(/^the certificate cannot be parsed/);
  });
});
