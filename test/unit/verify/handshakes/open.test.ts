import { createHmac } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { compileScheme } from '../../../../src/verify/schemes/compile.ts';
import type { HandshakeName } from '../../../../src/verify/schemes/description.ts';
import { fc } from '../../../support/property.ts';
import { ask, type Case, CONTENT_SIGNED, KEY, TOKEN, toText } from './harness.ts';

const ENCODED = encodeURIComponent(TOKEN);
const macOf = (text: string, key = KEY): string => createHmac('sha256', key).update(text).digest('base64');

describe('Meta', () => {
  const toQuery = (over: Record<string, string> = {}): string =>
    new URLSearchParams({
      'hub.mode': 'subscribe',
      'hub.verify_token': TOKEN,
      'hub.challenge': '1158201444',
      ...over,
    }).toString();

  test('gets its challenge back with the correct token', () => {
    expect(ask('meta', { query: toQuery() })).toEqual({
      code: 'handshake',
      reason: 'handshake',
      detail: 'meta',
      reply: {
        status: 200,
        contentType: 'text/plain',
        body: '1158201444',
        headers: [['X-Content-Type-Options', 'nosniff']],
      },
    });
  });

  const WRONG = 'handshake_refused: the token does not equal handshake.verifyToken';
  const SHAPE = 'handshake_refused: the query must consist of hub.mode, hub.verify_token, hub.challenge, each once';
  const CHALLENGE = 'handshake_refused: hub.challenge is not 1 to 256 visible characters';
  test.each<[string, Case, string]>([
    ['a wrong token', { query: toQuery({ 'hub.verify_token': `${TOKEN}x` }) }, WRONG],
    ['half a token', { query: toQuery({ 'hub.verify_token': TOKEN.slice(0, -1) }) }, WRONG],
    ['an empty token', { query: toQuery({ 'hub.verify_token': '' }) }, WRONG],
    ['a token encoded twice', { query: toQuery({ 'hub.verify_token': ENCODED }) }, WRONG],
    ['no token at all', { query: 'hub.mode=subscribe&hub.challenge=1' }, SHAPE],
    ['another mode', { query: toQuery({ 'hub.mode': 'unsubscribe' }) }, 'handshake_refused: hub.mode is not subscribe'],
    ['a parameter more', { query: `${toQuery()}&a=1` }, SHAPE],
    ['a repeated parameter', { query: `${toQuery()}&hub.challenge=2` }, SHAPE],
    ['a name encoded once, and once not', { query: `${toQuery()}&hub%2Echallenge=2` }, SHAPE],
    ['a broken escape', { query: `${toQuery()}%` }, SHAPE],
    ['bytes that are not UTF-8', { query: toQuery().replace('1158201444', '%ff') }, SHAPE],
    ['an empty challenge', { query: toQuery({ 'hub.challenge': '' }) }, CHALLENGE],
    ['a challenge with a line end', { query: toQuery({ 'hub.challenge': '1\r\nSet-Cookie: a=b' }) }, CHALLENGE],
    ['a challenge beyond ASCII', { query: toQuery({ 'hub.challenge': 'é' }) }, CHALLENGE],
    ['a huge challenge', { query: toQuery({ 'hub.challenge': '1'.repeat(257) }) }, CHALLENGE],
    ['no configured token', { query: toQuery(), hasToken: false }, 'handshake_refused: no handshake.verifyToken is configured'],
    [
      'no configured token, and an empty one',
      { query: toQuery({ 'hub.verify_token': '' }), hasToken: false },
      'handshake_refused: no handshake.verifyToken is configured',
    ],
    ['a token that is gone', { query: toQuery(), isTokenGone: true }, 'secret_unavailable: handshake.verifyToken cannot be read'],
  ])('is rejected with %s', (_title, given, told) => {
    expect(toText(ask('meta', given))).toBe(told);
  });

  test('is not detected with another method, or a query without hub.', () => {
    for (const method of ['POST', 'HEAD', 'OPTIONS', 'get']) expect(ask('meta', { method, query: toQuery() })).toBeUndefined();
    for (const query of [undefined, '', 'a=1', 'hub_mode=subscribe'])
      expect(ask('meta', query === undefined ? {} : { query })).toBeUndefined();
  });
});

