import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { loadConfig, parseConfig } from '../../../../src/config/load/load.ts';
import { toJsonSchema } from '../../../../src/config/schema/json-schema.ts';
import { formatProblem } from '../../../../src/core/problem.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { useFolder } from '../../../support/fixtures.ts';
import { fc } from '../../../support/property.ts';

const GOLDEN = join(import.meta.dirname, '..', '..', '..', 'golden', 'config');
const clock = new FakeClock();
const folder = useFolder();

describe('every golden config', () => {
  test.each(readdirSync(GOLDEN).filter((name) => name.endsWith('.yaml')))(
    'is loaded as its expected output: %s',
    async (name) => {
      const result = parseConfig(name, readFileSync(join(GOLDEN, name), 'utf8'), clock);
      const problems = result.problems.map((problem) => `${formatProblem(problem)}\n`).join('');
      await expect(problems).toMatchFileSnapshot(join(GOLDEN, name.replace('.yaml', '.problems.txt')));
      if (result.config === undefined) return;
      const text = JSON.stringify(result.config, undefined, 2).replaceAll(process.cwd(), '');
      await expect(`${text}\n`).toMatchFileSnapshot(join(GOLDEN, name.replace('.yaml', '.config.json')));
      expect(Object.isFrozen(result.config.routes[0]?.webhook)).toBe(true);
    },
  );
});

describe('a file that is not a config', () => {
  const cases: [string, string | Buffer, string][] = [
    ['an empty one', '', 'the file is empty'],
    ['one with comments only', '# nothing\n', 'the file is empty'],
    ['one that is not UTF-8', Buffer.from([0x61, 0xff]), 'the file is not UTF-8 text'],
    ['several documents', 'a: 1\n---\nb: 2\n', 'several YAML documents'],
    [
      'a name that objects reserve',
      'a:\n  headers: { X-A: b, __proto__: c }\n',
      ':2:22: error the name __proto__ cannot be used',
    ],
    ['one that is too large', `a: ${'x'.repeat(1_100_000)}`, 'the file has more than 1048576 bytes'],
    ['a list', '- a\n', 'expected an object, not a list'],
    [
      'a bomb of aliases',
      `a: &a [x,x,x,x,x,x,x,x,x]\n${[...'bcdefgh'].map((name, i) => `${name}: &${name} [${Array(9).fill(`*${'abcdefgh'[i]}`).join(',')}]`).join('\n')}\n`,
      'alias',
    ],
  ];
  test.each(cases)('is rejected with a reason: %s', async (_title, text, reason) => {
    const file = join(folder, 'gate.yaml');
    writeFileSync(file, text);
    const { config, problems } = await loadConfig(file, clock);
    expect(config).toBeUndefined();
    expect(problems.map(formatProblem).join('\n')).toContain(reason);
  });

  test('a device without an end is read only up to the maximum', async () => {
    const { problems } = await loadConfig('/dev/zero', clock);
    expect(problems.map(formatProblem)).toEqual([
      '/dev/zero: error the file has more than 1048576 bytes\n  hint: check that this is the right file: sidegate reads at most 1048576 bytes of it',
    ]);
  });

  test('is rejected if it is a directory, or missing', async () => {
    expect((await loadConfig(folder, clock)).problems[0]?.message).toBe('the path is a directory, not a file');
    expect((await loadConfig(join(folder, 'none'), clock)).problems[0]?.message).toBe('the file does not exist');
  });
});

test('loading never throws for any text', () => {
  fc.assert(fc.property(fc.string({ maxLength: 200 }), (text) => void parseConfig('f', text, clock)));
  const key = fc.constantFrom(
    'listen',
    'admin',
    'store',
    'routes',
    'name',
    'match',
    'path',
    'webhook',
    'keys',
    'secret',
    'env',
    'dedup',
    'limits',
    'x',
  );
  const { tree } = fc.letrec((tie) => ({
    tree: fc.oneof(
      { depthSize: 'small' },
      fc.constantFrom<unknown>('a', '5m', 1, true, null, 'off', -1, 1.5, ''),
      fc.array(tie('tree'), { maxLength: 3 }),
      fc.dictionary(key, tie('tree'), { maxKeys: 4 }),
    ),
  }));
  fc.assert(fc.property(tree, (value) => void parseConfig('f', stringify(value), clock)));
}, 60_000);

test('the JSON Schema names every section, with descriptions, and is plain data', () => {
  const schema = toJsonSchema();
  expect(Object.keys(schema.properties ?? {})).toEqual([
    'listen',
    'proxy',
    'authz',
    'provider',
    'identity',
    'admin',
    'store',
    'workers',
    'limits',
    'shutdown',
    'explain',
    'journal',
    'tracing',
    'log',
    'upstream',
    'routes',
  ]);
  expect(schema['additionalProperties']).toBe(false);
  expect(JSON.parse(JSON.stringify(schema))).toEqual(schema);
});

test('the hash changes with the text, and has 128 bits, so that nobody finds two texts with one hash', () => {
  const text =
    'routes: [{ name: a, match: { path: /a }, upstream: "http://a", webhook: { keys: [{ name: k, secret: { env: A } }] } }]\n';
  const [one, two] = [parseConfig('f', text, clock), parseConfig('f', `${text}\n`, clock)];
  if (one.config === undefined || two.config === undefined) throw new Error('both are sound');
  expect(one.hash).toMatch(/^[0-9a-f]{32}$/);
  expect(one.hash).not.toBe(two.hash);
});
