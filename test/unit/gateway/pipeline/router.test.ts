import { expect, test } from 'vitest';
import { parseTarget, type RequestTarget } from '../../../../src/core/target.ts';
import { RouteTable } from '../../../../src/gateway/pipeline/router.ts';

function route(
  name: string,
  match: { path?: string; pathPrefix?: string; host?: string; methods?: string[] },
): {
  name: string;
  gateIdentity: string;
  match: { methods: string[]; allowInPath: never[]; trustAppToDistinguish: never[] } & typeof match;
} {
  return { name, gateIdentity: 'same', match: { methods: ['POST'], allowInPath: [], trustAppToDistinguish: [], ...match } };
}

const table = new RouteTable([
  route('root', { pathPrefix: '/' }),
  route('hooks', { pathPrefix: '/hooks/' }),
  route('billing', { path: '/hooks/billing' }),
  route('billing-put', { path: '/hooks/billing', methods: ['PUT', 'POST'] }),
  route('hosted', { path: '/hooks/billing', host: 'api.example' }),
  route('deep', { pathPrefix: '/hooks/billing/deep' }),
]);

function find(path: string, host = 'other', method = 'POST'): string | readonly string[] | undefined {
  const found = table.find({ method, host, target: parseTarget(path) as RequestTarget });
  return 'code' in found ? (found.allow ?? found.code) : found.name;
}

test.each([
  ['/hooks/billing', 'billing'],
  ['/hooks/billing/', 'hooks'],
  ['/hooks/billing/deep/er', 'deep'],
  ['/hooks/billing/deeper', 'hooks'],
  ['/hooks', 'hooks'],
  ['/hooksx', 'root'],
  ['/', 'root'],
])('the most specific route matches %s: %s', (path, name) => {
  expect(find(path)).toBe(name);
});

test.each([['api.example'], ['API.Example:8080'], ['api.example.'], ['api.example:']])(
  'a route with the host has precedence for %s',
  (host) => {
    expect(find('/hooks/billing', host)).toBe('hosted');
  },
);

test('finds a method in the routes of the most specific path and host, and in no others', () => {
  expect(find('/hooks/billing', 'other', 'PUT')).toBe('billing-put');
  expect(find('/hooks/billing', 'other', 'GET')).toEqual(['POST', 'PUT']);
  expect(find('/hooks/billing', 'api.example', 'PUT')).toEqual(['POST']);
});

test('a path without a route has none, and an ambiguous one is rejected even then', () => {
  const empty = new RouteTable([]);
  const code = (path: string): string | undefined => {
    const found = empty.find({ method: 'POST', host: undefined, target: parseTarget(path) as RequestTarget });
    return 'code' in found ? found.code : undefined;
  };
  expect(code('/a')).toBe('route_not_found');
  expect(code('/a;b')).toBe('malformed_request');
});
