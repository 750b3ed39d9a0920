import { readdirSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parseConfig } from '../../../../src/config/load/load.ts';
import { findUnused } from '../../../../src/config/sources/fake-sources.ts';
import { readSecret, readUserSource } from '../../../../src/config/sources/secrets.ts';
import { formatProblem } from '../../../../src/core/problem.ts';
import { type Fixtures, loadFixtures, toFixturesJsonSchema } from '../../../../src/diagnostics/simulate/fixtures.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const ROOT = resolve(import.meta.dirname, '..', '..', '..', '..');
const GOLDEN = join(ROOT, 'test', 'golden', 'fixtures');

describe('every golden fixture file', () => {
  test.each(readdirSync(GOLDEN).filter((name) => name.endsWith('.yaml')))('is read as its expected output: %s', async (name) => {
    const read = await loadFixtures(relative('.', join(GOLDEN, name)));
    const problems = 'problems' in read ? read.problems : [];
    await expect(problems.map((problem) => `${formatProblem(problem)}\n`).join('')).toMatchFileSnapshot(
      join(GOLDEN, name.replace('.yaml', '.problems.txt')),
    );
    expect(problems.length > 0).toBe(read.tests === undefined);
  });
});

test('a valid file has its contents as bytes, its tests with their positions, and its secrets by their paths in the config', async () => {
  const read = (await loadFixtures(join(GOLDEN, 'sound.yaml'))) as Fixtures;
  expect(read.config).toBe(join(GOLDEN, 'configs', 'gate.yaml'));
  expect([...read.fakeSources.env]).toEqual([['SECRET', 'one']]);
  expect([...read.fakeSources.files]).toEqual([
    [join(GOLDEN, 'configs', 'secrets', 'two'), 'two'],
    ['/etc/three', 'three'],
  ]);
  const contents = read.tests.map(({ steps }) => steps.map(({ request }) => request.content?.toString('latin1')));
  expect(contents).toEqual([['as text'], ['{"a":[1,null]}'], ['null'], ['\xff\x00'], ['config: gate.yaml\n'], ['', undefined]]);
  expect(read.tests.map(({ position }) => position?.line)).toEqual([7, 8, 9, 10, 11, 12]);
  expect(read.tests.map(({ startsAt }) => new Date(startsAt).getUTCFullYear())).toEqual([2026, 2024, 2026, 2026, 2026, 2026]);
  expect(read.tests[0]?.steps[0]).toMatchObject({
    expect: { decision: 'forwarded' },
    repeat: 1,
    sign: { timestampOffset: -90_000 },
  });
});

test('the JSON Schema is plain data, and describes what a test has', () => {
  const schema = toFixturesJsonSchema();
  expect(Object.keys(schema.properties ?? {})).toEqual(['config', 'now', 'secrets', 'remote', 'tests']);
  expect(JSON.parse(JSON.stringify(schema))).toEqual(schema);
});

describe('a text that replaces a secret', () => {
  const text = `
routes:
  - name: a
    match: { path: /a }
    upstream: http://127.0.0.1:3000
    webhook: { keys: [{ name: k, secret: { env: NOT_SET_ANYWHERE } }, { name: l, secret: { file: sub/l } }] }
  - name: b
    match: { path: /b }
    upstream: http://127.0.0.1:3000
    basic: { realm: b, requireTls: false, users: [{ file: users }, { secretDir: pair }, { mapDir: map }] }
`;
  const fakeSources = {
    env: new Map([
      ['NOT_SET_ANYWHERE', 'first\n'],
      ['NOBODY', 'x'],
    ]),
    files: new Map([
      ['/etc/gate/sub/l', 'second'],
      ['/etc/gate/users', 'ada:hash'],
      ['/etc/gate/pair/username', 'bob'],
      ['/etc/gate/pair/password', 'open'],
      ['/etc/gate/map/eve', 'hash\n'],
      ['/etc/gate/map/deep/eve', 'hash'],
    ]),
  };
  const { config } = parseConfig('/etc/gate/gate.yaml', text, new FakeClock(), { fakeSources });

  test('is read instead of a variable, a file, and the files of a directory', async () => {
    const [first, second] = config?.routes[0]?.webhook?.keys ?? [];
    if (first === undefined || second === undefined) throw new Error('there are two keys');
    const read = await Promise.all([readSecret(first.secret), readSecret(second.secret)]);
    expect(read.map((each) => ('secret' in each ? each.secret.expose().toString() : each.problem))).toEqual(['first', 'second']);
    const users = await Promise.all((config?.routes[1]?.basic?.users ?? []).map(readUserSource));
    expect(users).toEqual([
      { kind: 'htpasswd', where: '/etc/gate/users', text: 'ada:hash' },
      { kind: 'pair', where: '/etc/gate/pair', user: 'bob', password: 'open' },
      { kind: 'map', where: '/etc/gate/map', hashes: new Map([['eve', 'hash']]) },
    ]);
  });

  test('is reported as unused if nothing refers to it', () => {
    expect(findUnused(config, fakeSources)).toEqual({ env: ['NOBODY'], files: ['/etc/gate/map/deep/eve'] });
  });

  test('is not shown when the config is printed', () => {
    const shown = JSON.stringify(config);
    expect(shown).toContain('"routes":[{');
    expect(shown).not.toMatch(/first|second|open/);
  });

  test('cannot be written in a config file', () => {
    const forged = text.replace('{ env: NOT_SET_ANYWHERE }', '{ env: NOT_SET_ANYWHERE, fakeSources: { a: b } }');
    expect(parseConfig('gate.yaml', forged, new FakeClock()).problems.map(({ message }) => message)).toContain(
      'unknown key "fakeSources"',
    );
  });
});
