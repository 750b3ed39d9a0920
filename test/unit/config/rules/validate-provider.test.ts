import { describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { parseConfig } from '../../../../src/config/load/load.ts';
import { describeStoredSecrets } from '../../../../src/config/rules/validate-provider.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const TLS = { certFile: 'c', keyFile: 'k' };
const TOKEN = { secret: { env: 'T' } };
const BASIC = { realm: 'api', users: { file: 'u' } };

function check(provider: object, sections: object = {}): string[] {
  const { problems } = parseConfig('f', stringify({ provider, ...sections }), new FakeClock());
  return problems.map(({ severity, path, message }) => `${severity} ${path}: ${message}`);
}

describe('the address of the API', () => {
  const address = '0.0.0.0:8482';

  test.each([
    ['loopback alone', {}],
    ['a password on loopback, without TLS', { basic: BASIC }],
    ['all addresses with TLS and a token', { address, tls: TLS, token: TOKEN }],
    ['all addresses with TLS and passwords', { address, tls: TLS, basic: BASIC }],
    ['all addresses with TLS, a token and passwords', { address, tls: TLS, token: TOKEN, basic: BASIC }],
  ])('may be %s', (_, provider) => {
    expect(check(provider)).toEqual([]);
  });

  const OPEN = 'error provider.address: anyone who reaches this address could send events in your name';
  const CLEAR = 'error provider.address: tokens and passwords would cross the network in clear text';

  test.each([
    ['without TLS and credentials', { address }, [OPEN, CLEAR]],
    ['without credentials', { address, tls: TLS }, [OPEN]],
    ['with passwords in clear text', { address, basic: BASIC }, [CLEAR]],
    ['with a token in clear text', { address: '10.0.0.1:8482', token: TOKEN }, [CLEAR]],
  ])('is an error if other machines reach it %s', (_, provider, errors) => {
    expect(check(provider)).toEqual(errors);
  });
});

test('NAT64 prefixes must be IPv6 prefixes of a length that RFC 6052 knows', () => {
  const egress = (prefix: string) => ({ egress: { nat64Prefixes: [prefix] } });
  expect(check(egress('2001:db8:64::/96'))).toEqual([]);
  for (const prefix of ['2001:db8:64::/80', '2001:db8:64::1', '10.0.0.0/8'])
    expect(check(egress(prefix))).toEqual([
      `error provider.egress.nat64Prefixes.0: "${prefix}" is not a NAT64 prefix; write an IPv6 prefix of 32, 40, 48, 56, 64 or 96 bits, for example 64:ff9b::/96`,
    ]);
});

describe('the users of the API', () => {
  test('are required', () => {
    expect(check({ basic: { realm: 'api' } })).toEqual(['error provider.basic: no section defines the users of this realm']);
  });

  test('can be those of a route, and must be the same', () => {
    const route = (users: object) => ({
      name: 'admin',
      match: { pathPrefix: '/' },
      upstream: 'http://127.0.0.1:3000',
      basic: { realm: 'api', users },
    });
    const sections = (users: object) => ({
      listen: { address: ':8443', tls: TLS },
      routes: [route(users)],
    });
    expect(check({ basic: { realm: 'api' } }, sections({ file: 'u' }))).toEqual([]);
    expect(check({ basic: BASIC }, sections({ file: 'other' }))).toEqual([
      'error provider.basic.users: another section defines different users for the realm "api"',
    ]);
  });

  test('are not needed by a process that only delivers', () => {
    const queue = { postgres: { url: { env: 'QUEUE_URL' } } };
    expect(check({ roles: ['deliver'], basic: { realm: 'api' }, queue })).toEqual([]);
  });

  test('are guessed without a limit only with a warning', () => {
    expect(check({ basic: { ...BASIC, limit: 'off' } })).toEqual([
      'warning provider.basic.limit: the rate of password guesses is limited only by hashing',
    ]);
  });
});

describe('the queue', () => {
  const postgres = { url: { env: 'QUEUE_URL' } };

  test('is in one database', () => {
    expect(check({ queue: { postgres } })).toEqual([]);
    expect(check({ queue: { sqlite: { path: 'q.db' } } })).toEqual([]);
    expect(check({ queue: { postgres, sqlite: { path: 'q.db' } } })).toEqual([
      'error provider.queue: the queue is configured twice',
    ]);
  });

  test('is never in Redis, and the error names both ways out', () => {
    expect(check({ queue: { redis: {} } })).toEqual([
      'error provider.queue.redis: Redis can evict or lose accepted events: set postgres for several replicas, or sqlite for one',
    ]);
  });

  test.each(['accept', 'deliver'])('is shared with processes that do not only %s', (role) => {
    expect(check({ roles: [role], queue: { postgres } })).toEqual([]);
    expect(check({ roles: [role] })).toEqual([
      'error provider.roles: processes with different roles share a queue, and this one is in a file',
    ]);
  });
});

describe('dead deliveries', () => {
  const secret = { env: 'S' };
  const endpoint = { name: 'acme', url: 'https://acme.example/', secret };
  const TOO_LONG = 'the attempts can take 36 days, and dead deliveries are removed 30 days after their event was accepted';

  test('are kept for longer than the attempts of the default schedule take', () => {
    expect(check({ endpoints: [endpoint] })).toEqual([]);
  });

  test('cause a warning if they are removed before the last attempt can have failed', () => {
    const schedule = ['15d', '15d'];
    expect(check({ schedule })).toEqual([`warning provider.schedule: ${TOO_LONG}`]);
    expect(check({ endpoints: [{ ...endpoint, schedule }] })).toEqual([`warning provider.endpoints.0.schedule: ${TOO_LONG}`]);
    expect(check({ schedule, queue: { deadRetention: '60d' } })).toEqual([]);
  });
});

describe('keys that encrypt secrets', () => {
  const notes = (sections: object): string[] => {
    const { config } = parseConfig('f', stringify(sections), new FakeClock());
    if (config === undefined) throw new Error('the config is not valid');
    return describeStoredSecrets(config);
  };

  test('are recommended where the API can create endpoints', () => {
    const plain = [expect.stringMatching(/^secrets and header values of endpoints .* set provider\.encryption\.keys$/)];
    expect(notes({ provider: {} })).toEqual(plain);
    expect(notes({ provider: { encryption: { keys: [{ env: 'K' }] } } })).toEqual([]);
    const queue = { postgres: { url: { env: 'QUEUE_URL' } } };
    expect(notes({ provider: { roles: ['deliver'], queue } })).toEqual([]);
    expect(notes({ provider: { roles: ['accept'], queue } })).toEqual(plain);
  });

  test.each([
    [{ keys: [] }, 'provider.encryption.keys'],
    [{}, 'provider.encryption.keys'],
    [{ keys: ['AAAA'] }, 'provider.encryption.keys.0'],
    [{ keys: [{ env: 'K' }], lostKeys: ['ABC'] }, 'provider.encryption.lostKeys.0'],
  ])('are an error if they are %j', (encryption, path) => {
    expect(check({ encryption }).map((line) => line.split(': ')[0])).toEqual([`error ${path}`]);
  });
});
