import { describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { parseConfig } from '../../../../src/config/load/load.ts';
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
    const store = { redis: { url: 'redis://127.0.0.1:6379' } };
    expect(check({ roles: ['deliver'], basic: { realm: 'api' } }, { store })).toEqual([]);
  });

  test('are guessed without a limit only with a warning', () => {
    expect(check({ basic: { ...BASIC, limit: 'off' } })).toEqual([
      'warning provider.basic.limit: the rate of password guesses is limited only by hashing',
    ]);
  });
});
