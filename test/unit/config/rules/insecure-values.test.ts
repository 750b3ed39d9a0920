import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { parseConfig } from '../../../../src/config/load/load.ts';
import { readSecret } from '../../../../src/config/sources/secrets.ts';
import { systemClock } from '../../../../src/core/clock.ts';

const folder = mkdtempSync(join(tmpdir(), 'sidegate-test-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const ROUTE = { name: 'a', match: { path: '/a' }, upstream: 'http://127.0.0.1:3000', allow: 'anyone' };

function check(sections: object): string[] {
  const { problems } = parseConfig('gate.yaml', stringify({ routes: [ROUTE], ...sections }), systemClock);
  return problems.map(({ severity, path, message }) => `${severity} ${path}: ${message}`);
}

describe('trusted ranges', () => {
  const trust = (...trustedProxies: string[]): string[] => check({ listen: { trustedProxies } });

  test.each([
    [['0.0.0.0/0'], 0],
    [['10.0.0.0/8', '::/0'], 1],
    [['0.0.0.0/1', '128.0.0.0/1'], 0],
    [['0.0.0.0/2', '64.0.0.0/2'], 0],
    [['::ffff:0.0.0.0/96'], 0],
    [['2000::/3'], 0],
  ])('%j get a warning', (ranges, index) => {
    expect(trust(...ranges)).toEqual([
      `warning listen.trustedProxies.${index}: every client is a trusted proxy, so anyone can claim any client address`,
    ]);
  });

  test.each([[['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', 'fc00::/7', '203.0.113.7']], [['10.0.0.0/8', '10.0.0.0/8']]])(
    '%j get none',
    (ranges) => {
      expect(trust(...ranges)).toEqual([]);
    },
  );
});

describe('a tolerance', () => {
  const tolerate = (scheme: string, tolerance: string): string[] =>
    check({
      routes: [
        {
          ...ROUTE,
          allow: undefined,
          webhook: { scheme, tolerance, dedup: { retention: '9000d' }, keys: [{ name: 'k', secret: { env: 'K' } }] },
        },
      ],
    }).filter((text) => text.includes('tolerance'));

  test('gets a warning above an hour', () => {
    expect(tolerate('standard-webhooks', '30d')).toEqual([
      'warning routes.0.webhook.tolerance: a captured delivery is accepted for so long whenever its ID is not remembered, as after a restart without Redis',
    ]);
    expect(tolerate('standard-webhooks', '1h')).toEqual([]);
  });
});

describe('a limit of password guesses', () => {
  const limit = (rule: object): string[] => {
    const basic = { realm: 'r', users: { file: 'u' }, requireTls: false, limit: rule };
    return check({ routes: [{ ...ROUTE, allow: undefined, basic }] }).filter((text) => text.includes('basic.limit'));
  };
  const toWarning = (number: string): string =>
    `warning routes.0.basic.limit: allows ${number} guesses a day from one client or for one user, which is hardly a limit: more than 100000`;

  test.each([
    [{ failures: 1_000_000, per: '1s', ban: '1s' }, '86400000000'],
    [{ failures: 100, per: '1m' }, '142560'],
    [{ failures: 5, per: '1d', ban: '1s' }, '432000'],
    [{ failures: 10, per: '0s' }, 'any number of'],
    [{ failures: 1, ban: '0s' }, 'any number of'],
  ])('gets a warning if it is hardly one: %j', (rule, number) => {
    expect(limit(rule)).toEqual([toWarning(number)]);
  });

  test.each([{}, { failures: 70 }, { failures: 1, per: '0s' }, { failures: 20, per: '10m', ban: '1h' }])(
    'gets none: %j',
    (rule) => {
      expect(limit(rule)).toEqual([]);
    },
  );
});

describe('resend: always', () => {
  const resend = (webhook: object): string[] => {
    const keys = [{ name: 'k', secret: { env: 'K' } }];
    const route = { ...ROUTE, allow: undefined, resend: 'always', webhook: { keys, ...webhook } };
    return check({ routes: [route] }).filter((text) => text.includes('routes.0.resend'));
  };

  test('gets a warning on a route that handles each delivery once', () => {
    expect(resend({})).toEqual([
      'warning routes.0.resend: the app can get a delivery twice: it may have handled the delivery before it closed a kept-alive connection, and sidegate sends it again',
    ]);
  });

  test('gets none if the app gets duplicates anyway, or no delivery from this route', () => {
    expect(resend({ dedup: 'off' })).toEqual([]);
    expect(resend({ ack: 'onAccept' })).toEqual([]);
    expect(check({ routes: [{ ...ROUTE, resend: 'always' }] })).toEqual([]);
  });
});

test.each([
  [undefined, {}, 1],
  [['DNS:a.example', 'DNS:b.example'], {}, 1],
  [['DNS:a.example'], {}, 0],
  [undefined, { dedup: 'off' }, 0],
])('clients without a signature that share their IDs get a warning: names %j, %j', (names, dedup, count) => {
  const clientCertificate = names === undefined ? {} : { names };
  const webhook = { scheme: 'unsigned', id: { json: '$.id' }, ...dedup };
  const route = { name: 'a', match: { path: '/a' }, upstream: 'http://127.0.0.1:3000', webhook, clientCertificate };
  expect(check({ routes: [route] }).filter((text) => text.includes('share the IDs of events'))).toHaveLength(count);
});

describe('an unsigned ID that is trusted', () => {
  const trust = (scheme: string, dedup: object = { unsignedId: 'trust' }): string[] =>
    check({
      routes: [{ ...ROUTE, allow: undefined, webhook: { scheme, dedup, keys: [{ name: 'k', secret: { env: 'K' } }] } }],
    }).filter((text) => text.includes('unsignedId'));
  const toWarning = (scheme: string, end: string): string =>
    `warning routes.0.webhook.dedup.unsignedId: ${scheme} does not sign the ID: with one captured delivery and invented IDs, anyone can make the app handle the event again and again, ${end}`;

  test('gets a warning, also if the retention is explicit', () => {
    expect(trust('github', { retention: '30d', unsignedId: 'trust' })).toEqual([toWarning('github', 'forever')]);
    expect(trust('github')).toEqual([toWarning('github', 'forever')]);
    expect(trust('zendesk')).toEqual([toWarning('zendesk', 'until its timestamp is too old')]);
  });

  test.each(['standard-webhooks', 'stripe', 'aws-sns'])('gets none for %s, which signs it', (scheme) => {
    expect(trust(scheme)).toEqual([]);
  });
});

test.each([
  [
    'proxy',
    { address: '127.0.0.1:3000', requireTls: false, allow: ['a.example:443'], basic: { realm: 'p', users: { file: 'u' } } },
  ],
  ['authz', { address: '127.0.0.1:3000', trustedCallers: ['127.0.0.1'] }],
])('an upstream that is the port of %s is an error', (name, section) => {
  expect(check({ [name]: section })).toEqual([`error routes.0.upstream: the upstream points to the ${name} port of sidegate`]);
});

test.each([
  ['get', 'methods are case-sensitive, and no client sends "get"'],
  ['ANY', '"ANY" is not a method'],
  ['*', '"*" is not a method'],
])('the method %s is an error', (method, message) => {
  expect(check({ routes: [{ ...ROUTE, match: { path: '/a', methods: ['POST', method] } }] })).toEqual([
    `error routes.0.match.methods.1: ${message}`,
  ]);
});

describe('a secret', () => {
  const read = async (text: string | Buffer): Promise<readonly string[]> => {
    const file = join(folder, 'secret');
    writeFileSync(file, text);
    const found = await readSecret({ file });
    return 'problem' in found ? [found.problem] : found.warnings;
  };

  test.each([
    '<SIGNING_SECRET>',
    'your-secret-here',
    'YOUR_API_KEY',
    ['$', '{WEBHOOK_SECRET}'].join(''),
    '{{ secret }}',
    'change-me-please',
    'xxxxxxxxxxxxxxxx',
  ])('gets a warning if it is the placeholder %s', async (text) => {
    expect(await read(`${text}\n`)).toEqual([expect.stringMatching(/looks like a placeholder, which anyone can guess/)]);
  });

  test.each([Buffer.from('\ufeffx7PqLw2Zk9'), Buffer.from('\ufeffx7PqLw2Zk9\n', 'utf16le')])(
    'gets a warning if its file starts with a byte order mark: %o',
    async (bytes) => {
      expect(await read(bytes)).toEqual([expect.stringMatching(/starts with a byte order mark/)]);
    },
  );

  test.each(['whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw', 'xoxb-1', 'youreallyrandom', '0123456789abcdef'])(
    'gets none if it is %s',
    async (text) => {
      expect(await read(text)).toEqual([]);
    },
  );
});

test('an allowed destination of the forward proxy gets a warning if it is an address that denyPrivate rejects', () => {
  const allow = ['10.0.0.1:443', '[::ffff:10.0.0.1]:443', '[fd00::1]:443', '8.8.8.8:53', 'db.internal:5432', '10.0.0.1'];
  const proxy = { address: '127.0.0.1:9091', requireTls: false, basic: { realm: 'p', users: { file: 'users' } }, allow };
  const rejected = 'denyPrivate rejects this address';
  expect(check({ proxy }).filter((line) => line.includes('proxy.allow'))).toEqual([
    `warning proxy.allow.0: ${rejected}`,
    `warning proxy.allow.1: ${rejected}`,
    `warning proxy.allow.2: ${rejected}`,
    'error proxy.allow.5: "10.0.0.1" is not a destination',
  ]);
  expect(check({ proxy: { ...proxy, allow: ['10.0.0.1:443'], denyPrivate: false } })).not.toContainEqual(
    expect.stringContaining(rejected),
  );
});
