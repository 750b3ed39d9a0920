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
  test('about a route that trusts its app to distinguish paths', () => {
    const [warning] = toWarnings(`match: { path: /a, trustAppToDistinguish: [letterCase, extension] }, ${GUARDED}`);
    expect(warning).toContain(
      "routes.0.match.trustAppToDistinguish: a client can bypass this route's gates by spelling the path differently",
    );
    expect(warning).toContain('letterCase, extension');
  });

  test('about a route that forwards method overrides', () => {
    expect(toWarnings(`match: { path: /a }, ${ALL}, forwardMethodOverride: true`)).toEqual([
      'routes.0.forwardMethodOverride: the app may handle a request as another method than the one that the route matched',
    ]);
  });

  test.each([
    ['/Admin', '/admin'],
    ['/account', '/account/'],
    ['/%61', '/a'],
  ])('about two routes that no request can distinguish: %s and %s', (one, other) => {
    const warnings = toWarnings(`match: { path: ${one} }, ${ALL}`, `match: { path: ${other} }, ${GUARDED}`);
    expect(warnings.map((text) => text.slice(0, 58))).toEqual([
      'routes.0.match: requests for this path are rejected (ambig',
      'routes.1.match: requests for this path are rejected (ambig',
    ]);
  });

  test('only about the route whose path may select the other', () => {
    expect(
      toWarnings(`match: { path: /a.json }, ${ALL}`, `match: { path: /a }, ${GUARDED}`).map((text) => text.slice(0, 14)),
    ).toEqual(['routes.0.match']);
  });

  test.each([
    ['[GET]', '[POST, PUT]', 'POST, PUT', 'GET, HEAD'],
    ['[DELETE]', '[GET, POST]', 'POST', 'DELETE'],
  ])('about a path for which %s is protected and %s is open', (guarded, open, writes, reads) => {
    const routes = [`match: { path: /a, methods: ${guarded} }, ${GUARDED}`, `match: { path: /a, methods: ${open} }, ${ALL}`];
    expect(toWarnings(...routes)).toEqual([
      `routes.1.match: anyone can send ${writes} to the path for which route r0 protects ${reads}`,
    ]);
  });

  test('about an open route inside a protected one that accepts all methods, of the same app', () => {
    const guarded = `match: { pathPrefix: / }, ${GUARDED}`;
    const toOpen = (match: string, check = ALL): string => `match: { pathPrefix: /_next/static${match} }, ${check}`;
    expect(toWarnings(guarded, toOpen(''))).toEqual([
      'routes.1.match: anyone can send POST and other methods to this route, and some apps run functions of pages that route r0 protects for any path (server actions)',
    ]);
    expect(toWarnings(guarded, toOpen(', methods: [GET]'))).toEqual([]);
    expect(toWarnings(guarded, toOpen('', GUARDED))).toEqual([]);
    expect(toWarnings(`match: { pathPrefix: / }, webhook: { keys: [{ name: a, secret: { file: s } }] }`, toOpen(''))).toEqual([]);
  });

  test('about a protected route that a route with a host precedes', () => {
    const warnings = toWarnings(`match: { pathPrefix: /admin }, ${GUARDED}`, `match: { pathPrefix: /, host: a.example }, ${ALL}`);
    expect(warnings).toEqual([
      'routes.0.match: does not apply to Host a.example: route r1 matches the path there, and checks differently',
    ]);
  });

  test.each([
    [[`match: { path: /Admin }, ${GUARDED}`, `match: { path: /admin }, ${GUARDED}`]],
    [[`match: { path: /admin }, ${GUARDED}`, `match: { pathPrefix: /admin/ }, ${ALL}`]],
    [[`match: { pathPrefix: /Hooks/x }, ${GUARDED}`, `match: { pathPrefix: / }, ${ALL}`]],
    [[`match: { path: /a, methods: [POST] }, ${GUARDED}`, `match: { path: /a, methods: [GET] }, ${ALL}`]],
    [[`match: { path: /a, host: x }, ${GUARDED}`, `match: { path: /A, host: y }, ${ALL}`]],
  ])('about nothing if the gates are the same or the paths are nested: %j', (routes) => {
    expect(toWarnings(...routes)).toEqual([]);
  });
});