describe('X', () => {
  const TOKEN_TEXT = '9b4507b3-9040-4669-9ca3-6b94edb50553';
  const query = `crc_token=${TOKEN_TEXT}&nonce=NjYzMGJh`;
  const signed = (text: string, key = KEY): string[] => ['X-Signature', `sha256=${macOf(text, key)}`];
  const toAnswer = (token: string, key = KEY): string => `200 application/json {"response_token":"sha256=${macOf(token, key)}"}`;

  test('gets the HMAC of its token with the first live key, if it signs nothing', () => {
    expect(toText(ask('x', { query }))).toBe(toAnswer(TOKEN_TEXT));
    expect(toText(ask('x', { query: `crc_token=${TOKEN_TEXT}` }))).toBe(toAnswer(TOKEN_TEXT));
    expect(toText(ask('x', { query, keys: ['the-new-one-of-two-keys', KEY] }))).toBe(
      toAnswer(TOKEN_TEXT, 'the-new-one-of-two-keys'),
    );
  });

  test('gets it with the key that signed the query, as sent or decoded, if it signs it', () => {
    const keys = ['the-new-one-of-two-keys', KEY];
    expect(toText(ask('x', { query, keys, headers: signed(query) }))).toBe(toAnswer(TOKEN_TEXT));
    const padded = 'crc_token=ab%3D%3D&nonce=x';
    for (const text of [padded, 'crc_token=ab==&nonce=x'])
      expect(toText(ask('x', { query: padded, keys, headers: signed(text) }))).toBe(toAnswer('ab=='));
  });

  test.each<[string, Case, string]>([
    ['a signature by another key', { query, headers: signed(query, 'another key altogether') }, 'no key matches the signature'],
    ['a signature of another query', { query, headers: signed('crc_token=a') }, 'no key matches the signature'],
    ['a malformed signature', { query, headers: ['X-Signature', 'sha256=?'] }, 'no key matches the signature'],
    ['a repeated signature', { query, headers: [...signed(query), ...signed(query)] }, 'no key matches the signature'],
    ['a token that is JSON', { query: 'crc_token=%7B%22id%22%3A1%7D' }, 'crc_token is not 1 to 256 base64 characters'],
    [
      'a token that is a query to be signed',
      { query: 'crc_token=crc_token%3Da%26nonce%3Db' },
      'crc_token is not 1 to 256 base64 characters',
    ],
    ['a token with a space', { query: 'crc_token=a+b' }, 'crc_token is not 1 to 256 base64 characters'],
    ['an empty token', { query: 'crc_token=' }, 'crc_token is not 1 to 256 base64 characters'],
    ['a huge token', { query: `crc_token=${'a'.repeat(257)}` }, 'crc_token is not 1 to 256 base64 characters'],
    ['a repeated token', { query: 'crc_token=a&crc_token=b' }, 'the query must consist of crc_token and nonce, each once'],
    ['a parameter more', { query: 'crc_token=a&a=1' }, 'the query must consist of crc_token and nonce, each once'],
    ['a crc_token in another name', { query: 'my_crc_token=a' }, 'the query must consist of crc_token and nonce, each once'],
  ])('is rejected with %s', (_title, given, detail) => {
    expect(toText(ask('x', given))).toBe(`handshake_refused: ${detail}`);
  });

  test('gets it with a key of several algorithms', () => {
    const forms = (['hmac-sha1', 'hmac-sha256'] as const).map((algorithm) => ({ prefix: `${algorithm}=`, algorithm }));
    const signature = { header: 'X-Signature', encoding: 'base64', forms } as const;
    const scheme = compileScheme({ ...CONTENT_SIGNED, signature });
    expect(toText(ask('x', { query, scheme }))).toBe(toAnswer(TOKEN_TEXT));
  });

  test('gets 503 while no key is usable', () => {
    expect(ask('x', { query, keys: [] })?.code).toBe('secret_unavailable');
  });

  test('never gets an HMAC of a JSON object, or of the query of another check', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 40 }), (token) => {
        const answered = ask('x', { query: `crc_token=${encodeURIComponent(token.toWellFormed())}` });
        return answered?.code !== 'handshake' || /^[^{}[\]"&\s]+$/.test(token);
      }),
    );
  });
});

