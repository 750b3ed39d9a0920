import { createHash, createHmac } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { HandshakeName } from '../../../../src/verify/schemes/description.ts';
import { fc } from '../../../support/property.ts';
import { ask, type Case, KEY, post, TOKEN, tell, toText } from './harness.ts';

const IN_URL = `token=${encodeURIComponent(TOKEN)}`;
/** Values that must never be echoed, or signed. */
const UNSAFE = ['', 'a b', 'a\r\nSet-Cookie: a=b', 'é', '\u0000', 'x'.repeat(257)];
const open: Case = { hasToken: false };

describe.each(['dropbox', 'nylas'] as const)('the challenge of %s', (type) => {
  const get = (query: string | undefined, over: Case = open): string | undefined =>
    toText(ask(type, { ...over, ...(query === undefined ? undefined : { query }) }));

  test('is echoed as text that no browser renders', () => {
    expect(ask(type, { ...open, query: 'challenge=ab%3Cb%3E' })?.reply).toEqual({
      status: 200,
      contentType: 'text/plain',
      body: 'ab<b>',
      headers: [['X-Content-Type-Options', 'nosniff']],
    });
  });

  test.each(UNSAFE)('is rejected as %j', (value) => {
    expect(get(`challenge=${encodeURIComponent(value)}`)).toBe('handshake_refused: challenge is not 1 to 256 visible characters');
  });

  test('is rejected if it is repeated, malformed or not alone', () => {
    for (const query of [
      'challenge=a&challenge=b',
      'challenge=a&a=1',
      'challenge=%',
      'challenge=%ff',
      'my_challenge=a',
      `challenge=a&${IN_URL}`,
    ])
      expect(get(query)).toBe('handshake_refused: the query must consist of challenge, each once');
  });

  test('needs the token of the URL if one is configured, as deliveries do that have a query', () => {
    const over = { hasToken: true };
    expect(get(`challenge=a&${IN_URL}`, over)).toBe('200 text/plain a');
    expect(get('challenge=a', over)).toBe('handshake_refused: the query must consist of challenge, token, each once');
    expect(get('challenge=a&token=x', over)).toBe('handshake_refused: the token does not equal handshake.verifyToken');
    expect(get(`challenge=a&${IN_URL}`, { ...over, isTokenGone: true })).toBe(
      'secret_unavailable: handshake.verifyToken cannot be read',
    );
    expect(post(type, '{}', { ...over, query: IN_URL }).refusal).toBeUndefined();
    expect(toText(post(type, '{}', { ...over, query: 'token=x' }).refusal)).toMatch(/^malformed_request/);
  });

  test('is not detected with another method or query', () => {
    for (const method of ['POST', 'HEAD', 'OPTIONS', 'get']) expect(get('challenge=a', { ...open, method })).toBeUndefined();
    for (const query of [undefined, '', 'a=1']) expect(get(query)).toBeUndefined();
  });
});

describe('Okta', () => {
  const FIELD = 'X-Okta-Verification-Challenge';
  const get = (headers: readonly string[], over: Case = open): string | undefined => toText(ask('okta', { ...over, headers }));

  test('gets its challenge back in JSON', () => {
    expect(get([FIELD, 'a"b'])).toBe('200 application/json {"verification":"a\\"b"}');
    expect(get([FIELD, 'a'], { hasToken: true, query: IN_URL })).toBe('200 application/json {"verification":"a"}');
  });

  test.each(UNSAFE)('is rejected with the challenge %j', (value) => {
    expect(get([FIELD, value])).toMatch(/^handshake_refused: x-okta-verification-challenge is not/);
  });

  test('is rejected with two challenges or a query', () => {
    expect(get([FIELD, 'a', FIELD, 'a'])).toMatch(/^handshake_refused/);
    expect(get([FIELD, 'a'], { ...open, query: 'a=1' })).toBe('handshake_refused: the request has a query');
    expect(get([FIELD, 'a'], { hasToken: true })).toBe('handshake_refused: the query must consist of token, each once');
  });

  test('is not detected with another method, or without the header', () => {
    expect(get([FIELD, 'a'], { ...open, method: 'POST' })).toBeUndefined();
    expect(get([])).toBeUndefined();
  });
});