describe('sidegate check notes', () => {
  test('how a protected route inside an open one is separated from it', () => {
    expect(toNotes(`match: { pathPrefix: /admin, methods: [GET] }, ${GUARDED}`, `match: { pathPrefix: / }, ${ALL}`)).toEqual([
      'routes r0 and r1 overlap but check differently: other spellings of /admin get 400 (ambiguous_target); methods other than GET, HEAD get 405; functions of its pages that the app runs for any path (server actions) are open to clients of route r1',
    ]);
  });

  test('that paths below an exact one select the wider route, also if it is the path of a webhook', () => {
    const webhook = 'webhook: { keys: [{ name: k, secret: { env: K } }] }';
    const open = `match: { pathPrefix: / }, ${ALL}`;
    const below =
      /; paths below it go to route r1: if the app runs the same handler for them \(app\.use in Express\), write pathPrefix$/;
    expect(toNotes(`match: { path: /hook }, ${webhook}`, open)[0]).toMatch(below);
    expect(toNotes(`match: { path: /index.php/hook }, ${webhook}`, open)[0]).toMatch(below);
    // Paths below a script are rejected.
    expect(toNotes(`match: { path: /hook.php }, ${webhook}`, open)[0]).not.toMatch(below);
    expect(toNotes(`match: { pathPrefix: /hook }, ${webhook}`, open)[0]).not.toMatch(below);
  });

  test('that the app must distinguish hosts if only the Host differs', () => {
    expect(toNotes(`match: { pathPrefix: /, host: a.example }, ${GUARDED}`, `match: { pathPrefix: / }, ${ALL}`)[0]).toMatch(
      /with a Host other than a\.example, route r1 matches the path: the app must distinguish hosts;/,
    );
  });

  test('nothing about routes with the same gates, or separate ones', () => {
    expect(toNotes(`match: { pathPrefix: /admin }, ${GUARDED}`, `match: { pathPrefix: / }, ${GUARDED}`)).toEqual([]);
    expect(toNotes(`match: { pathPrefix: /admin }, ${GUARDED}`, `match: { pathPrefix: /open }, ${ALL}`)).toEqual([]);
  });
});

describe('routes that only their hosts separate', () => {
  const toHost = (host: string, path: string, checks: string, upstream = 'http://127.0.0.1:3000'): string =>
    `match: { host: ${host}, ${path} }, upstream: "${upstream}", ${checks}`;
  const loadHosts = (...routes: readonly string[]): ReturnType<typeof parseConfig> => {
    const tls = 'listen: { tls: { certFile: c, keyFile: k, clientCaFile: ca } }';
    return parseConfig(
      'gate.yaml',
      `${tls}\nroutes:\n${routes.map((route, i) => `  - { name: r${i}, ${route} }`).join('\n')}\n`,
      systemClock,
    );
  };

  test('get a warning if an open route with a host is inside a guarded one for any host', () => {
    const guarded = `match: { pathPrefix: / }, upstream: "http://127.0.0.1:3000", ${GUARDED}`;
    const toMessages = (...routes: readonly string[]): string[] => loadHosts(...routes).problems.map(({ message }) => message);
    expect(toMessages(guarded, toHost('files.example', 'pathPrefix: /data', ALL))).toEqual([
      'only the Host separates this route from the open route r1: with Host files.example, anyone can send the same path to the same app',
    ]);
    expect(toMessages(guarded, toHost('files.example', 'pathPrefix: /data', ALL, 'http://127.0.0.1:4000'))).toEqual([]);
  });

  test.each(['pathPrefix: /', 'pathPrefix: /admin', 'path: /admin/users', 'pathPrefix: /admin/public'])(
    'get a warning if one of them is open, and has %s',
    (path) => {
      const { problems } = loadHosts(toHost('admin.example', 'pathPrefix: /admin', GUARDED), toHost('www.example', path, ALL));
      expect(problems.map((each) => [each.severity, each.path, each.message])).toEqual([
        [
          'warning',
          'routes.0.match',
          'only the Host separates this route from the open route r1: with Host www.example, anyone can send the same path to the same app',
        ],
      ]);
    },
  );

  test.each([
    'http://localhost:3000',
    'http://LOCALHOST.:3000',
    'http://[::1]:3000',
    'http://127.0.0.2:3000',
    'http://[::ffff:127.0.0.1]:3000',
    'http://0.0.0.0:3000',
    'http://0x7f.1:3000',
    'http://app.localhost:3000',
  ])('get a warning if the app has another name: %s', (upstream) => {
    const { problems } = loadHosts(
      toHost('admin.example', 'pathPrefix: /admin', GUARDED),
      toHost('www.example', 'pathPrefix: /', ALL, upstream),
    );
    expect(problems.map(({ path }) => path)).toEqual(['routes.0.match']);
  });

  test('get none for other paths, or for another app', () => {
    const admin = toHost('admin.example', 'path: /admin', GUARDED);
    expect(loadHosts(admin, toHost('www.example', 'pathPrefix: /shop', ALL)).problems).toEqual([]);
    for (const app of ['http://127.0.0.1:3001', 'http://10.0.0.7:3000', 'http://app:3000', 'http://127.0.0.1'])
      expect(loadHosts(admin, toHost('www.example', 'pathPrefix: /', ALL, app)).problems).toEqual([]);
  });

  test('get one note for each route if all are guarded', () => {
    const other = 'clientCertificate: { names: ["CN:b"] }';
    const third = 'clientCertificate: { names: ["CN:c"] }';
    const { config, problems } = loadHosts(
      toHost('a.example', 'pathPrefix: /', GUARDED),
      toHost('b.example', 'pathPrefix: /', other),
      toHost('c.example', 'pathPrefix: /', third),
    );
    expect(problems).toEqual([]);
    const notes = describeNeighbors(config?.routes ?? []);
    expect(notes).toHaveLength(3);
    expect(notes[0]).toBe(
      'route r0 is separated from route r1, which checks differently, only by its Host: with the Host of that route and of 1 more, the same path reaches the same app, which must distinguish hosts',
    );
  });
});

