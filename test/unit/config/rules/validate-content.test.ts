/** Whether `check` finds methods, media types and headers that no delivery of the scheme can have. */
import { describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { parseConfig } from '../../../../src/config/load/load.ts';
import { systemClock } from '../../../../src/core/clock.ts';
import { formatProblem } from '../../../../src/core/problem.ts';
import { PRESETS } from '../../../../src/verify/presets/catalogue.ts';

function toProblems(webhook: object, match: object = {}): string {
  const keys = [{ name: 'k', secret: { env: 'SECRET' } }];
  const route = {
    name: 'r',
    match: { path: '/hook', ...match },
    upstream: 'http://127.0.0.1:3000',
    webhook: { keys, ...webhook },
  };
  const { problems } = parseConfig('gate.yaml', stringify({ routes: [route] }), systemClock);
  return problems
    .filter(({ severity }) => severity === 'error')
    .map(formatProblem)
    .join('\n');
}

const custom = (fields: object): object => ({
  scheme: 'custom',
  custom: { signature: { header: 'X-S' }, signed: ['body'], ...fields },
});
const publicUrl = 'https://hooks.example.com';

describe('is accepted', () => {
  test.each([
    ['Twilio by GET', { scheme: 'twilio', publicUrl }, { methods: ['GET', 'POST'] }],
    ['Twilio by GET alone', { scheme: 'twilio', publicUrl }, { methods: ['GET'] }],
    ['the exact value of a header', { scheme: 'github', contentTypes: ['application/json; text/html; charset=utf-8'] }, {}],
    ['a quoted charset', { scheme: 'github', contentTypes: ['application/json; charset="utf-8"'] }, {}],
    ['a scheme that signs an empty body by DELETE', custom({}), { methods: ['POST', 'DELETE'] }],
    ['another method of a sender that is not known', custom({}), { methods: ['PUT'] }],
    ['the method of a handshake', { scheme: 'meta', handshake: { verifyToken: { env: 'T' } } }, { methods: ['GET', 'POST'] }],
    ['the absence of a header that deliveries do not need', { scheme: 'github' }, { withoutHeaders: ['x-github-delivery'] }],
    [
      'no Content-Type if the body may be empty',
      { scheme: 'github', contentTypes: ['none'] },
      { withoutHeaders: ['content-type'] },
    ],
  ])('%s', (_title, webhook, match) => {
    expect(toProblems(webhook, match)).toBe('');
  });
});

describe('is rejected, with the place and a fix', () => {
  test.each([
    [
      'a method that the sender does not use',
      { scheme: 'github' },
      { methods: ['PUT'] },
      /match\.methods: GitHub sends deliveries by POST, .*\n.*hint: methods: \[POST\]/,
    ],
    [
      'GET for a signature in the body',
      { scheme: 'mailgun' },
      { methods: ['POST', 'GET'] },
      /match\.methods\.1: mailgun reads the body, which a GET request does not have/,
    ],
    [
      'DELETE for a required shape',
      custom({ contentShape: 'json-object' }),
      { methods: ['POST', 'DELETE'] },
      /match\.methods\.1: custom reads the body/,
    ],
    [
      'JSON for a signature in a form',
      { scheme: 'alipay', contentTypes: ['application/json'] },
      {},
      /contentTypes\.0: no delivery can be application\/json: the scheme reads the fields of a form\n.*hint: remove it/,
    ],
    [
      'multipart for a signed form',
      { scheme: 'alipay', contentTypes: ['application/x-www-form-urlencoded', 'multipart/form-data'] },
      {},
      /contentTypes\.1: .*URL-encoded form/,
    ],
    [
      'a form for a signature in JSON',
      { scheme: 'adyen-payments', contentTypes: ['application/json', 'application/x-www-form-urlencoded'] },
      {},
      /contentTypes\.1: .*as JSON/,
    ],
    [
      'a form for a required shape',
      { scheme: 'x', contentTypes: ['application/x-www-form-urlencoded'] },
      {},
      /contentTypes\.0: .*as JSON/,
    ],
    [
      '`none` for a signature in the body',
      { scheme: 'braintree', contentTypes: ['application/x-www-form-urlencoded', 'none'] },
      {},
      /contentTypes\.1: no delivery can be none/,
    ],
    [
      'the absence of Content-Type',
      { scheme: 'github' },
      { withoutHeaders: ['content-type'] },
      /withoutHeaders\.0: each delivery of github has content-type/,
    ],
    [
      'the absence of the signature',
      { scheme: 'github' },
      { withoutHeaders: ['x-hub-signature-256'] },
      /withoutHeaders\.0: each delivery of github has x-hub-signature-256/,
    ],
    [
      'an exact value with another charset',
      { scheme: 'github', contentTypes: ['application/json; charset=utf-16'] },
      {},
      /another charset than utf-8/,
    ],
    [
      'an exact value with an extended charset',
      { scheme: 'github', contentTypes: ["application/json; charset*=utf-7''"] },
      {},
      /another charset than utf-8/,
    ],
    [
      'an exact value with a charset in a parameter',
      { scheme: 'github', contentTypes: ['application/json; x-charset=utf-7'] },
      {},
      /another charset than utf-8/,
    ],
    [
      'an exact value with a boundary',
      { scheme: 'github', contentTypes: ['multipart/form-data; boundary=a'] },
      {},
      /or a boundary/,
    ],
  ])('%s', (_title, webhook, match, expected) => {
    expect(toProblems(webhook, match)).toMatch(expected);
  });
});

test('a method without content that the sender does not use is a warning', () => {
  const route = { name: 'r', match: { path: '/hook', methods: ['GET', 'POST'] }, upstream: 'http://127.0.0.1:3000' };
  const webhook = { scheme: 'github', keys: [{ name: 'k', secret: { env: 'SECRET' } }] };
  const { problems } = parseConfig('gate.yaml', stringify({ routes: [{ ...route, webhook }] }), systemClock);
  expect(problems.map(({ message }) => message)).toContainEqual(
    expect.stringContaining('requests by GET usually have no Content-Type'),
  );
});

describe('media types of which the sender sends none', () => {
  const toWarnings = (webhook: object): string[] => {
    const keys = [{ name: 'k', secret: { env: 'SECRET' } }];
    const route = { name: 'r', match: { path: '/hook' }, upstream: 'http://127.0.0.1:3000', webhook: { keys, ...webhook } };
    return parseConfig('gate.yaml', stringify({ routes: [route] }), systemClock).problems.map(formatProblem);
  };

  test.each([
    ['gitlab', 'application/x-www-form-urlencoded', 'GitLab (secret token) sends application/json, so its deliveries get 415'],
    ['stripe', 'text/json', 'Stripe sends application/json, so its deliveries get 415'],
    ['chargify', 'application/json', 'Maxio (Chargify) sends application/x-www-form-urlencoded, so its deliveries get 415'],
    ['quickbooks', 'none', 'sends application/json or application/cloudevents-batch+json'],
    ['github', 'text/plain', 'hint: contentTypes: [application/json, application/x-www-form-urlencoded]; or remove contentTypes'],
  ])('are a warning for %s with %s', (scheme, type, expected) => {
    expect(toWarnings({ scheme, contentTypes: [type] }).join('\n')).toContain(expected);
  });

  test.each([
    ['github', ['application/x-www-form-urlencoded']],
    ['github', ['text/plain', 'application/json']],
    ['github', ['application/json; x=1']],
    ['alipay', ['application/x-www-form-urlencoded']],
    ['bearer', ['text/plain']],
  ])('are no warning for %s with %s', (scheme, contentTypes) => {
    expect(toWarnings({ scheme, contentTypes }).join('\n')).not.toContain('so its deliveries get 415');
  });
});

test('no preset lists what it cannot accept', () => {
  for (const { name, methods } of PRESETS) {
    const problems = toProblems({ scheme: name, publicUrl }, methods === undefined ? {} : { methods });
    expect(problems).not.toMatch(/contentTypes|methods/);
  }
});
