/** JSON Web Tokens: what is accepted, and every known way to make a verifier accept what the sender did not sign. */
import { createHash, generateKeyPairSync } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { HeaderFields } from '../../../../src/core/head.ts';
import { compileScheme } from '../../../../src/verify/schemes/compile.ts';
import type { SchemeDescription } from '../../../../src/verify/schemes/description.ts';
import type { JwtDescription } from '../../../../src/verify/schemes/key-description.ts';
import { parseJwk } from '../../../../src/verify/schemes/keys.ts';
import type { VerifyKey } from '../../../../src/verify/schemes/scheme.ts';
import { fc } from '../../../support/property.ts';
import { encodePart, judgeToken, makeToken, RSA_PAIR, signText, toPem } from '../../../support/tokens.ts';

const AT = 1_800_000_000_000;
const SECONDS = AT / 1_000;
const BODY = Buffer.from('{"a":1}');
const PUBLIC_PEM = toPem(RSA_PAIR.publicKey);
const HEADER = { alg: 'RS256', typ: 'JWT' };

function toDigest(body: Buffer): string {
  return createHash('sha256').update(body).digest('hex');
}

const CLAIMS = { iss: 'sender', aud: 'me', exp: SECONDS + 60, jti: 'id-1', sha256: toDigest(BODY) };

function toScheme(jwt: Partial<JwtDescription> = {}, more: Partial<SchemeDescription> = {}): SchemeDescription {
  return {
    name: 'custom',
    signature: { header: 'X-Token', encoding: 'jwt', forms: [{ prefix: '', algorithm: 'rsa-sha256' }] },
    signed: ['body'],
    separator: '',
    id: { claim: '$.jti' },
    secret: { encoding: 'utf8' },
    publicKey: { encoding: 'base64', format: 'spki' },
    tolerance: { past: 300_000, future: 300_000 },
    contentTypes: ['application/json'],
    jwt: {
      issuers: ['sender'],
      audience: ['me'],
      bodyHash: { claim: '$.sha256', digest: 'sha256', encoding: 'hex' },
      ...jwt,
    },
    ...more,
  };
}

const SCHEME = toScheme();

function judge(token: string, { scheme = SCHEME, body = BODY, secret = PUBLIC_PEM, at = AT } = {}): Promise<string> {
  return judgeToken(scheme, { secret, headers: { 'x-token': token }, body, at });
}

function sign(claims: object | string = CLAIMS, header: object | string = HEADER): string {
  return makeToken(header, claims, RSA_PAIR.privateKey);
}

const [HEAD_PART = '', CLAIM_PART = '', SIGNATURE_PART = ''] = sign().split('.');