describe('a check of an exact path', () => {
  const BASIC = 'basic: { realm: r, users: { file: u } }';
  const EXACT = `match: { path: /admin }, ${BASIC}`;
  const OPEN = `match: { pathPrefix: / }, ${ALL}`;

  test('gets a warning if paths below it select an open route', () => {
    expect(toWarnings(EXACT, OPEN)).toEqual([
      'routes.0.match.path: only /admin itself requires the password: paths below it select the open route r1',
    ]);
  });

  test('gets one below the name of a script, but none for a script, below which paths are rejected', () => {
    expect(toWarnings(`match: { path: /index.php/admin }, ${BASIC}`, OPEN)).toHaveLength(1);
    expect(toWarnings(`match: { path: /admin.php }, ${BASIC}`, OPEN)).toEqual([]);
  });

  test('gets one if it is a client certificate, but not if it is a webhook', () => {
    expect(toWarnings(`match: { path: /admin }, ${GUARDED}`, OPEN)).toEqual([
      'routes.0.match.path: only /admin itself requires the client certificate: paths below it select the open route r1',
    ]);
    const webhook = 'webhook: { keys: [{ name: k, secret: { env: K } }] }';
    expect(toWarnings(`match: { path: /hook }, ${webhook}, ${GUARDED}`, OPEN)).toEqual([]);
  });

  test('gets none if nothing below it is open, or a route says that it is', () => {
    expect(toWarnings(EXACT, `match: { pathPrefix: /admin/ }, ${ALL}`)).toEqual([]);
    expect(toWarnings(EXACT)).toEqual([]);
    expect(toWarnings(EXACT, `match: { pathPrefix: /admin }, ${GUARDED}`, OPEN)).toEqual([]);
    expect(toWarnings(`match: { pathPrefix: /admin }, ${BASIC}`, OPEN)).toEqual([]);
  });

  test('gets none if it is a script: then the paths below it are rejected', () => {
    expect(toWarnings(`match: { path: /admin.php }, ${BASIC}`, OPEN)).toEqual([]);
    const trusted = toWarnings(`match: { path: /admin.php, trustAppToDistinguish: [otherNames] }, ${BASIC}`, OPEN);
    expect(trusted.join()).toContain('paths below it select the open route r1');
  });
});

test('thousands of routes are compared in a few seconds', () => {
  const checks = [ALL, 'basic: { realm: a, users: { file: u } }'];
  const matches = ['path: /a', 'pathPrefix: /b', 'host: x.test, path: /c', 'host: y.test, pathPrefix: /d'];
  const routes = Array.from(
    { length: 7_000 },
    (_, i) => `  - { name: r${i}, match: { ${matches[i % 4]}${i} }, ${checks[Math.floor(i / 4) % 2]} }\n`,
  );
  const last = '  - { name: open, match: { pathPrefix: /b5/x, methods: [GET] }, allow: anyone }\n';
  const text = `upstream: http://127.0.0.1:3000\nlisten: { trustedProxies: [10.0.0.1] }\nroutes:\n${routes.join('')}${last}`;
  const { config, problems } = parseConfig('gate.yaml', text, systemClock);
  expect(problems).toEqual([]);
  expect(describeNeighbors(config?.routes ?? [])).toEqual([]);
}, 10_000);
