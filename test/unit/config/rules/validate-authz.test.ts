import { expect, test } from 'vitest';
import { stringify } from 'yaml';
import { parseConfig } from '../../../../src/config/load/load.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const BASIC = {
  name: 'a',
  match: { path: '/a' },
  upstream: 'http://127.0.0.1:3000',
  basic: { realm: 'a', users: { file: 'u' } },
};
const WEBHOOK = {
  name: 'b',
  match: { path: '/b' },
  upstream: 'http://127.0.0.1:3000',
  webhook: { keys: [{ name: 'k', secret: { env: 'K' } }] },
};

function check(authz: object | undefined, routes: readonly object[] = [BASIC]): string[] {
  const { problems } = parseConfig('f', stringify({ authz, routes }), new FakeClock());
  return problems.map(({ severity, path, message }) => `${severity} ${path}: ${message}`);
}

test.each([
  ['beside the proxy', { address: '127.0.0.1:9091' }],
  ['beside the proxy, by IPv6', { address: '[::1]:9091' }],
  [
    'on another machine, by TLS',
    { address: '0.0.0.0:9091', tls: { certFile: 'c', keyFile: 'k' }, trustedCallers: ['10.0.0.0/8'] },
  ],
])('accepts an endpoint %s, and routes that require TLS there', (_, authz) => {
  expect(check(authz)).toEqual([]);
});

test('reports that no request can use TLS if there is no endpoint either', () => {
  expect(check(undefined)).toEqual([
    'error routes.0.basic.requireTls: no request can arrive over TLS, so every request would be rejected',
  ]);
});

test.each([
  [
    'error authz.address: another listener of sidegate uses this port',
    { address: '127.0.0.1:9090', trustedCallers: ['127.0.0.1'] },
    [BASIC],
  ],
  [
    'warning authz.address: passwords may cross the network in clear text between the proxy and this port',
    { address: '0.0.0.0:9091' },
    [BASIC],
  ],
  [
    'warning authz.trustedCallers.0: this range allows every caller, so anyone can guess passwords and claim any client address',
    { address: '127.0.0.1:9091', trustedCallers: ['0.0.0.0/0'] },
    [BASIC],
  ],
  [
    'warning authz: every route verifies request bodies, which this endpoint never receives',
    { address: '127.0.0.1:9091' },
    [WEBHOOK],
  ],
  [
    'error authz.trustedCallers: the list is empty, so every auth request would be rejected',
    { address: '127.0.0.1:9091', trustedCallers: [] },
    [BASIC],
  ],
])('reports: %s', (problem, authz, routes) => {
  expect(check(authz, routes)).toEqual([problem]);
});