describe('Microsoft Graph', () => {
  const VALIDATION = 'Validation: Testing client application reachability for subscription Request-Id: 522a8e7e';
  const query = `token=${ENCODED}&validationToken=${encodeURIComponent(VALIDATION).replaceAll('%20', '+')}`;
  const post = (over: Case): string | undefined => toText(ask('microsoft-graph', { method: 'POST', ...over }));

  test('gets its token back, decoded once', () => {
    expect(post({ query })).toBe(`200 text/plain ${VALIDATION}`);
    expect(post({ query: `validationToken=%253Cb%253E&token=${ENCODED}` })).toBe('200 text/plain %3Cb%3E');
  });

  test.each<[string, Case, string]>([
    ['a wrong token', { query: query.replace(ENCODED, 'x') }, 'the token does not equal handshake.verifyToken'],
    ['no token', { query: 'validationToken=a' }, 'the token does not equal handshake.verifyToken'],
    ['no configured token', { query: 'validationToken=a', hasToken: false }, 'no handshake.verifyToken is configured'],
    ['a parameter more', { query: `${query}&a=1` }, 'the query must consist of token and validationToken, each once'],
    [
      'a repeated token',
      { query: `${query}&token=${ENCODED}` },
      'the query must consist of token and validationToken, each once',
    ],
    ['nothing to echo', { query: `token=${ENCODED}&validationToken=` }, 'validationToken is not 1 to 1024 printable characters'],
    ['a line end', { query: `token=${ENCODED}&validationToken=a%0Ab` }, 'validationToken is not 1 to 1024 printable characters'],
    [
      'a huge text',
      { query: `token=${ENCODED}&validationToken=${'a'.repeat(1025)}` },
      'validationToken is not 1 to 1024 printable characters',
    ],
  ])('is rejected with %s', (_title, given, detail) => {
    expect(post(given)).toBe(`handshake_refused: ${detail}`);
  });

  test('gets 503 while the token is missing', () => {
    expect(post({ query, isTokenGone: true })).toBe('secret_unavailable: handshake.verifyToken cannot be read');
  });

  test('delivers with only the token in the query, or without a query', () => {
    expect(post({})).toBeUndefined();
    expect(post({ query: `token=${ENCODED}` })).toBeUndefined();
    for (const wrong of ['', 'token=x', `token=${ENCODED}&a=1`, 'a=1', `token=${ENCODED}&token=${ENCODED}`])
      expect(post({ query: wrong })).toBe('malformed_request: the query is not the token in token alone');
    expect(post({ query: 'a=1', allowQuery: true })).toBeUndefined();
    expect(post({ query: 'a=1', hasToken: false })).toBeUndefined();
    expect(toText(ask('microsoft-graph', { method: 'PUT', query: 'a=1' }))).toMatch(/^malformed_request/);
  });
});

describe.each(['microsoft-graph', 'cloudevents'] as const)('a delivery of %s while the token is missing', (type) => {
  const post = (query?: string): string | undefined =>
    toText(ask(type, { method: 'POST', isTokenGone: true, ...(query === undefined ? undefined : { query }) }));

  test('gets 503 if its query may be the token, and passes without a query', () => {
    for (const query of [`token=${ENCODED}`, 'token=x'])
      expect(post(query)).toBe('secret_unavailable: handshake.verifyToken cannot be read');
    expect(post()).toBeUndefined();
  });

  test('is rejected if no token could make its query valid', () => {
    for (const query of ['', 'token', 'token=', 'a=1', `token=${ENCODED}&a=1`, `token=${ENCODED}&token=${ENCODED}`, 'token=%ff'])
      expect(post(query)).toBe('malformed_request: the query is not the token in token alone');
  });
});