describe.each([
  ['strava', 'hub.verify_token', 'hub.challenge', 'hub.mode=subscribe&'],
  ['oura', 'verification_token', 'challenge', ''],
] as const)('%s', (type, tokenName, name, prefix) => {
  const query = `${prefix}${tokenName}=${encodeURIComponent(TOKEN)}&${name}=abc`;

  test('gets its challenge back in JSON with the correct token', () => {
    expect(toText(ask(type, { query }))).toBe(`200 application/json {"${name}":"abc"}`);
  });

  test('is rejected without the correct token, or with anything else in the query', () => {
    for (const wrong of [
      query.replace('=abc', '=a%0Ab'),
      `${query}&a=1`,
      `${query}&${name}=b`,
      query.replace(encodeURIComponent(TOKEN), 'x'),
    ])
      expect(ask(type, { query: wrong })?.code).toBe('handshake_refused');
    expect(toText(ask(type, { query, hasToken: false }))).toBe('handshake_refused: no handshake.verifyToken is configured');
    expect(ask(type, { query, isTokenGone: true })?.code).toBe('secret_unavailable');
  });

  test('leaves deliveries alone', () => {
    expect(ask(type, { method: 'POST', query: 'a=1' })).toBeUndefined();
  });
});

describe('LinkedIn', () => {
  const CODE = '890e4665-4dfe-4ab1-b689-ed553bceeed0';
  const mac = (text: string, key = KEY): string => createHmac('sha256', key).update(text).digest('hex');

  test('gets the HMAC of its code with the first live key', () => {
    const expected = (key: string): string =>
      `200 application/json {"challengeCode":"${CODE}","challengeResponse":"${mac(CODE, key)}"}`;
    expect(toText(ask('linkedin', { ...open, query: `challengeCode=${CODE}` }))).toBe(expected(KEY));
    expect(ask('linkedin', { ...open, query: `other=12&challengeCode=${CODE}` })?.code).toBe('handshake_refused');
    const keys = ['the-new-one-of-two-keys', KEY];
    // With parent and child applications.
    const ofChild = (application: string): string | undefined =>
      toText(ask('linkedin', { ...open, keys, query: `applicationId=${application}&challengeCode=${CODE}` }));
    expect([ofChild('key-1'), ofChild('12')]).toEqual([KEY, 'the-new-one-of-two-keys'].map(expected));
    expect(toText(ask('linkedin', { ...open, keys, query: `challengeCode=${CODE}` }))).toBe(expected('the-new-one-of-two-keys'));
  });

  test('gets 503 while no key is usable', () => {
    expect(ask('linkedin', { ...open, keys: [], query: `challengeCode=${CODE}` })?.code).toBe('secret_unavailable');
  });

  test('never gets an HMAC of what LinkedIn signs', () => {
    for (const code of [...UNSAFE, 'hmacsha256={}', '{}', 'a=b', 'x'.repeat(65)])
      expect(ask('linkedin', { ...open, query: `challengeCode=${encodeURIComponent(code)}` })?.code).toBe('handshake_refused');
    for (const body of ['', CODE]) expect(tell('linkedin', body)?.code).toBe('handshake_refused');
    for (const body of ['{}', '[]', '{"type":"LEAD_ACTION"}']) expect(tell('linkedin', body)).toBeUndefined();
  });
});

