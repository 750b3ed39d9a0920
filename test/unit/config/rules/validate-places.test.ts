/** What the config admits about the places of signatures, what they cover, and their algorithms. */
import { describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { parseConfig } from '../../../../src/config/load/load.ts';
import { systemClock } from '../../../../src/core/clock.ts';
import { formatProblem } from '../../../../src/core/problem.ts';

const KEYS = [{ name: 'k', secret: { env: 'SECRET' } }];

function toProblems(webhook: object, severity: 'error' | 'warning' = 'error'): string {
  const route = { name: 'r', match: { path: '/hook' }, upstream: 'http://127.0.0.1:3000', webhook: { keys: KEYS, ...webhook } };
  const { problems } = parseConfig('gate.yaml', stringify({ routes: [route] }), systemClock);
  return problems
    .filter((problem) => problem.severity === severity)
    .map(formatProblem)
    .join('\n');
}

const custom = (fields: object, webhook: object = {}): object => ({ scheme: 'custom', custom: fields, ...webhook });
const HEADER = { header: 'X-Signature' };

describe('a custom scheme is accepted', () => {
  test.each([
    ['signed headers and the target', { signature: HEADER, signed: ['target', { header: 'X-A' }, 'body'], separator: '\n' }],
    ['the digest of the body', { signature: HEADER, signed: [{ header: 'X-A' }, { bodySha256: 'hex' }], separator: ':' }],
    ['a signature in the JSON body', { signature: { json: '$.sig' }, signed: ['bodyWithoutSignature'] }],
    ['a signature in the query', { signature: { query: 'sig' }, signed: ['body'] }],
    ['a signature in a form', { signature: { form: 'sig' }, signed: [{ form: 'id' }], onlySignedFields: true }],
    [
      'a token in the query',
      { signature: { query: 'token', encoding: 'text', forms: [{ algorithm: 'token' }] }, signed: [], id: { json: '$.id' } },
    ],
    [
      'a token in the body',
      { signature: { json: '$.token', encoding: 'text', forms: [{ algorithm: 'token' }] }, signed: [], id: { json: '$.id' } },
    ],
    ['an ID in XML', { signature: HEADER, signed: ['body'], id: { xml: 'notification/id' } }],
    [
      'an ID in a part of a header',
      { signature: HEADER, signed: ['body'], id: { header: 'X-Id', part: { separator: '/', index: 1 } } },
    ],
    [
      'two HMACs in one header',
      {
        signature: {
          ...HEADER,
          list: ',',
          forms: [
            { prefix: 'a=', algorithm: 'hmac-sha256' },
            { prefix: 'b=', algorithm: 'hmac-sha384' },
          ],
        },
      },
    ],
    ['SHA-256 of the body and the secret', { signature: { ...HEADER, forms: [{ algorithm: 'sha256-secret-last' }] } }],
    [
      'SHA-256 of the secret and JSON',
      { signature: { ...HEADER, forms: [{ algorithm: 'sha256-secret-first' }] }, contentShape: 'json-object' },
    ],
    [
      'parts of a signature',
      {
        signature: { ...HEADER, parts: { separator: ':', count: 2, signature: 1 } },
        signed: ['timestamp', 'body'],
        separator: '.',
        timestamp: { signaturePart: 0 },
      },
    ],
    [
      'all fields of a form, in order of their names',
      { signature: { form: 'sign', encoding: 'base64' }, signed: [{ sortedForm: { sign_type: 'RSA2' } }] },
    ],
  ])('with %s', (_, fields) => {
    expect(toProblems(custom(fields))).toBe('');
  });
});

describe('a custom scheme is rejected', () => {
  test.each([
    ['without a place of the signature', { signature: {} }, /the place of the signature is missing/],
    ['with two places of the signature', { signature: { header: 'X', json: '$.a' } }, /the signature has several places/],
    ['that signs its own signature', { signature: { json: '$.a' }, signed: ['body'] }, /the body contains its own signature/],
    [
      'that signs the URL with its signature',
      { signature: { query: 'a' }, signed: ['target', { text: ' ' }, 'body'] },
      /the URL contains its own signature/,
    ],
    [
      'that removes a signature that is not in the body',
      { signature: HEADER, signed: ['bodyWithoutSignature'] },
      /no field with the signature/,
    ],
    [
      'that removes an item of a list',
      { signature: { json: '$.a[0]' }, signed: ['bodyWithoutSignature'] },
      /no field with the signature/,
    ],
    [
      'that removes a signature that is not in the URL',
      { signature: HEADER, signed: ['urlWithoutSignature', { text: ' ' }, 'body'] },
      /no parameter with the signature/,
    ],
    [
      'that does not sign the body',
      { signature: HEADER, signed: [{ header: 'X-A' }] },
      /the body is not signed, so anyone could change it/,
    ],
    [
      'that says so although it does',
      { signature: HEADER, signed: ['body'], unsignedBody: true },
      /the signature covers the whole body/,
    ],
    [
      'with two free fields',
      {
        signature: HEADER,
        signed: [{ header: 'A', mayContainSeparator: true }, { header: 'B', mayContainSeparator: true }, 'body'],
        separator: '.',
      },
      /between header: A and header: B is ambiguous/,
    ],
    [
      'with fields that nothing separates',
      { signature: HEADER, signed: [{ header: 'A' }, { header: 'B' }, { bodySha256: 'hex' }] },
      /between header: A and header: B is ambiguous/,
    ],
    [
      'with a free field beside the body',
      { signature: HEADER, signed: [{ header: 'A', mayContainSeparator: true }, 'body'], separator: '.' },
      /between header: A and body is ambiguous/,
    ],
    [
      'with a list of headers that no line end follows',
      { signature: HEADER, signed: [{ headersIn: 'X-List' }, 'body'], separator: '.' },
      /between headersIn: X-List and body is ambiguous/,
    ],
    [
      'with all fields of a form beside something that nothing separates',
      { signature: HEADER, signed: [{ sortedForm: {} }, { header: 'A' }] },
      /between sortedForm and header: A is ambiguous/,
    ],
    [
      'with all fields of a form, and the signature in a part of one',
      { signature: { form: 'json', path: '$.a' }, signed: [{ sortedForm: {} }] },
      /sortedForm signs whole fields of a form/,
    ],
    ['with length extension', { signature: { ...HEADER, forms: [{ algorithm: 'sha256-secret-first' }] } }, /length extension/],
    [
      'with a token beside an HMAC',
      {
        signature: {
          ...HEADER,
          list: ',',
          forms: [
            { prefix: 'a=', algorithm: 'hmac-sha256' },
            { prefix: 'b=', algorithm: 'token' },
          ],
        },
      },
      /the same kind of key/,
    ],
    [
      'with a digest beside an HMAC',
      {
        signature: {
          ...HEADER,
          list: ',',
          forms: [
            { prefix: 'a=', algorithm: 'hmac-sha256' },
            { prefix: 'b=', algorithm: 'sha256-secret-last' },
          ],
        },
      },
      /the same kind of key/,
    ],
    [
      'with raw public keys that look like the secrets beside them',
      {
        signature: {
          ...HEADER,
          list: ',',
          forms: [
            { prefix: 'v1=', algorithm: 'hmac-sha256' },
            { prefix: 'v2=', algorithm: 'ed25519' },
          ],
        },
        publicKey: { encoding: 'hex', format: 'raw' },
      },
      /publicKey.prefix: without a prefix, a raw public key looks like a secret/,
    ],
    [
      'with a type of a form field',
      { signature: HEADER, signed: [{ form: 'a', type: 'integer' }] },
      /only a value in JSON has a type/,
    ],
    ['with a type of a header', { signature: HEADER, signed: [{ header: 'A', type: 'integer' }, 'body'] }, /type/],
    ...[...'&=+%#'].map((mark): [string, object, RegExp] => [
      `with a decoded ${mark}`,
      { signature: HEADER, signed: ['url', { text: ' ' }, 'body'], decodedInUrl: `/${mark}` },
      /must be up to 32 punctuation marks without/,
    ]),
    [
      'with a digest in a URL that is not signed',
      { signature: HEADER, signed: ['timestamp', 'form'], timestamp: { header: 'X-Time' }, contentDigestParameter: 'sha' },
      /contentDigestParameter: the URL is not signed/,
    ],
    [
      'with a token that is decoded',
      {
        signature: { ...HEADER, encoding: 'text', forms: [{ algorithm: 'token' }] },
        signed: [],
        id: { json: '$.id' },
        secret: { encoding: 'hex' },
      },
      /secret: a token is compared with the secret as it is/,
    ],
    [
      'with parts that it does not have',
      { signature: HEADER, signed: [{ signaturePart: 0 }, 'body'], separator: '.' },
      /the signature has no parts/,
    ],
    [
      'with parts of several signatures',
      {
        signature: { ...HEADER, list: ',', parts: { separator: ':', count: 2, signature: 1 } },
        signed: [{ signaturePart: 0 }, 'body'],
        separator: '.',
      },
      /parts of several signatures/,
    ],
    [
      'with the signature as a part',
      {
        signature: { ...HEADER, parts: { separator: ':', count: 2, signature: 1 } },
        signed: [{ signaturePart: 1 }, 'body'],
        separator: '.',
      },
      /part 1 is the signature/,
    ],
    [
      'with an unsigned time in a form',
      { signature: { form: 's' }, signed: [{ form: 'a' }], onlySignedFields: true, timestamp: { form: 't' } },
      /the timestamp is not signed/,
    ],
    [
      'with an ID in XML as a signed part',
      { signature: HEADER, signed: ['id', 'body'], separator: '.', id: { xml: 'a/b' } },
      /the signed ID must be in one place/,
    ],
    ['with a path that is none', { signature: HEADER, signed: ['body'], id: { xml: 'a//b' } }, /a path in XML/],
    [
      'with onlySignedFields without a form',
      { signature: HEADER, signed: ['body'], onlySignedFields: true },
      /no form field is signed/,
    ],
  ])('%s', (_, fields, expected) => {
    expect(toProblems(custom(fields, { publicUrl: 'https://hooks.example.com' }))).toMatch(expected);
  });
});

test('a preset that signs the ID is rejected with an ID in another place', () => {
  expect(toProblems({ scheme: 'twitch', id: { json: '$.id' } })).toMatch(/twitch signs the ID in another place/);
  expect(toProblems({ scheme: 'twitch', id: { header: 'X-Other-Id' } })).toBe('');
  expect(toProblems({ scheme: 'github', id: { json: '$.id' } })).toBe('');
});

describe('a signature that does not cover the body', () => {
  const fields = { signature: { json: '$.sig' }, signed: [{ json: '$.nonce' }], unsignedBody: true };

  test('is accepted with a warning that names what it covers', () => {
    expect(toProblems(custom(fields))).toBe('');
    expect(toProblems(custom(fields), 'warning')).toMatch(
      /signs only these parts of the body: json: \$\.nonce.*can change the rest/,
    );
    expect(toProblems(custom({ ...fields, signature: HEADER, signed: [{ header: 'X-Nonce' }] }), 'warning')).toMatch(
      /signs no part of the body/,
    );
  });

  test.each(['mailgun', 'dropbox-sign', 'adyen-payments'])('is warned of for the preset %s, too', (scheme) => {
    expect(toProblems({ scheme })).toBe('');
    expect(toProblems({ scheme }, 'warning')).toMatch(/signs only these parts of the body/);
  });

  test.each(['docusign', 'box', 'braintree', 'contentful'])(
    'is not warned of for the preset %s, which signs all of it',
    (scheme) => {
      expect(toProblems({ scheme })).toBe('');
      expect(toProblems({ scheme }, 'warning')).not.toMatch(/the body/);
    },
  );

  test('is one that covers only a part of a form field, also if no other field is accepted', () => {
    const part = {
      signature: { form: 'sig' },
      signed: [{ form: 'id' }, { form: 'json', path: '$.a' }],
      separator: '.',
      onlySignedFields: true,
    };
    expect(toProblems(custom(part))).toMatch(/the body is not signed/);
    expect(toProblems(custom({ ...part, signature: { form: 'json', path: '$.sig' }, signed: [{ form: 'id' }] }))).toMatch(
      /not signed/,
    );
    expect(toProblems(custom({ ...part, unsignedBody: true }), 'warning')).toMatch(/signs only these parts of the body/);
  });

  test('needs dedup by what is signed, so that it counts only once', () => {
    expect(toProblems({ scheme: 'mailgun', dedup: 'off' })).toMatch(
      /one captured signature is valid for any number of other bodies/,
    );
    expect(toProblems({ scheme: 'mailgun', dedup: { unsignedId: 'trust' } })).toMatch(/unsignedId: check/);
    expect(toProblems({ scheme: 'mailgun', dedup: { onStoreError: 'forward' } })).toMatch(/while the store is down/);
  });
});
