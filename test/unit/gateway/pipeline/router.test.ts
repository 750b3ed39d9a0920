import { describe, expect, test, vi } from 'vitest';
import { HeaderFields, parseTarget, type RequestTarget } from '../../../../src/core/head.ts';
import { RouteTable } from '../../../../src/gateway/pipeline/router.ts';
import type { PathDistinction } from '../../../../src/http/path-forms.ts';
import { fc } from '../../../support/property.ts';

function route(
  name: string,
  match: {
    path?: string;
    pathPrefix?: string;
    host?: string;
    methods?: string[];
    headers?: string[];
    withoutHeaders?: string[];
  },
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
  const headers = new HeaderFields([]);
  const found = table.find({ method, host, target: parseTarget(path) as RequestTarget, headers });
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
    const target = parseTarget(path) as RequestTarget;
    const found = empty.find({ method: 'POST', host: undefined, target, headers: new HeaderFields([]) });
    return 'code' in found ? found.code : undefined;
  };
  expect(code('/a')).toBe('route_not_found');
  expect(code('/a;b')).toBe('malformed_request');
});

describe('routes that ask for headers', () => {
  const routes = [
    route('plain', { path: '/a' }),
    route('with-x', { path: '/a', headers: ['x-one'] }),
    route('with-both', { path: '/a', headers: ['x-one', 'x-two'], methods: ['PUT'] }),
    route('asks', { path: '/b', headers: ['x-one'] }),
    route('asks-not', { path: '/c', withoutHeaders: ['x-one'], methods: ['GET'] }),
    route('root', { pathPrefix: '/' }),
  ];
  const headed = new RouteTable(routes);

  function select(path: string, raw: readonly string[], method = 'POST', from = headed): string | readonly string[] {
    const found = from.find({ method, host: 'a', target: parseTarget(path) as RequestTarget, headers: new HeaderFields(raw) });
    return 'code' in found ? (found.allow ?? found.code) : found.name;
  }

  test('come before those that ask for fewer, whatever the value is and however often it is sent', () => {
    expect(select('/a', [])).toBe('plain');
    for (const raw of [
      ['X-One', 'a'],
      ['x-one', ''],
      ['X-ONE', 'a', 'x-One', 'b'],
    ])
      expect(select('/a', raw)).toBe('with-x');
    expect(select('/a', ['X-Two', 'a'])).toBe('plain');
    expect(select('/a', ['X-One', 'a', 'X-Two', 'a'], 'PUT')).toBe('with-both');
  });

  test('own all methods of such requests', () => {
    expect(select('/a', ['X-One', 'a', 'X-Two', 'a'])).toEqual(['PUT']);
    expect(select('/a', ['X-One', 'a'], 'PUT')).toEqual(['POST']);
  });

  test('leave other requests without a route, even if a wider route matches the path', () => {
    expect(select('/b', [])).toBe('route_not_found');
    expect(select('/b', ['X-One', 'a'])).toBe('asks');
    expect(select('/c', ['X-One', ''], 'GET')).toBe('route_not_found');
    expect(select('/c', [], 'GET')).toBe('asks-not');
    expect(select('/d', [])).toBe('root');
  });

  test('are not found by a header that the app or a proxy may understand differently', () => {
    for (const name of ['X_One', 'x.one', 'X_ONE']) expect(select('/b', [name, 'a'])).toBe('ambiguous_target');
    expect(select('/a', ['X-One', 'a', 'X_One', 'a'])).toBe('ambiguous_target');
    for (const option of ['X-One', 'close, x-ONE'])
      expect(select('/a', ['Connection', option, 'X-One', 'a'])).toBe('ambiguous_target');
    expect(select('/d', ['X_One', 'a', 'Connection', 'X-One'])).toBe('root');
  });

  test('are found in the same way in any order of the config', () => {
    const names = fc.subarray(['X-One', 'X-Two', 'X-Three', 'X_Three']);
    fc.assert(
      fc.property(
        fc.shuffledSubarray(routes, { minLength: routes.length }),
        names,
        fc.constantFrom('/a', '/b', '/c', '/d'),
        (order, given, path) => {
          const raw = given.flatMap((name) => [name, 'a']);
          expect(select(path, raw, 'POST', new RouteTable(order))).toEqual(select(path, raw));
        },
      ),
      { numRuns: 200 },
    );
  });

  test('answer a request without a route as an unknown path', () => {
    const find = (path: string): object =>
      new RouteTable(routes.slice(0, -1)).find({
        method: 'POST',
        host: 'a',
        target: parseTarget(path) as RequestTarget,
        headers: new HeaderFields([]),
      });
    const { detail: _, ...byHeader } = { ...find('/b') } as { detail?: string };
    const { detail: __, ...byPath } = { ...find('/unknown') } as { detail?: string };
    expect(byHeader).toEqual(byPath);
  });

  test('count with all their checks where an app may confuse their path with another', () => {
    const guarded = { ...route('guarded', { path: '/a', headers: ['x-one'] }), gateIdentity: 'other' };
    const table = new RouteTable([route('open', { pathPrefix: '/' }), route('same', { path: '/a' }), guarded]);
    expect(select('/A', [], 'POST', table)).toBe('ambiguous_target');
    expect(select('/a', [], 'POST', table)).toBe('same');
  });
});