describe('Braintree', () => {
  const CHALLENGE = '20f9f8ed05f77439fe955c977e4c8a53';
  const asked = { ...open, publicKey: 'key_1', query: `bt_challenge=${CHALLENGE}` };
  const mac = (text: string): string => createHmac('sha1', createHash('sha1').update(KEY).digest()).update(text).digest('hex');

  test('gets its public key, and the HMAC of its challenge', () => {
    expect(toText(ask('braintree', asked))).toBe(`200 text/plain key_1|${mac(CHALLENGE)}`);
    expect(ask('braintree', { ...asked, keys: [] })?.code).toBe('secret_unavailable');
  });

  test.each([
    ['without the public key', { ...asked, publicKey: undefined }],
    ['of other digits', { ...asked, query: `bt_challenge=${CHALLENGE.toUpperCase()}` }],
    ['that is too short', { ...asked, query: `bt_challenge=${CHALLENGE.slice(13)}` }],
    ['that is too long', { ...asked, query: `bt_challenge=${CHALLENGE}0` }],
    ['with another parameter', { ...asked, query: `bt_challenge=${CHALLENGE}&a=1` }],
    ['that is repeated', { ...asked, query: `bt_challenge=${CHALLENGE}&bt_challenge=${CHALLENGE}` }],
    ['with a line end', { ...asked, query: `bt_challenge=${CHALLENGE}%0A` }],
  ])('is rejected with a challenge %s', (_title, over) => {
    expect(ask('braintree', over)?.code).toBe('handshake_refused');
  });

  test('never gets an HMAC that is the signature of a delivery', () => {
    for (const payload of [CHALLENGE, CHALLENGE.slice(12)]) {
      expect(tell('braintree', `bt_signature=a&bt_payload=${payload}`)?.code).toBe('handshake_refused');
      expect(tell('braintree', `bt_payload=%${payload.charCodeAt(0).toString(16)}${payload.slice(1)}`)?.code).toBe(
        'handshake_refused',
      );
      const part = `--b\r\nContent-Disposition: form-data; name="bt_payload"\r\n\r\n${payload}\r\n--b--\r\n`;
      expect(tell('braintree', part)?.code).toBe('handshake_refused');
    }
    for (const payload of [`${CHALLENGE}%0A`, `${CHALLENGE}0`, 'PG5vdGlmaWNhdGlvbj4%3D'])
      expect(tell('braintree', `bt_payload=${payload}`)).toBeUndefined();
  });
});

describe('Trello', () => {
  test('gets an empty 200 for HEAD alone', () => {
    expect(toText(ask('trello', { ...open, method: 'HEAD' }))).toBe('200 text/plain ');
    expect(toText(ask('trello', { ...open, method: 'HEAD', query: 'a=1' }))).toBe('handshake_refused: the request has a query');
    for (const method of ['GET', 'POST', 'OPTIONS']) expect(ask('trello', { ...open, method })).toBeUndefined();
  });
});

describe.each([
  ['asana', 'X-Hook-Secret', 'b537207f20cbfa02357cf448134da559e8bd39d61597dcd5631b8012eae53e81'],
  ['ringcentral', 'Validation-Token', 'f9e0d1c2-8d8e-4f5a-9c1b-6a9d1a1c3b2e'],
] as const)('%s', (type, field, value) => {
  test('gets its header back, for an empty body or an empty object, and nothing is kept', () => {
    for (const body of ['', '{}']) {
      const { refusal, offered } = post(type, body, { headers: [field, value] });
      expect(refusal?.reply).toEqual({
        status: 200,
        contentType: 'text/plain',
        body: '',
        headers: [
          [field, value],
          ['X-Content-Type-Options', 'nosniff'],
        ],
      });
      expect(offered).toEqual([]);
    }
  });

  test('is checked as a delivery if it has content or no such header', () => {
    for (const body of ['{"events":[]}', ' ', '[]', '{ }'])
      expect(post(type, body, { headers: [field, value] }).refusal).toBeUndefined();
    expect(post(type, '{}').refusal).toBeUndefined();
  });

  test.each([...UNSAFE, 'a;b', 'a,b', '"a"', '<b>'])('is rejected with the value %j', (wrong) => {
    expect(post(type, '', { headers: [field, wrong] }).refusal?.code).toBe('handshake_refused');
  });

  test('is rejected with two headers, and without the token of the URL if one is configured', () => {
    expect(post(type, '', { headers: [field, value, field, value] }).refusal?.code).toBe('handshake_refused');
    expect(post(type, '', { headers: [field, value], query: 'a=1' }).refusal?.code).toBe('handshake_refused');
    const headers = [field, value];
    expect(post(type, '', { headers, hasToken: true }).refusal?.code).toBe('handshake_refused');
    expect(post(type, '', { headers, hasToken: true, query: 'token=x' }).refusal?.code).toBe('malformed_request');
    expect(post(type, '', { headers, hasToken: true, query: IN_URL }).refusal?.code).toBe('handshake');
    expect(post(type, '', { headers, hasToken: true, query: IN_URL, isTokenGone: true }).refusal?.code).toBe(
      'secret_unavailable',
    );
  });
});