describe('a token', () => {
  test('is accepted with its ID, if it is as the scheme requires', async () => {
    expect(await judge(sign())).toBe('ok id-1');
  });

  test.each([
    ['has another issuer', { ...CLAIMS, iss: 'other' }, 'signature_mismatch: the claim $.iss is not an accepted issuer'],
    ['has no issuer', { ...CLAIMS, iss: undefined }, 'signature_mismatch: the claim $.iss is not an accepted issuer'],
    ['has another audience', { ...CLAIMS, aud: 'you' }, 'signature_mismatch: $.aud is not an accepted audience'],
    ['has no audience', { ...CLAIMS, aud: undefined }, 'signature_mismatch: $.aud is not an accepted audience'],
    ['has an audience in another case', { ...CLAIMS, aud: 'ME' }, 'signature_mismatch: $.aud is not an accepted audience'],
    ['has expired', { ...CLAIMS, exp: SECONDS - 60 }, 'timestamp_outside_tolerance: the token has expired'],
    [
      'has an expiry that is a text',
      { ...CLAIMS, exp: String(SECONDS) },
      'malformed_signature: the claim $.exp is missing or malformed',
    ],
    ['is not valid yet', { ...CLAIMS, nbf: SECONDS + 61 }, 'timestamp_outside_tolerance: the token is not valid yet'],
    [
      'signs another body',
      { ...CLAIMS, sha256: toDigest(Buffer.from('{}')) },
      'signature_mismatch: the token is valid, but signs another body than this one ($.sha256)',
    ],
    [
      'has a digest in another encoding',
      { ...CLAIMS, sha256: createHash('sha256').update(BODY).digest('base64') },
      'malformed_signature: the claim $.sha256 is not a digest in hex',
    ],
    ['has no digest', { ...CLAIMS, sha256: undefined }, 'malformed_signature: the claim $.sha256 is not a digest in hex'],
    [
      'has a list for a digest',
      { ...CLAIMS, sha256: [toDigest(BODY)] },
      'malformed_signature: the claim $.sha256 is not a digest in hex',
    ],
  ])('is rejected if it %s', async (_title, claims, expected) => {
    expect(await judge(sign(claims))).toBe(expected);
  });

  test('is accepted within the tolerance of the clocks, and with one of several audiences', async () => {
    expect(await judge(sign({ ...CLAIMS, aud: ['you', 'me'], exp: SECONDS - 59, nbf: SECONDS + 60 }))).toBe('ok id-1');
    const strict = toScheme({ clockTolerance: 0 });
    expect(await judge(sign({ ...CLAIMS, exp: SECONDS }), { scheme: strict })).toMatch(/expired/);
  });

  test('without an expiry is rejected if the scheme requires one', async () => {
    const { exp: _, ...rest } = CLAIMS;
    expect(await judge(sign(rest))).toBe('ok id-1');
    const scheme = toScheme({ requiresExpiry: true });
    expect(await judge(sign(rest), { scheme })).toBe('malformed_signature: the claim $.exp is missing or malformed');
  });

  test('must have the accepted values of other claims, of the same type', async () => {
    const scheme = toScheme({ claims: { '$.email': ['a@example.com'], '$.email_verified': [true] } });
    const claims = { ...CLAIMS, email: 'a@example.com', email_verified: true };
    expect(await judge(sign(claims), { scheme })).toBe('ok id-1');
    for (const wrong of [
      { email: 'b@example.com' },
      { email: ['a@example.com'] },
      { email_verified: 'true' },
      { email: undefined },
    ])
      expect(await judge(sign({ ...claims, ...wrong }), { scheme })).toMatch(
        /^signature_mismatch: the claim .* is not an accepted value$/,
      );
  });

  test('has its time in a claim, which is checked before the body is read', () => {
    const scheme = compileScheme(toScheme({}, { timestamp: { from: { claim: '$.iat' }, unit: 's' } }));
    const read = (claims: object) => scheme.readHead(new HeaderFields(['x-token', sign(claims)]), { allowDotInId: false });
    expect(read({ ...CLAIMS, iat: SECONDS })).toMatchObject({ timestamp: AT });
    expect(read(CLAIMS)).toMatchObject({ code: 'malformed_signature', detail: expect.stringContaining('$.iat') });
    expect(read({ ...CLAIMS, iat: `${SECONDS}x` })).toMatchObject({ code: 'malformed_signature' });
  });
});

describe('a token that nobody signed with the key of the route', () => {
  const stranger = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const HS = { ...HEADER, alg: 'HS256' };

  test('is rejected', async () => {
    expect(await judge(makeToken(HEADER, CLAIMS, stranger.privateKey))).toBe('mismatch');
  });

  test.each([
    ['without a signature', { alg: 'none' }, 'none', ''],
    ['without a signature, in capitals', { alg: 'NONE' }, 'none', ''],
    ['without an algorithm', { typ: 'JWT' }, 'none', ''],
    ['with the public key as the secret of an HMAC', HS, 'HS256', PUBLIC_PEM],
    [
      'with the public key in DER as the secret',
      HS,
      'HS256',
      RSA_PAIR.publicKey.export({ format: 'der', type: 'spki' }).toString('latin1'),
    ],
    ['with an empty secret', HS, 'HS256', ''],
  ])('is rejected %s', async (_title, header, alg, key) => {
    expect(await judge(makeToken(header, CLAIMS, key, alg))).toMatch(/^malformed_signature: the token is not signed by RS256$/);
  });

  test('is rejected if it has a valid signature of another algorithm of the same key', async () => {
    const text = `${encodePart({ ...HEADER, alg: 'RS512' })}.${encodePart(CLAIMS)}`;
    const token = `${text}.${signText('RS512', text, RSA_PAIR.privateKey).toString('base64url')}`;
    expect(await judge(token)).toMatch(/^malformed_signature: the token is not signed by RS256$/);
    // And if only its header says so.
    const [, claims = '', signature = ''] = sign().split('.');
    expect(await judge(`${encodePart({ ...HEADER, alg: 'RS512' })}.${claims}.${signature}`)).toMatch(/^malformed_signature/);
  });

  test.each(['jku', 'x5u', 'jwk', 'x5c', 'x5t', 'x5t#S256', 'crit', 'b64', 'zip', 'enc'])(
    'is rejected for %s in its header, even if it is signed',
    async (name) => {
      const value =
        name === 'crit' ? ['exp'] : name === 'jwk' ? stranger.publicKey.export({ format: 'jwk' }) : 'https://evil.example/';
      expect(await judge(sign(CLAIMS, { ...HEADER, [name]: value }))).toBe(
        `malformed_signature: the header of the token has ${name}, which this scheme does not use`,
      );
    },
  );
});