describe('the forms of a path', () => {
  const guarded = (name: string, pathPrefix: string, rules: { host?: string; trustAppToDistinguish?: PathDistinction[] }) => ({
    name,
    gateIdentity: name,
    match: { methods: ['POST'], allowInPath: [], trustAppToDistinguish: [], pathPrefix, ...rules },
  });
  const lookUp = (routes: ReturnType<typeof guarded>[], path: string, forwardedHost?: string) => {
    const rules = new RouteTable(routes);
    const normalize = vi.spyOn(String.prototype, 'normalize');
    try {
      const target = parseTarget(path) as RequestTarget;
      const found = rules.find({ method: 'POST', host: 'a', target, headers: new HeaderFields([]), forwardedHost });
      return { found: 'code' in found ? found.code : found.name, normalized: normalize.mock.calls.length };
    } finally {
      normalize.mockRestore();
    }
  };
  const OPEN = guarded('open', '/', {});
  const ADMIN = guarded('admin', '/admin', {});

  test('are the same for all names in X-Forwarded-Host', () => {
    const routes = [OPEN, ADMIN, guarded('other', '/other', { host: 'other' })];
    const once = lookUp(routes, '/open/caf%C3%A9.txt');
    expect(once).toEqual({ found: 'open', normalized: 5 });
    expect(lookUp(routes, '/open/caf%C3%A9.txt', 'a, b, c, d, e, f, g, h')).toEqual(once);
  });

  test.each(['', ' , a', 'a,', 'a,,a'])('ignore empty members of X-Forwarded-Host: %j', (names) => {
    const routes = [guarded('open', '', {})];
    expect(lookUp(routes, '/open', names).found).toBe('open');
  });

  test.each(['evil.example/admin?', ',,,,,,,,,evil.example/?', 'user@a', 'a:80#', 'a b', '<script>', 'a:x'])(
    'do not count if a name in X-Forwarded-Host is malformed: %j',
    (forwardedHost) => {
      expect(lookUp([OPEN], '/open', forwardedHost).found).toBe('malformed_request');
      expect(lookUp([OPEN, guarded('other', '/other', { host: 'other' })], '/open', forwardedHost).found).toBe(
        'malformed_request',
      );
    },
  );

  test.each(['a', 'a, b', 'A.example.:8443,[::1]:1', '192.0.2.1'])('count if the names are well-formed: %j', (forwardedHost) => {
    expect(lookUp([OPEN], '/open', forwardedHost).found).toBe('open');
  });

  test('take a limited time for all sets of distinctions together', () => {
    const path = `/open/${'%C3%A9'.repeat(800)}`;
    const once = lookUp([OPEN, ADMIN], path);
    expect(once.found).toBe('open');
    const sets = (['letterCase', 'slashes', 'semicolon', 'extension'] as const).map((kept) =>
      guarded(kept, `/${kept}`, { trustAppToDistinguish: [kept] }),
    );
    expect(lookUp([OPEN, ADMIN, ...sets], '/open/caf%C3%A9').found).toBe('open');
    const all = lookUp([OPEN, ADMIN, ...sets], path);
    expect(all.found).toBe('ambiguous_target');
    expect(all.normalized).toBeLessThan(5 * once.normalized);
  });
});

test('a table of two thousand routes with different gates is compiled in the time of a test', () => {
  const routes = Array.from({ length: 2_000 }, (_, index) => ({
    ...route(`team-${index}`, { path: `/hooks/team-${index}/events` }),
    gateIdentity: `gates-${index}`,
  }));
  const target = parseTarget('/hooks/team-7/events') as RequestTarget;
  const found = new RouteTable(routes).find({ method: 'POST', host: 'other', target, headers: new HeaderFields([]) });
  expect(found).toBe(routes[7]);
});
