import { describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { parseConfig } from '../../../../src/config/load/load.ts';
import { systemClock } from '../../../../src/core/clock.ts';
import { formatProblem } from '../../../../src/core/problem.ts';
import { PRESETS } from '../../../../src/verify/presets/catalogue.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

// The fake clock stands at 2027-01-15T08:00:00Z.
const PAST = '2026-12-01T00:00:00Z';
const LATER = '2027-02-01T00:00:00Z';
const LAST = '2027-03-01T00:00:00Z';
const AT = 'routes.0.webhook.keys';

function checkDates(...dates: readonly object[]): string[] {
  const keys = dates.map((each, i) => ({ name: `k${i}`, secret: { env: 'K' }, ...each }));
  const route = { name: 'a', match: { path: '/a' }, upstream: 'http://127.0.0.1:3000', webhook: { keys } };
  return parseConfig('f', stringify({ routes: [route] }), new FakeClock()).problems.map(
    ({ severity, path, message }) => `${severity} ${path}: ${message}`,
  );
}

test.each([
  ['a key for ever', [{}]],
  ['a key that takes over from another', [{ notBefore: LATER }, { notAfter: LAST }]],
  ['a key with a beginning and an end', [{ notBefore: PAST, notAfter: LAST }]],
])('accepts keys with dates: %s', (_, dates) => {
  expect(checkDates(...dates)).toEqual([]);
});

test.each([
  [
    [{}, { notBefore: LAST, notAfter: LATER }],
    `error ${AT}.1.notBefore: notAfter is not after notBefore, so the key is never accepted`,
  ],
  [
    [{}, { notBefore: LAST, notAfter: LAST }],
    `error ${AT}.1.notBefore: notAfter is not after notBefore, so the key is never accepted`,
  ],
  [[{ notBefore: LATER }, { notBefore: LAST }], `warning ${AT}: no key is valid yet, so every delivery gets 503`],
  [[{ notBefore: LATER }, { notAfter: PAST }], `warning ${AT}: no key is valid yet, so every delivery gets 503`],
  [[{}, { notAfter: PAST }], `warning ${AT}.1.notAfter: the key has expired`],
])('reports what is wrong with the dates of keys: %j', (dates, problem) => {
  expect(checkDates(...dates)).toContain(problem);
});

test('a route whose keys have all expired is an error, and nothing else', () => {
  const all = [`error ${AT}: every key has expired, so every delivery would be rejected`];
  expect(checkDates({ notAfter: PAST })).toEqual(all);
  expect(checkDates({ notAfter: PAST }, { notAfter: PAST })).toEqual(all);
  expect(checkDates({ notAfter: PAST }, {})).toEqual([`warning ${AT}.0.notAfter: the key has expired`]);
});

const ORDER = { key: '$.id', version: '$.v' };

/** What is said about leases. */
function findProblems(over: { webhook?: object; route?: object; limits?: object; queue?: object }): string[] {
  const config = {
    listen: { address: '127.0.0.1:0' },
    ...(over.limits && { limits: over.limits }),
    ...(over.webhook && 'ack' in over.webhook ? { provider: over.queue ? { queue: over.queue } : {} } : {}),
    routes: [
      {
        name: 'a',
        match: { path: '/a' },
        upstream: 'http://127.0.0.1:3000',
        timeout: '1s',
        connectTimeout: '500ms',
        ...over.route,
        webhook: { keys: [{ name: 'k', secret: { file: 's' } }], ...over.webhook },
      },
    ],
  };
  const { problems } = parseConfig('gate.yaml', stringify(config), new FakeClock());
  return problems.map(formatProblem).filter((text) => text.includes('.lease'));
}

describe('order', () => {
  const check = (webhook: object): string[] => {
    const keys = [{ name: 'k', secret: { file: 's' } }];
    const route = {
      name: 'a',
      match: { path: '/a' },
      upstream: 'http://127.0.0.1:1',
      webhook: { keys, order: ORDER, ...webhook },
    };
    const { problems } = parseConfig('gate.yaml', stringify({ routes: [route] }), new FakeClock());
    return problems.map(formatProblem).filter((text) => text.includes('.order'));
  };

  test.each([
    ['forms', { scheme: 'mandrill', publicUrl: 'https://hooks.example.com' }, 'error', 'deliveries of mandrill are not JSON'],
    ['compressed JSON', { allowContentEncoding: true }, 'warning', 'those pass without ordering'],
    [
      'a policy that dedup does not have',
      { dedup: { onStoreError: 'forward' } },
      'error',
      'an event needs both, so it is rejected',
    ],
    ['its own policy alone', { order: { ...ORDER, onStoreError: 'forward' } }, 'error', 'set both to the same value'],
  ])('does not fit %s', (_title, webhook, severity, text) => {
    const [first = ''] = check(webhook);
    expect(first).toContain(severity);
    expect(first).toContain(text);
  });

  test.each([
    ['a form that contains JSON', { scheme: 'github' }],
    ['one policy', { dedup: 'off', order: { ...ORDER, onStoreError: 'refuse' } }],
    ['JSON as text', { contentTypes: ['text/plain'] }],
  ])('fits %s', (_title, webhook) => {
    expect(check(webhook)).toEqual([]);
  });
});

describe('the lease', () => {
  test.each([
    ['of an ID', { dedup: { lease: '1600ms', maxWait: '1s' } }, 'set more than 1600ms: timeout + connectTimeout + 100ms'],
    [
      'of an ID that waits for its turn',
      { dedup: { lease: '3600ms', maxWait: '1s' }, order: { ...ORDER, maxWait: '2s' } },
      'set more than 3600ms: timeout + connectTimeout + order.maxWait + 100ms',
    ],
    [
      'of a resource',
      { order: { ...ORDER, lease: '1600ms', maxWait: '1s' } },
      'set more than 1600ms: timeout + connectTimeout + 100ms',
    ],
  ])('%s must last while the app works', (_title, webhook, hint) => {
    const [first = ''] = findProblems({ webhook });
    expect(first).toContain('error');
    expect(first).toContain(hint);
  });

  const QUEUED = 'timeout + connectTimeout + limits.queueTimeout + timeout (for a free connection)';
  test.each([
    ['the queue and the pool', {}, '3s', 7_600, QUEUED],
    ['a first attempt', { resend: 'always' }, '7601ms', 8_600, `${QUEUED} + timeout (of a first attempt)`],
  ])('should cover %s: with less, deliveries that waited get 503', (_title, route, lease, needed, names) => {
    const [first = ''] = findProblems({ webhook: { dedup: { lease, maxWait: '1s' } }, route });
    expect(first).toContain('warning');
    expect(first).toContain(`set more than ${needed}ms: ${names} + 100ms`);
    expect(findProblems({ webhook: { dedup: { lease: `${needed + 1}ms`, maxWait: '1s' } }, route })).toEqual([]);
  });

  test('get a warning above ten minutes, unless the app may take so long', () => {
    const warned = expect.stringContaining('retries of the event get 503 until the lease ends');
    expect(findProblems({ webhook: { dedup: { lease: '601s' } } })).toEqual([warned]);
    expect(findProblems({ webhook: { order: { ...ORDER, lease: '1h' } } })).toEqual([warned]);
    expect(findProblems({ webhook: { dedup: { lease: '10m' } } })).toEqual([]);
    expect(findProblems({ webhook: { dedup: { lease: '1h' } }, route: { timeout: '20m' } })).toEqual([]);
  });

  test('must be shorter than the retention', () => {
    const problems = findProblems({ webhook: { dedup: { lease: '10d' } } });
    expect(problems).toContainEqual(
      expect.stringContaining('a handled event is forgotten sooner than one that is being handled'),
    );
  });

  test('need not cover the time of the app if deliveries are stored', () => {
    expect(findProblems({ webhook: { ack: 'onAccept', dedup: { lease: '6s' } }, route: { timeout: '60s' } })).toEqual([]);
  });

  test('must last until the queue in PostgreSQL has stored a delivery', () => {
    const needed = 3_100;
    const queue = { postgres: { url: { env: 'QUEUE_URL' }, statementTimeout: '3s' } };
    const find = (lease: number): string[] =>
      findProblems({ webhook: { ack: 'onAccept', dedup: { lease: `${lease}ms`, maxWait: '1s' } }, queue });
    expect(find(needed)[0]).toContain('the lease can end before the delivery is stored, so a retry would run concurrently');
    expect(find(needed)[0]).toContain(`set more than ${needed}ms: provider.queue.postgres.statementTimeout + 100ms`);
    expect(find(needed + 1)[0]).toContain(`set more than ${needed + 5_000}ms`);
    expect(find(needed + 5_001)).toEqual([]);
  });

  test('of the defaults covers everything', () => {
    expect(
      findProblems({ webhook: { order: ORDER }, route: { timeout: '15s', connectTimeout: '1s', resend: 'always' } }),
    ).toEqual([]);
  });
});

function toProblems(webhook: object, match: object = {}): string {
  return toAll(webhook, match, ['error']);
}

function toAll(webhook: object, match: object, severities = ['error', 'warning']): string {
  const keys = [{ name: 'k', secret: { env: 'SECRET' } }];
  const route = {
    name: 'r',
    match: { path: '/hook', ...match },
    upstream: 'http://127.0.0.1:3000',
    webhook: { keys, ...webhook },
  };
  const { problems } = parseConfig('gate.yaml', stringify({ routes: [route] }), systemClock);
  return problems
    .filter(({ severity }) => severities.includes(severity))
    .map(formatProblem)
    .join('\n');
}

const custom = (fields: object): object => ({
  scheme: 'custom',
  custom: { signature: { header: 'X-S' }, signed: ['body'], ...fields },
});
const inUrl = (type = 'okta'): object => ({ handshake: { type, verifyToken: { env: 'T' } } });
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
    ['the token of a handshake in a query that is signed', { scheme: 'mandrill', publicUrl, ...inUrl('trello') }, {}],
    ['the token of a handshake in any query', { ...custom({ signature: { query: 'sig' } }), ...inUrl(), allowQuery: true }, {}],
    ['the token of a handshake, without GET', { scheme: 'vonage', ...inUrl() }, {}],
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
      'JSON for a signed form',
      { scheme: 'mandrill', publicUrl: 'https://hooks.example.com', contentTypes: ['application/json'] },
      {},
      /contentTypes\.0: no delivery can be application\/json/,
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

test.each<[string, object, object]>([
  ['a signature', custom({ signature: { query: 'sig' } }), {}],
  ['an ID', custom({ id: { query: 'eid' }, signed: ['id', 'body'], separator: '.' }), {}],
  ['all that a GET says', { scheme: 'vonage' }, { methods: ['GET', 'POST'] }],
])('the token of a handshake is rejected beside %s in the query', (_title, webhook, match) => {
  expect(toProblems({ ...webhook, ...inUrl() }, match)).toMatch(
    /handshake\.verifyToken: deliveries .* have parameters in the query, .*\n.*hint: remove verifyToken/,
  );
});

describe('the match of a route', () => {
  test.each([
    [
      'methods without POST',
      custom({}),
      'monday',
      { methods: ['PUT'] },
      'error .*match\\.methods: the handshake of monday is a POST',
    ],
    ['a header', { scheme: 'asana' }, 'asana', { headers: ['x-hook-signature'] }, 'match\\.headers: .* without X-Hook-Signature'],
    ['another header', { scheme: 'meta' }, 'meta', { headers: ['x-tenant'] }, 'match\\.headers: .* meta .* without X-Tenant'],
  ])('must include the handshake, so %s is reported', (_title, webhook, type, match, expected) => {
    expect(toAll({ ...webhook, handshake: { type } }, match)).toMatch(new RegExp(expected, 'i'));
  });

  test.each([
    ['the method of the handshake', { scheme: 'meta' }, { methods: ['POST'] }],
    ['any method of a signed handshake', { ...custom({}), handshake: { type: 'slack' } }, { methods: ['PUT'] }],
    ['a header of a signed handshake', { scheme: 'slack' }, { headers: ['x-slack-signature'] }],
  ])('need not include %s', (_title, webhook, match) => {
    expect(toAll(webhook, match)).not.toMatch(/match\./);
  });
});

describe('a handshake that signs any token is rejected for', () => {
  const jwt = {
    signature: { header: 'Authorization', encoding: 'jwt', forms: [{ prefix: 'Bearer ', algorithm: 'hmac-sha256' }] },
  };
  const type = (name: string): object => ({ handshake: { type: name } });
  const TEXT_ALONE = { signed: [{ text: 'abc' }], unsignedBody: true, id: { json: '$.id' } };
  test.each([
    ['tokens', { ...custom({ ...jwt, jwt: { requiresExpiry: true } }), ...type('x') }, 'the raw body alone'],
    [
      'tokens with a digest',
      { ...custom({ ...jwt, jwt: { bodyHash: { claim: 'h' } } }), ...type('linkedin') },
      'the raw body, al',
    ],
    ['tokens of a sender', { scheme: 'vonage', ...type('x') }, 'the raw body alone'],
    ['a decoded field', { ...custom({ contentField: 'payload' }), ...type('x') }, 'the raw body alone'],
    ['a decoded field of a sender', { scheme: 'gitea', ...type('linkedin') }, 'the raw body, alone or after fixed text'],
    ['a fixed text', { ...custom(TEXT_ALONE), ...type('linkedin') }, 'the raw body, alone or after fixed text'],
  ])('%s', (_title, webhook, wording) => {
    expect(toProblems(webhook)).toContain(`signs any token with the key, so the scheme must sign ${wording}`);
  });

  test('but not for the raw body', () => {
    expect(toProblems({ ...custom({}), ...type('x') })).toBe('');
    expect(toProblems({ ...custom({ signed: [{ text: 'a=' }, 'body'] }), ...type('linkedin') })).toBe('');
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
