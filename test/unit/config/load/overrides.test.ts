import { describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { type Overrides, parseConfig } from '../../../../src/config/load/load.ts';
import { formatProblem } from '../../../../src/core/problem.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const ROUTE = { name: 'a', match: { path: '/a' }, allow: 'anyone' };
const OWN = { ...ROUTE, name: 'b', match: { path: '/b' }, upstream: 'http://127.0.0.1:3001' };

function parse(sections: object | string, overrides?: Overrides) {
  const text = typeof sections === 'string' ? sections : stringify({ routes: [ROUTE, OWN], ...sections });
  return parseConfig('gate.yaml', text, new FakeClock(), { overrides });
}

const tell = (sections: object | string, overrides?: Overrides): string[] =>
  parse(sections, overrides).problems.map(formatProblem);

describe('a setting of the command line', () => {
  test('overrides that of the file, and leaves the rest', () => {
    const file = {
      listen: { address: '127.0.0.1:1', trustedProxies: ['10.0.0.1'] },
      admin: { address: '127.0.0.1:2' },
      upstream: 'http://127.0.0.1:3',
    };
    const { config } = parse(file, { listen: '10.0.0.7,fd00::7:8480', admin: ':8481', upstream: 'http://127.0.0.1:3000' });
    expect(config?.listen).toMatchObject({
      address: { hosts: ['10.0.0.7', 'fd00::7'], port: 8480 },
      trustedProxies: ['10.0.0.1'],
    });
    expect(config?.admin.address).toEqual({ hosts: [], port: 8481 });
    expect(config?.routes.map(({ upstream }) => upstream.port)).toEqual([3000, 3001]);
  });

  test('is sufficient without one in the file', () => {
    const { config } = parse({}, { listen: ':8480', upstream: 'http://127.0.0.1:3000' });
    expect([config?.listen.address.port, config?.routes[0]?.upstream.port]).toEqual([8480, 3000]);
  });

  test.each([
    [{ listen: '8480' }, /^--listen: error listen.address: "8480" is not an address/],
    [{ admin: 'a b:1' }, /^--admin: error admin.address: "a b" is not a host name/],
    [
      { upstream: 'localhost:3000' },
      /^--upstream: error upstream: "localhost:3000" is not a URL\. Did you mean "http:\/\/localhost:3000"\?/,
    ],
    [{ appProbes: ['app/livez'] }, /^--app-probe: error "app\/livez" is not an app probe; write CONTAINER\/KIND=URL/],
    [
      { appProbes: ['app/health=http://127.0.0.1:1/'] },
      /^--app-probe app\/health: error admin.appProbes.0.kind: "health" is not one of/,
    ],
    [{ appProbes: ['app/livez={"url":'] }, /^--app-probe: error the text after app\/livez= is not JSON/],
    [{ appProbes: ['app/livez={"uri":"http://127.0.0.1:1/"}'] }, /unknown key "uri"\n {2}hint: did you mean "url"\?/],
    [{ appProbes: ['app/prestop=http://127.0.0.1:1/stop'] }, /admin.appProbes.0.kind: "prestop" is not one of/],
    [
      { appProbes: ['a/livez=tcp://127.0.0.1:1', 'a/livez=tcp://127.0.0.1:2'] },
      /^--app-probe a\/livez: error admin.appProbes.1: a\/livez is configured twice/,
    ],
    [
      { appProbes: ['a/livez=http://127.0.0.1:8481/'], admin: ':8481' },
      /admin.appProbes.0.url: this URL points to sidegate itself/,
    ],
    [{ listen: ':3000' }, /^--upstream: error upstream: the upstream points to sidegate itself/],
    [{ admin: ':3000' }, /^--upstream: error upstream: the upstream points to the admin port/],
    [{ listen: ':7', admin: ':7' }, /^--admin: error admin.address: the admin port equals the data port/],
  ] as [Overrides, RegExp][])('is told as the flag it is where it is wrong: %j', (overrides, expected) => {
    const found = tell({}, { upstream: 'http://127.0.0.1:3000', ...overrides });
    expect(
      found.some((line) => expected.test(line)),
      found.join('\n'),
    ).toBe(true);
    expect(found.join('\n')).not.toContain('gate.yaml:');
  });

  test('is not the port of the provider’s API, to which the interception mode env moves the app by default', () => {
    const overrides = { upstream: 'http://127.0.0.1:8482' };
    const [found = ''] = tell({ provider: { endpoints: [] } }, overrides);
    expect(found).toMatch(/^--upstream: error upstream: the upstream points to the API of provider.*\n.*127\.0\.0\.1:8483/);
    expect(tell({ provider: { address: '127.0.0.1:8483' } }, overrides)).toEqual([]);
    const redis = { url: 'redis://127.0.0.1:6379' };
    const postgres = { url: { env: 'QUEUE_URL' } };
    expect(tell({ store: { redis }, provider: { roles: ['deliver'], queue: { postgres } } }, overrides)).toEqual([]);
  });

  test('is never shown if it could contain a secret', () => {
    const secret = 'Bearer c2VjcmV0';
    for (const value of [`={"url":"x","headers":[{"value":"${secret}"`, `={"url":"${secret}"}`, `"${secret}"`]) {
      const found = tell({}, { upstream: 'http://127.0.0.1:1', appProbes: [`app/livez${value}`] }).join();
      expect(found).toContain('--app-probe');
      expect(found).not.toContain('c2VjcmV0');
    }
  });

  test('does not hide the error of a file that is not an object', () => {
    expect(tell('- a\n', { listen: ':1' }).join()).toMatch(/expected an object, not a list/);
    expect(tell('listen: 7\nroutes: []\n', { listen: ':1' }).join()).toMatch(/listen: expected an object/);
  });
});

describe('an app probe', () => {
  test('of the command line has the settings of its JSON', () => {
    const overrides = {
      upstream: 'http://127.0.0.1:1',
      appProbes: ['app/livez={"url":"https://127.0.0.1/new?a=b","headers":[{"name":"Host","value":"shop"}]}'],
    };
    expect(parse({}, overrides).config?.admin.appProbes).toEqual([
      { container: 'app', kind: 'livez', url: 'https://127.0.0.1/new?a=b', headers: [{ name: 'Host', value: 'shop' }] },
    ]);
  });

  test.each<[string, Overrides]>([
    ['--upstream', { upstream: 'http://127.0.0.1:1' }],
    ['--app-probe', { appProbes: ['app/readyz=http://127.0.0.1:1/'] }],
  ])('of the file is an error with %s, because nothing compares it with the probes of the pod', (flag, overrides) => {
    const appProbes = [{ container: 'app', kind: 'livez', url: 'http://127.0.0.1:1/admin/delete' }];
    const file = { upstream: 'http://127.0.0.1:1', admin: { appProbes } };
    expect(tell(file, overrides)).toEqual([
      expect.stringMatching(
        new RegExp(
          `^gate.yaml:\\d+:\\d+: error admin.appProbes: the probes of a sidecar, which has ${flag}, come from its arguments only`,
        ),
      ),
    ]);
    expect(tell(file, { listen: ':8480' })).toEqual([]);
  });

  test.each([
    'ftp://127.0.0.1/',
    'http://user:pass@127.0.0.1/',
    'tcp://127.0.0.1',
    'tcp://127.0.0.1:1/path',
    'http://127.0.0.1:0/',
    '127.0.0.1:80',
  ])('is rejected: %s', (url) => {
    expect(tell({ upstream: 'http://127.0.0.1:1', admin: { appProbes: [{ container: 'a', kind: 'livez', url }] } })).toHaveLength(
      1,
    );
  });
});

describe('the upstream at the top', () => {
  test('applies to all routes without one', () => {
    expect(parse({ upstream: 'http://127.0.0.1:3000' }).config?.routes.map(({ upstream }) => upstream.port)).toEqual([
      3000, 3001,
    ]);
  });

  test('is reported once, at its position, if it is wrong for many routes', () => {
    const routes = [ROUTE, { ...ROUTE, name: 'c', match: { path: '/c' } }];
    expect(tell({ upstream: 'http://127.0.0.1:9090', routes })).toEqual([
      expect.stringMatching(/^gate.yaml:\d+:11: error upstream: the upstream points to the admin port/),
    ]);
  });

  test('is reported as missing for each route without one, with all other problems', () => {
    const found = tell({ admin: { address: '127.0.0.1:8080' } });
    expect(found).toHaveLength(2);
    expect(found[0]).toMatch(
      /error routes.0.upstream: missing: the address of the app\n {2}hint: set it here, or set a top-level upstream for all routes, or pass --upstream/,
    );
  });

  test('is not needed if nothing is forwarded', () => {
    const text = stringify({ routes: [ROUTE] });
    expect(parseConfig('f', text, new FakeClock(), { needsUpstream: false }).config).toBeDefined();
    expect(parseConfig('f', text, new FakeClock(), { fakeSources: { env: new Map(), files: new Map() } }).config).toBeDefined();
  });
});