describe('Monday', () => {
  test('gets its challenge back in JSON', () => {
    expect(toText(post('monday', { challenge: '3eZbrw1aBm2rZgRN' }).refusal)).toBe(
      '200 application/json {"challenge":"3eZbrw1aBm2rZgRN"}',
    );
  });

  test.each([...UNSAFE, 7, null, {}, ['a']])('is rejected with the challenge %j', (challenge) => {
    expect(post('monday', { challenge }).refusal?.code).toBe('handshake_refused');
  });

  test.each([
    '{"challenge":"a","event":{}}',
    '{"event":{"challenge":"a"}}',
    '["challenge"]',
    '"challenge"',
    '{"challenge":"a"} x',
    '',
  ])('is checked as a delivery as %j', (body) => {
    expect(post('monday', body).refusal).toBeUndefined();
  });

  test('needs the token of the URL if one is configured', () => {
    expect(post('monday', { challenge: 'a' }, { hasToken: true }).refusal?.code).toBe('handshake_refused');
    expect(post('monday', { challenge: 'a' }, { hasToken: true, query: IN_URL }).refusal?.code).toBe('handshake');
  });
});

describe('Statsig', () => {
  const ask = (verification_code: unknown) => ({ data: { event: 'url_verification', verification_code } });

  test('gets its code back in JSON', () => {
    expect(toText(post('statsig', ask('3eZbrw1aBm2rZgRN')).refusal)).toBe(
      '200 application/json {"verification_code":"3eZbrw1aBm2rZgRN"}',
    );
  });

  test.each([...UNSAFE, 7, null, {}, ['a']])('is rejected with the code %j', (code) => {
    expect(post('statsig', ask(code)).refusal?.code).toBe('handshake_refused');
  });

  test.each([
    { data: { event: 'url_verification', verification_code: 'a', user: {} } },
    { data: { event: 'url_verification', verification_code: 'a' }, more: 1 },
    { data: { event: 'statsig::config_change', verification_code: 'a' } },
    { data: [{ event: 'url_verification', verification_code: 'a' }] },
    { data: { event: 'url_verification' } },
    { event: 'url_verification', verification_code: 'a' },
  ])('is checked as a delivery as %j', (body) => {
    expect(post('statsig', body).refusal).toBeUndefined();
  });

  test('needs the token of the URL if one is configured', () => {
    expect(post('statsig', ask('a'), { hasToken: true }).refusal?.code).toBe('handshake_refused');
    expect(post('statsig', ask('a'), { hasToken: true, query: IN_URL }).refusal?.code).toBe('handshake');
  });
});