describe('a text is not taken for a token', () => {
  const twice = '{"alg":"RS256","alg":"none"}';
  test.each([
    ['with four parts', `${sign()}.e30`, 'three parts'],
    ['with two parts', `${HEAD_PART}.${CLAIM_PART}`, 'three parts'],
    ['with two tokens', `${sign()}, ${sign()}`, 'three parts'],
    ['with padding', `${HEAD_PART}=.${CLAIM_PART}.${SIGNATURE_PART}`, 'canonical base64url'],
    [
      'in plain base64',
      `${HEAD_PART}.${CLAIM_PART}.${Buffer.from(SIGNATURE_PART, 'base64url').toString('base64')}`,
      'canonical base64url',
    ],
    ['with spaces', `${HEAD_PART}. ${CLAIM_PART}.${SIGNATURE_PART}`, 'canonical base64url'],
    [
      'with unused bits',
      `${HEAD_PART}.${CLAIM_PART}.${SIGNATURE_PART.slice(0, -1)}${SIGNATURE_PART.endsWith('A') ? 'B' : 'D'}`,
      'canonical base64url',
    ],
    ['with a header that is not JSON', makeToken('x', CLAIMS, RSA_PAIR.privateKey), 'not valid JSON'],
    ['with a list for a header', makeToken('[]', CLAIMS, RSA_PAIR.privateKey), 'not an object'],
    ['with an algorithm twice', sign(CLAIMS, twice), 'is repeated'],
    ['with a claim twice', sign('{"iss":"sender","aud":"you","aud":"me"}'), 'is repeated'],
    ['with a claim twice, once escaped', sign('{"aud":"me","\\u0061ud":"you"}'), 'is repeated'],
    ['with claims that are a text', sign('"a"'), 'not an object'],
    [
      'with claims in another encoding',
      `${HEAD_PART}.${Buffer.from('{"a":"\xff"}', 'latin1').toString('base64url')}.${SIGNATURE_PART}`,
      'not UTF-8',
    ],
    ['with a byte order mark', sign(`\ufeff${JSON.stringify(CLAIMS)}`), 'not valid JSON'],
    ['with deep claims', sign(`{"a":${'['.repeat(40)}${']'.repeat(40)}}`), 'levels'],
    ['with many claims', sign(`{"a":[${'1,'.repeat(10_000)}1]}`), 'values'],
    ['with a kid that is a list', sign(CLAIMS, { ...HEADER, kid: ['a'] }), 'kid'],
    ['with a long kid', sign(CLAIMS, { ...HEADER, kid: 'k'.repeat(257) }), 'kid'],
    ['with an empty signature', `${HEAD_PART}.${CLAIM_PART}.`, 'length'],
  ])('%s', async (_title, text, expected) => {
    const found = await judge(text);
    expect(found).toMatch(/^malformed_signature/);
    expect(found).toContain(expected);
  });
});

test('no change of one character of a token, and none of the body, is accepted', async () => {
  const token = sign();
  const change = fc.tuple(fc.nat(token.length - 1), fc.constantFrom(...'ABCDabcd0189-_.=+/ '));
  await fc.assert(
    fc.asyncProperty(change, async ([at, other]) => {
      const changed = token.slice(0, at) + other + token.slice(at + 1);
      fc.pre(changed !== token);
      expect(await judge(changed)).not.toMatch(/^ok/);
    }),
    { numRuns: 300 },
  );
  await fc.assert(
    fc.asyncProperty(fc.uint8Array({ maxLength: 40 }), async (bytes) => {
      expect(await judge(token, { body: Buffer.from(bytes) })).not.toMatch(/^ok/);
    }),
    { numRuns: 50 },
  );
});

