/** The rules of schemes with RSA keys, certificates, checksums and JSON Web Tokens. */
import { describe, expect, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { printScheme } from '../../../../src/cli/scheme.ts';
import { parseConfig } from '../../../../src/config/load/load.ts';
import type { WebhookConfig } from '../../../../src/config/schema/config.ts';
import { systemClock } from '../../../../src/core/clock.ts';
import { formatProblem } from '../../../../src/core/problem.ts';
import { recordIo } from '../../../support/io.ts';

const KEYS = [{ name: 'k', secret: { env: 'SECRET' } }];

function load(webhook: object): { webhook: WebhookConfig | undefined; errors: string; warnings: string } {
  const route = { name: 'r', match: { path: '/hook' }, upstream: 'http://127.0.0.1:3000', webhook };
  const { config, problems } = parseConfig('gate.yaml', stringify({ routes: [route] }), systemClock);
  const toText = (wanted: string): string =>
    problems
      .filter(({ severity }) => severity === wanted)
      .map(formatProblem)
      .join('\n');
  return { webhook: config?.routes[0]?.webhook, errors: toText('error'), warnings: toText('warning') };
}

describe('a route of PayPal', () => {
  const paypal = { scheme: 'paypal', receiverId: '1JE4291016473214C', allowWeakDigest: true };

  test('needs no keys, and has the ID of its webhook among the signed parts', () => {
    const { webhook, errors, warnings } = load(paypal);
    expect(errors).toBe('');
    expect(warnings).toContain('signs only a CRC-32 of the body');
    expect(webhook?.description.signed).toEqual(['id', 'timestamp', { text: '1JE4291016473214C' }, 'crc32']);
  });

  test.each<[string, object, RegExp]>([
    ['without the ID', { receiverId: undefined }, /receiverId: paypal signs the ID under which the sender knows the receiver/],
    ['without consent', { allowWeakDigest: undefined }, /allowWeakDigest: paypal signs only a CRC-32 of the body/],
    ['without dedup', { dedup: 'off' }, /paypal is safe only if each ID is accepted once/],
    [
      'with forwarding during an outage',
      { dedup: { onStoreError: 'forward' } },
      /paypal is safe only if each ID is accepted once/,
    ],
    ['with a short memory', { dedup: { retention: '1h' } }, /an ID is forgotten while its delivery can still be replayed/],
    ['with an ID that could be another part', { receiverId: 'a b' }, /receiverId: must be 1 to 128 visible ASCII characters/],
  ])('is rejected %s', (_title, change, expected) => {
    expect(load({ ...paypal, ...change }).errors).toMatch(expected);
  });

  test('is the only kind that has these settings', () => {
    expect(load({ scheme: 'github', keys: KEYS, receiverId: 'a' }).errors).toMatch(
      /github signs no receiver ID; remove receiverId/,
    );
    expect(load({ scheme: 'github', keys: KEYS, tolerance: '1m' }).errors).toMatch(
      /github has no signed timestamp, so its age cannot be checked; remove tolerance/,
    );
    expect(load({ scheme: 'github', keys: KEYS, allowWeakDigest: true }).warnings).toMatch(/github does not sign a CRC-32/);
  });
});

describe('a route with JSON Web Tokens', () => {
  const pubsub = { scheme: 'google-pubsub', jwt: { audience: ['a'], claims: { email: ['b'] } } };

  test("has the sender's keys, unless it names others, and its own accepted values", () => {
    const { webhook, errors, warnings } = load(pubsub);
    expect(errors).toBe('');
    expect(warnings).toContain('the tokens of google-pubsub do not sign the body');
    expect(webhook?.jwks).toMatchObject([{ name: 'google-pubsub', url: 'https://www.googleapis.com/oauth2/v3/certs' }]);
    expect(webhook?.description.jwt).toMatchObject({
      audience: ['a'],
      claims: { '$.email': ['b'], '$.email_verified': [true] },
      clockTolerance: 60_000,
    });
    const own = load({ ...pubsub, jwks: [{ name: 'own', url: 'https://keys.example.com/' }] }).webhook;
    expect(own?.jwks.map(({ name }) => name)).toEqual(['own']);
  });

  test.each<[string, object, RegExp]>([
    [
      'an audience',
      { scheme: 'google-pubsub', jwt: { claims: { email: ['b'] } } },
      /signs tokens of all customers .*\n.*audience: \[VALUE\]/,
    ],
    ['an address', { scheme: 'google-pubsub', jwt: { audience: ['a'] } }, /claims: \{ email: \[VALUE\] \}/],
    ['both', { scheme: 'google-pubsub' }, /audience: \[VALUE\][\s\S]*email: \[VALUE\]/],
    ['a bundle ID', { scheme: 'apple-app-store', keys: KEYS }, /audience: \[VALUE\]/],
    ['a key', { scheme: 'plaid' }, /a webhook route needs a key/],
  ])('is rejected if it must name %s', (_title, webhook, expected) => {
    expect(load(webhook).errors).toMatch(expected);
  });

  test('is rejected with settings of tokens for a scheme without', () => {
    expect(load({ scheme: 'github', keys: KEYS, jwt: {} }).errors).toMatch(
      /github does not sign with JSON Web Tokens; remove jwt/,
    );
  });

  test('is not captured if its tokens can be sent with another body', () => {
    expect(load({ scheme: 'monday', keys: KEYS, capture: 'failures' }).errors).toMatch(/never captured/);
    expect(load({ scheme: 'vonage', keys: KEYS, capture: 'failures' }).errors).toBe('');
  });
});

describe('a custom scheme', () => {
  const signature = { header: 'X-Token', encoding: 'jwt', forms: [{ algorithm: 'rsa-sha256' }] };
  const bodyHash = { claim: 'sha256' };

  test('can have a token, with claims by name or path', () => {
    const custom = { signature, jwt: { bodyHash, issuers: ['me'] }, id: { claim: 'jti' }, timestamp: { claim: '$.iat' } };
    const { webhook, errors } = load({ scheme: 'custom', custom, keys: KEYS });
    expect(errors).toBe('');
    expect(webhook?.description).toMatchObject({
      signed: ['body'],
      id: { claim: '$.jti' },
      timestamp: { from: { claim: '$.iat' }, unit: 's' },
      jwt: { bodyHash: { claim: '$.sha256', digest: 'sha256', encoding: 'hex' } },
    });
  });

  test.each<[string, object, RegExp]>([
    ['a token without its description', { signature }, /encoding: jwt and jwt require each other/],
    [
      'the description without the token',
      { signature: { header: 'X' }, jwt: { bodyHash } },
      /encoding: jwt and jwt require each other/,
    ],
    ['a token that is a password', { signature, jwt: {} }, /a token that signs neither the body nor its expiry is a password/],
    [
      'a token by HMAC-SHA1',
      { signature: { ...signature, forms: [{ algorithm: 'hmac-sha1' }] }, jwt: { bodyHash } },
      /JSON Web Tokens are not signed by hmac-sha1/,
    ],
    [
      'a list of tokens',
      { signature: { ...signature, list: ',' }, jwt: { bodyHash } },
      /a header has one token, after one prefix/,
    ],
    [
      'two algorithms of one kind',
      { signature: { ...signature, forms: [{ algorithm: 'rsa-sha256' }, { algorithm: 'ecdsa-p256' }] }, jwt: { bodyHash } },
      /two algorithms use the same kind of key/,
    ],
    [
      'a time beside the token',
      { signature, jwt: { bodyHash }, timestamp: { header: 'X-Time' } },
      /the time of a JSON Web Token must be a claim/,
    ],
    ['a claim without a token', { signature: { header: 'X' }, id: { claim: 'jti' } }, /only a JSON Web Token has claims/],
    ['a path that is none', { signature, jwt: { bodyHash: { claim: '$..a' } } }, /is not a path/],
    ['no header', { signature: { encoding: 'hex' } }, /the place of the signature is missing/],
    [
      'a checksum alone',
      { signature: { header: 'X', forms: [{ algorithm: 'rsa-sha256' }] }, signed: ['crc32'] },
      /signs only a CRC-32 of the body/,
    ],
    [
      'certificates of any host',
      {
        signature: { header: 'X', forms: [{ algorithm: 'rsa-sha256' }] },
        certificate: { header: 'C', hosts: ['*'], path: '/', names: ['a'] },
      },
      /expected the name of a host/,
    ],
  ])('is rejected with %s', (_title, custom, expected) => {
    expect(load({ scheme: 'custom', custom, keys: KEYS }).errors).toMatch(expected);
  });
});

describe('sidegate scheme', () => {
  test.each([
    'paypal',
    'paypal-sandbox',
    'wise',
    'plaid',
    'google-pubsub',
    'vonage',
    'netlify',
    'monday',
    'wix',
    'apple-app-store',
  ])('prints %s as a custom scheme that is valid and has the same fields', (name) => {
    const { io, stdout } = recordIo();
    printScheme(name, { custom: true }, io);
    const { webhook } = parse(stdout()) as { webhook: Record<string, unknown> };
    const custom = load(webhook);
    expect(custom.errors).toBe('');
    const { scheme: _scheme, custom: _custom, ...settings } = webhook;
    const preset = load({ ...settings, scheme: name });
    expect(preset.errors).toBe('');
    const {
      from: _from,
      handshake: _handshake,
      jwksUrl: _url,
      name: _name,
      tolerance: _tolerance,
      contentTypes: _types,
      methods: _methods,
      jwt,
      ...own
    } = preset.webhook?.description ?? {
      name: '',
    };
    expect(custom.webhook?.description).toMatchObject(own);
    const { mustSet: _mustSet, ...tokens } = jwt ?? {};
    if (jwt !== undefined) expect(custom.webhook?.description.jwt).toEqual(tokens);
    expect(custom.webhook?.tolerance).toEqual(preset.webhook?.tolerance);
    expect(custom.webhook?.jwks).toEqual(preset.webhook?.jwks);
  });
});