describe('Notion', () => {
  const token = 'secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl';

  test('gets 200 for its token, which only an operator is shown', () => {
    const { refusal, offered } = post('notion', { verification_token: token });
    expect(toText(refusal)).toBe('200 application/json {}');
    expect(offered).toEqual([token]);
  });

  test('is not shown again once the token is a key', () => {
    const { refusal, offered } = post('notion', { verification_token: token }, { keys: [KEY, token] });
    expect([refusal?.code, offered]).toEqual(['handshake', []]);
  });

  test.each([...UNSAFE, 'secret_short', `secret_${'a'.repeat(129)}`, 'secret_<script>alert(1)</script>', 7, null, {}])(
    'is rejected with the token %j',
    (wrong) => {
      const { refusal, offered } = post('notion', { verification_token: wrong });
      expect([refusal?.code, offered]).toEqual(['handshake_refused', []]);
    },
  );

  test.each([{ verification_token: token, id: 1 }, { id: 'a', type: 'page.created' }, [token]])(
    'is checked as a delivery as %j',
    (body) => {
      expect(post('notion', body)).toEqual({ refusal: undefined, offered: [] });
    },
  );

  test('is shown to nobody without the token of the URL, if one is configured', () => {
    for (const query of [undefined, 'token=x', 'a=1']) {
      const over = query === undefined ? { hasToken: true } : { hasToken: true, query };
      expect(post('notion', { verification_token: token }, over).offered).toEqual([]);
    }
  });
});

describe('Azure Event Grid', () => {
  const event = {
    id: '2d1781af-3a4c-4d7c-bd0c-e34b19da4e66',
    data: { validationCode: '512d38b6-c7b8-40c8-89fe-f46f9e9622b6', validationUrl: 'https://rp.example/validate' },
    eventType: 'Microsoft.EventGrid.SubscriptionValidationEvent',
  };

  test('gets its code back after it was authenticated as a delivery is, and never has its URL requested', () => {
    expect(toText(tell('event-grid', [event]))).toBe(
      '200 application/json {"validationResponse":"512d38b6-c7b8-40c8-89fe-f46f9e9622b6"}',
    );
    expect(post('event-grid', [event]).refusal).toBeUndefined();
  });

  test.each([...UNSAFE, 7, null, undefined, {}])('is rejected with the code %j', (validationCode) => {
    expect(tell('event-grid', [{ ...event, data: { validationCode } }])?.code).toBe('handshake_refused');
  });

  test('is rejected together with other events', () => {
    expect(tell('event-grid', [event, event])?.code).toBe('handshake_refused');
  });

  test.each(
    [event, [], [{ ...event, eventType: 'Microsoft.Storage.BlobCreated' }], [null], [[event]], '[', [{ data: event }]].map(
      (body) => [body],
    ),
  )('is not detected in %j', (body) => {
    expect(tell('event-grid', body)).toBeUndefined();
  });
});

test('for any unsigned POST nothing throws, and only short values of safe characters are echoed', () => {
  const types: readonly HandshakeName[] = ['asana', 'ringcentral', 'monday', 'notion', 'trello', 'event-grid'];
  const leaf = fc.oneof(fc.string({ unit: 'binary', maxLength: 300 }), fc.integer(), fc.constant(null));
  const body = fc.oneof(
    fc
      .dictionary(fc.constantFrom('challenge', 'verification_token', 'a'), leaf, { maxKeys: 2 })
      .map((value) => JSON.stringify(value)),
    fc.string({ unit: 'binary' }),
    fc.constantFrom('', '{}'),
  );
  const headers = fc.array(fc.tuple(fc.constantFrom('X-Hook-Secret', 'Validation-Token', 'A'), fc.string({ maxLength: 300 })), {
    maxLength: 3,
  });
  fc.assert(
    fc.property(fc.constantFrom(...types), body, headers, (type, content, fields) => {
      const { refusal, offered } = post(type, content, { headers: fields.flat() });
      const reply = refusal?.reply;
      const texts = [reply?.body ?? '', ...(reply?.headers ?? []).map(([, value]) => value), ...offered];
      return texts.every((text) => /^[\x21-\x7e]{0,300}$/.test(text));
    }),
    { numRuns: 3_000 },
  );
});
