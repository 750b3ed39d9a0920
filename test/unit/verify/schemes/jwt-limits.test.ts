/** What an unverified token may cost, and the edges of its times. */
import { expect, test } from 'vitest';
import { findPreset } from '../../../../src/verify/presets/catalogue.ts';
import { compileScheme } from '../../../../src/verify/schemes/compile.ts';
import type { SchemeDescription } from '../../../../src/verify/schemes/description.ts';
import type { Jwt } from '../../../../src/verify/schemes/scheme.ts';
import { encodePart, judgeToken, makeToken, RSA_PAIR, toPem } from '../../../support/tokens.ts';

const AT = 1_800_000_000_000;
const SECONDS = AT / 1_000;
const MEBIBYTE = 1_048_576;
const SIGNATURE = Buffer.alloc(32, 1).toString('base64url');
const wix = findPreset('wix') as SchemeDescription;

function toJwt(name: string): Jwt {
  const { token } = compileScheme(findPreset(name) as SchemeDescription);
  if (token === undefined) throw new Error(`${name} has no token`);
  return token.jwt;
}

const toClaims = (values: number): string => encodePart(`{"a":[${'{},'.repeat(values)}{}]}`);
const inHeader = (head: object, claims: string): object =>
  toJwt('netlify').readHeader(`${encodePart({ alg: 'HS256', ...head })}.${claims}.${SIGNATURE}`);
const inBody = (body: string): object | undefined => toJwt('wix').readBody?.(Buffer.from(body));

test('a header has few claims, because they are in memory while the client sends its body', () => {
  expect(inHeader({}, toClaims(100))).toMatchObject({ claims: { a: expect.any(Array) } });
  expect(inHeader({}, toClaims(300))).toMatchObject({ problem: expect.stringContaining('more than 256 values') });
});

test('the claims of a token in the body are decoded after its verification', () => {
  expect(inBody(`${encodePart({ alg: 'RS256' })}.${toClaims(300)}.${SIGNATURE}`)).not.toHaveProperty('claims');
});

test('the header of a token is short', () => {
  expect(inHeader({ typ: 'x'.repeat(5_000) }, 'e30')).toEqual({
    kind: 'malformed',
    problem: 'the header of the token is too long',
  });
});

function measure(work: () => unknown): number {
  const start = process.cpuUsage();
  for (let i = 0; i < 8; i++) work();
  const { user, system } = process.cpuUsage(start);
  return user + system;
}

test('a text of dots is not split as a whole', () => {
  const dots = '.'.repeat(4 * MEBIBYTE);
  const { readHeader } = toJwt('netlify');
  expect(readHeader(dots)).toMatchObject({ problem: 'the token does not have three parts' });
  expect(measure(() => readHeader(dots))).toBeLessThan(measure(() => dots.split('.')) / 4);
});

test.each<[string, string, string]>([
  ['ends at the edge of the tolerance', `{"exp":${SECONDS - 60}}`, 'the token has expired'],
  ['ends before time began', '{"exp":-1}', 'the token has expired'],
  ['ends at no number that JSON can have', '{"exp":1e400}', 'out of range'],
  ['starts at no number that JSON can have', `{"exp":${SECONDS},"nbf":-1e400}`, 'out of range'],
  ['starts after the tolerance', `{"exp":${SECONDS},"nbf":${SECONDS + 61}}`, 'not valid yet'],
  ['ends at null', '{"exp":null}', '$.exp is missing or malformed'],
  ['ends at a list', `{"exp":[${SECONDS}]}`, '$.exp is missing or malformed'],
  ['has an end that it inherits', `{"__proto__":{"exp":${SECONDS}}}`, '$.exp is missing or malformed'],
  ['was issued at a text', `{"exp":${SECONDS},"iat":"1"}`, '$.iat is missing or malformed'],
])('a token is rejected if it %s', async (_title, claims, expected) => {
  const body = Buffer.from(makeToken({ alg: 'RS256' }, claims, RSA_PAIR.privateKey));
  expect(await judgeToken(wix, { secret: toPem(RSA_PAIR.publicKey), headers: {}, body, at: AT })).toContain(expected);
});

test('a token is accepted within the tolerance, with fractions of seconds', async () => {
  const body = Buffer.from(makeToken({ alg: 'RS256' }, `{"exp":${SECONDS - 59.5},"nbf":${SECONDS + 60}}`, RSA_PAIR.privateKey));
  expect(await judgeToken(wix, { secret: toPem(RSA_PAIR.publicKey), headers: {}, body, at: AT })).toMatch(/^ok/);
});