describe('CloudEvents', () => {
  const ORIGIN = ['WebHook-Request-Origin', 'EventGrid.azure.net'];
  const options = (over: Case): Case => ({
    method: 'OPTIONS',
    parameter: 'access_token',
    hasToken: false,
    headers: ORIGIN,
    ...over,
  });

  test('is accepted from an allowed origin in any case, at any rate or the configured one', () => {
    expect(ask('cloudevents', options({}))?.reply?.headers).toEqual([
      ['WebHook-Allowed-Origin', 'EventGrid.azure.net'],
      ['WebHook-Allowed-Rate', '*'],
      ['Allow', 'POST'],
      ['X-Content-Type-Options', 'nosniff'],
    ]);
    const headers = [...ORIGIN, 'WebHook-Request-Rate', '120', 'WebHook-Request-Callback', 'http://169.254.169.254/'];
    const asked = ask('cloudevents', options({ headers, allowedRate: 60 }));
    expect(asked?.reply?.headers).toContainEqual(['WebHook-Allowed-Rate', '60']);
  });

  test('must send its token in Authorization or in the query, if one is configured', () => {
    const bearer = [...ORIGIN, 'Authorization', `bearer ${TOKEN}`];
    expect(ask('cloudevents', options({ hasToken: true, headers: bearer }))?.code).toBe('handshake');
    expect(ask('cloudevents', options({ hasToken: true, query: `access_token=${ENCODED}` }))?.code).toBe('handshake');
  });

  const NEITHER = 'handshake_refused: the token is neither in Authorization nor the only query parameter (access_token)';
  test.each<[string, Case, string]>([
    [
      'another origin',
      { headers: ['WebHook-Request-Origin', 'evil.example'] },
      'handshake_refused: the origin is not among allowedOrigins',
    ],
    ['an empty origin', { headers: ['WebHook-Request-Origin', ''] }, 'handshake_refused: the origin is not among allowedOrigins'],
    ['two origins', { headers: [...ORIGIN, ...ORIGIN] }, 'handshake_refused: the origin is not among allowedOrigins'],
    [
      'a malformed rate',
      { headers: [...ORIGIN, 'WebHook-Request-Rate', '0'] },
      'handshake_refused: WebHook-Request-Rate is not a positive number',
    ],
    ['a query', { query: 'a=1' }, 'handshake_refused: the request has a query, but no handshake.verifyToken is configured'],
    ['no token', { hasToken: true }, NEITHER],
    ['a wrong token', { hasToken: true, query: 'access_token=x' }, NEITHER],
    ['a token and more', { hasToken: true, query: `access_token=${ENCODED}&a=1` }, NEITHER],
    [
      'two Authorization fields',
      { hasToken: true, headers: [...ORIGIN, 'Authorization', `Bearer ${TOKEN}`, 'Authorization', 'Bearer x'] },
      NEITHER,
    ],
    ['another scheme', { hasToken: true, headers: [...ORIGIN, 'Authorization', `Basic ${TOKEN}`] }, NEITHER],
    ['a token that is gone', { hasToken: true, isTokenGone: true }, 'secret_unavailable: handshake.verifyToken cannot be read'],
  ])('is rejected with %s', (_title, given, told) => {
    expect(toText(ask('cloudevents', options(given)))).toBe(told);
  });

  test('is not detected in the preflight of a browser', () => {
    expect(ask('cloudevents', options({ headers: ['Origin', 'https://a.example'] }))).toBeUndefined();
  });
});

describe('for any request', () => {
  const KINDS: readonly HandshakeName[] = [
    'meta',
    'x',
    'microsoft-graph',
    'cloudevents',
    'strava',
    'oura',
    ...(['dropbox', 'nylas', 'okta', 'linkedin', 'trello', 'braintree'] as const),
  ];
  const name = fc.constantFrom(
    ...['hub.mode', 'hub.verify_token', 'hub.challenge', 'crc_token', 'nonce', 'token', 'validationToken', 'access_token', 'a'],
    ...['challenge', 'challengeCode', 'verification_token', 'bt_challenge'],
  );
  const value = fc.oneof(
    fc.constantFrom('subscribe', '', '%', '%ff', '%00', ENCODED.slice(1), '1'),
    fc.string({ maxLength: 20 }),
  );
  const query = fc.array(fc.tuple(name, value), { maxLength: 6 }).map((pairs) => pairs.map((pair) => pair.join('=')).join('&'));
  const method = fc.constantFrom('GET', 'POST', 'OPTIONS', 'HEAD', 'PUT');
  const headers = fc.constantFrom(
    [],
    ['WebHook-Request-Origin', 'evil.example'],
    ['X-Signature', 'sha256='],
    ['X-Okta-Verification-Challenge', 'a'],
  );

  test('only a CRC is answered without the token, and nothing throws', () => {
    fc.assert(
      fc.property(fc.constantFrom(...KINDS), method, query, headers, (type, verb, text, fields) => {
        const told = ask(type, { method: verb, query: text, headers: fields });
        return told?.code !== 'handshake' || type === 'x';
      }),
      { numRuns: 2_000 },
    );
  });
});
