import { describe, expect, test } from 'vitest';
import { parseConfig } from '../../../../src/config/load/load.ts';
import { describeNeighbors } from '../../../../src/config/rules/validate-neighbors.ts';
import { systemClock } from '../../../../src/core/clock.ts';

const ALL = 'allow: anyone';
const GUARDED = 'clientCertificate: { names: ["CN:a"] }';

function load(...routes: readonly string[]): ReturnType<typeof parseConfig> {
  const tls = 'listen: { tls: { certFile: c, keyFile: k, clientCaFile: ca } }';
  const lines = routes.map((route, i) => `  - { name: r${i}, upstream: http://127.0.0.1:3000, ${route} }`);
  return parseConfig('gate.yaml', `${tls}\nroutes:\n${lines.join('\n')}\n`, systemClock);
}

function toWarnings(...routes: readonly string[]): string[] {
  return load(...routes).problems.map(({ path, message }) => `${path}: ${message}`);
}

function toNotes(...routes: readonly string[]): readonly string[] {
  const { config } = load(...routes);
  if (config === undefined) throw new Error('no config');
  return describeNeighbors(config.routes);
}

describe('sidegate check warns', () => {
  test('of a route that trusts its app to tell paths apart', () => {
    const [warning] = toWarnings(`match: { path: /a, trustAppToDistinguish: [letterCase, extension] }, ${GUARDED}`);
    expect(warning).toContain(
      "routes.0.match.trustAppToDistinguish: a client can bypass this route's gates by spelling the path differently",
    );
    expect(warning).toContain('letterCase, extension');
  });

  test('of a route that forwards method overrides', () => {
    expect(toWarnings(`match: { path: /a }, ${ALL}, forwardMethodOverride: true`)).toEqual([
      'routes.0.forwardMethodOverride: the app may handle a request as another method than the one that the route matched',
    ]);
  });

  test.each([
    ['/Admin', '/admin'],
    ['/account', '/account/'],
    ['/%61', '/a'],
  ])('of two routes that no request can tell apart: %s and %s', (one, other) => {
    const warnings = toWarnings(`match: { path: ${one} }, ${ALL}`, `match: { path: ${other} }, ${GUARDED}`);
    expect(warnings.map((text) => text.slice(0, 58))).toEqual([
      'routes.0.match: requests for this path are rejected (ambig',
      'routes.1.match: requests for this path are rejected (ambig',
    ]);
  });

  test('of the one route only whose path may lead to the other', () => {
    expect(
      toWarnings(`match: { path: /a.json }, ${ALL}`, `match: { path: /a }, ${GUARDED}`).map((text) => text.slice(0, 14)),
    ).toEqual(['routes.0.match']);
  });

  test('of a guarded route that a route with a host goes before', () => {
    const warnings = toWarnings(`match: { pathPrefix: /admin }, ${GUARDED}`, `match: { pathPrefix: /, host: a.example }, ${ALL}`);
    expect(warnings).toEqual([
      'routes.0.match: does not apply to Host a.example: route r1 matches the path there, and its gates differ',
    ]);
  });

  test.each([
    [[`match: { path: /Admin }, ${GUARDED}`, `match: { path: /admin }, ${GUARDED}`]],
    [[`match: { path: /admin }, ${GUARDED}`, `match: { pathPrefix: /admin }, ${ALL}`]],
    [[`match: { path: /Hooks/x }, ${GUARDED}`, `match: { pathPrefix: / }, ${ALL}`]],
    [[`match: { path: /a, methods: [GET] }, ${GUARDED}`, `match: { path: /a, methods: [POST] }, ${ALL}`]],
    [[`match: { path: /a, host: x }, ${GUARDED}`, `match: { path: /A, host: y }, ${ALL}`]],
  ])('of nothing where the gates agree or the paths nest: %j', (routes) => {
    expect(toWarnings(...routes)).toEqual([]);
  });
});

describe('sidegate check notes', () => {
  test('how a guarded route inside an open one is kept apart from it', () => {
    expect(toNotes(`match: { pathPrefix: /admin, methods: [GET] }, ${GUARDED}`, `match: { pathPrefix: / }, ${ALL}`)).toEqual([
      'route r0 is inside route r1, whose gates differ: a path that an app may interpret as /admin is rejected (400 ambiguous_target); methods other than GET, HEAD are rejected (405)',
    ]);
  });

  test('that the app must tell hosts apart, where only the Host does', () => {
    expect(toNotes(`match: { pathPrefix: /, host: a.example }, ${GUARDED}`, `match: { pathPrefix: / }, ${ALL}`)[0]).toMatch(
      /with a Host other than a\.example, route r1 matches the path: the app must distinguish hosts$/,
    );
  });

  test('nothing of routes with the same gates, or side by side', () => {
    expect(toNotes(`match: { pathPrefix: /admin }, ${GUARDED}`, `match: { pathPrefix: / }, ${GUARDED}`)).toEqual([]);
    expect(toNotes(`match: { pathPrefix: /admin }, ${GUARDED}`, `match: { pathPrefix: /open }, ${ALL}`)).toEqual([]);
  });
});
