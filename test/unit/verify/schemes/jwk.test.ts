import { generateKeyPairSync, type JsonWebKey } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { findPreset } from '../../../../src/verify/presets/catalogue.ts';
import { standardWebhooks } from '../../../../src/verify/presets/standard-webhooks.ts';
import { compileScheme } from '../../../../src/verify/schemes/compile.ts';
import type { SchemeDescription } from '../../../../src/verify/schemes/description.ts';
import { parseJwk } from '../../../../src/verify/schemes/keys.ts';

const AT = Date.parse('2026-01-01T00:00:00Z');
const SECONDS = AT / 1000;
const scheme = compileScheme(standardWebhooks);
const jwk = generateKeyPairSync('ed25519').publicKey.export({ format: 'jwk' });

function parse(dates: object): { from: number | undefined; to: number | undefined } | undefined {
  const key = parseJwk('sender', { ...jwk, ...dates }, scheme.description);
  return key === undefined ? undefined : { from: key.notBefore, to: key.notAfter };
}

describe('a JWK', () => {
  test.each<[string, object, number | undefined, number | undefined]>([
    ['without dates', {}, undefined, undefined],
    ['with exp', { exp: SECONDS }, undefined, AT],
    ['with nbf', { nbf: SECONDS }, AT, undefined],
    ['with a fraction of a second', { exp: SECONDS + 0.5 }, undefined, AT + 500],
    ['with not_after and not_before', { not_before: SECONDS, not_after: SECONDS + 1 }, AT, AT + 1000],
    ['with times as in RFC 3339', { not_after: '2026-01-01T01:00:00+01:00', nbf: '2026-01-01T00:00:00.000Z' }, AT, AT],
    ['with milliseconds', { exp: AT, nbf: AT }, AT, AT],
    ['with null for no date', { exp: null, not_after: null }, undefined, undefined],
    ['with exp 0', { exp: 0 }, undefined, 0],
    ['with two ends, of which the earlier one counts', { exp: SECONDS + 9, not_after: SECONDS }, undefined, AT],
    ['with two starts, of which the later one counts', { nbf: SECONDS, not_before: SECONDS - 9 }, AT, undefined],
  ])('%s is valid in that period', (_title, dates, from, to) => {
    expect(parse(dates)).toEqual({ from, to });
  });

  test.each<[object]>([
    [{ exp: 'tomorrow' }],
    [{ exp: String(SECONDS) }],
    [{ exp: true }],
    [{ exp: [] }],
    [{ exp: Number.POSITIVE_INFINITY }],
    [{ not_after: '2026-01-01' }],
    [{ not_after: '2026-13-01T00:00:00Z' }],
    [{ nbf: {} }],
    [{ exp: SECONDS, not_after: '' }],
  ])('with %j is not used, because nothing says when it ends', (dates) => {
    expect(parse(dates)).toBeUndefined();
  });
});

describe('of the keys that a sender publishes', () => {
  const pair = generateKeyPairSync('ed25519');
  const other = generateKeyPairSync('ec', { namedCurve: 'P-256' }).publicKey.export({ format: 'jwk' });

  test('those for signatures are used', () => {
    expect(parseJwk('sender', { ...jwk, use: 'sig' }, scheme.description)).toMatchObject({ name: 'sender' });
    expect(parseJwk('sender', { ...jwk, key_ops: ['verify'] }, scheme.description)).toMatchObject({ name: 'sender' });
  });

  test.each<[string, JsonWebKey]>([
    ['for encryption', { ...jwk, use: 'enc' }],
    ['for other operations', { ...jwk, key_ops: ['encrypt', 'wrapKey'] }],
    ['for no operation', { ...jwk, key_ops: [] }],
    ['with operations that are no list', { ...jwk, key_ops: 'verify' }],
    ['with operations that are null', { ...jwk, key_ops: null }],
    ['with a private part', pair.privateKey.export({ format: 'jwk' })],
    ['for another algorithm', other],
    ['that are no keys', { kty: 'OKP' }],
  ])('those %s are not', (_title, unusable) => {
    expect(parseJwk('sender', unusable, scheme.description)).toBeUndefined();
  });

  test('none is used by a scheme that only knows secrets', () => {
    expect(parseJwk('sender', jwk, findPreset('github') as SchemeDescription)).toBeUndefined();
  });
});