describe('a key set', () => {
  const scheme = compileScheme(SCHEME);
  const pairs = ['one', 'two'].map((kid) => ({ kid, ...generateKeyPairSync('rsa', { modulusLength: 2048 }) }));
  const jwks = pairs.map(({ kid, publicKey }) => ({ ...publicKey.export({ format: 'jwk' }), kid, alg: 'RS256', use: 'sig' }));
  const keys = jwks.map((jwk) => parseJwk(String(jwk.kid), jwk, scheme.description) as VerifyKey);

  async function verify(token: string): Promise<string> {
    const head = scheme.readHead(new HeaderFields(['x-token', token]), { allowDotInId: false });
    if ('code' in head) return head.code;
    const found = await scheme.token?.verify(head, { method: 'POST', url: '', body: BODY }, () => keys, AT);
    return typeof found === 'object' && 'key' in found ? found.key.name : String(found);
  }

  test('is tried with the key that the token names, or with all', async () => {
    const [, two] = pairs;
    const signWith = (header: object): string => makeToken(header, CLAIMS, two?.privateKey ?? '');
    expect(await verify(signWith({ ...HEADER, kid: 'two' }))).toBe('two');
    expect(await verify(signWith(HEADER))).toBe('two');
    expect(await verify(signWith({ ...HEADER, kid: 'one' }))).toBe('mismatch');
    expect(await verify(signWith({ ...HEADER, kid: 'three' }))).toBe('mismatch');
  });

  test('has only keys that are for signatures of the algorithm, and safe', () => {
    const [jwk] = jwks;
    const weak = generateKeyPairSync('rsa', { modulusLength: 1024 }).publicKey.export({ format: 'jwk' });
    for (const wrong of [
      { ...jwk, alg: 'RS512' },
      { ...jwk, alg: 'HS256' },
      { ...jwk, use: 'enc' },
      weak,
      { kty: 'oct', k: 'AAAA' },
    ])
      expect(parseJwk('k', wrong, scheme.description)).toBeUndefined();
    expect(parseJwk('k', { ...jwk, e: 'Aw' }, scheme.description)).toBeUndefined();
  });
});

describe('a token in the body', () => {
  const scheme = toScheme(
    { content: '$.signedPayload' },
    { signature: { header: '', encoding: 'jwt', forms: [{ prefix: '', algorithm: 'rsa-sha256' }] } },
  );
  const { bodyHash: _, ...rest } = scheme.jwt ?? {};
  const inBody: SchemeDescription = { ...scheme, jwt: rest };
  const post = (body: string): Promise<string> =>
    judgeToken(inBody, { secret: PUBLIC_PEM, headers: {}, body: Buffer.from(body), at: AT });

  test('is accepted if nothing else is there', async () => {
    expect(await post(JSON.stringify({ signedPayload: sign() }))).toBe('ok id-1');
  });

  test.each([
    ['beside another member', (token: string) => JSON.stringify({ signedPayload: token, amount: 1 })],
    ['twice', (token: string) => `{"signedPayload":"${token}","signedPayload":"${token}"}`],
    ['in another member', (token: string) => JSON.stringify({ payload: token })],
    ['in a list', (token: string) => JSON.stringify([token])],
    ['in a list in the member', (token: string) => JSON.stringify({ signedPayload: [token] })],
    ['as the whole body', (token: string) => token],
    ['before other text', (token: string) => `{"signedPayload":"${token}"}x`],
  ])('is rejected %s', async (_title, toBody) => {
    expect(await post(toBody(sign()))).toMatch(/^malformed_signature: /);
  });
});

test('a claim that is no ID stands for one by its digest, and an absent one for none', async () => {
  const scheme = toScheme({}, { id: { claim: '$.data' } });
  expect(await judge(sign({ ...CLAIMS, data: 'a text with spaces' }), { scheme })).toMatch(/^ok sha256-[\w-]{22}$/);
  expect(await judge(sign({ ...CLAIMS, data: 'short' }), { scheme })).toBe('ok short');
  // Then the digest of what was signed is the ID.
  expect(await judge(sign(CLAIMS), { scheme })).toMatch(/^ok sha256-/);
});
