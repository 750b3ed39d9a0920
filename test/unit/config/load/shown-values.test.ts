import { describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { createExcerpts } from '../../../../src/cli/problems.ts';
import { parseConfig } from '../../../../src/config/load/load.ts';
import { type JsonSchema, toJsonSchema, toVariants } from '../../../../src/config/schema/json-schema.ts';
import { formatShownProblem } from '../../../../src/core/problem.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { createRandom } from '../../../support/seeded.ts';

/** Each run takes others. */
const PATHS_PER_SHAPE = 15;

type Path = readonly (string | number)[];

const clock = new FakeClock();
const SEED = Date.now() % 1_000_000;
const random = createRandom(SEED);
/** Members that refer to a secret, or contain a value that may be one. */
const REFERENCES = /^(?:env|file|secretDir|mapDir|password(?:File|Env)|urlFile|keyFile|headers)$/;

/** The paths of all objects that have such a member, and of what they are in. */
function listPaths(): Path[] {
  const found = new Map<string, Path>();
  const walk = (schema: JsonSchema, path: Path): void => {
    for (const { properties = {}, items, additionalProperties } of toVariants(schema)) {
      if (Object.keys(properties).some((name) => REFERENCES.test(name)))
        for (const length of [path.length, path.length - 1, path.length - 2])
          if (length > 0) found.set(path.slice(0, length).join('.'), path.slice(0, length));
      for (const [name, inner] of Object.entries(properties)) walk(inner, [...path, name]);
      if (items !== undefined) walk(items, [...path, 0]);
      if (typeof additionalProperties === 'object') walk(additionalProperties, [...path, 'X-Name']);
    }
  };
  walk(toJsonSchema(), []);
  return [...found.values()];
}

/** As a password that a person chose: no digits are certain, and no length. */
function toSecret(): string {
  const letters = 'abcdefghijklmnopqrstuvwxyz0123456789';
  const word = (length: number): string => Array.from({ length }, () => letters[random(letters.length)]).join('');
  return random(3) === 0 ? `z${word(4)} q${word(4)}` : `q${word(7)}`;
}

/** What users write in place of a reference, as YAML in one line. */
const SHAPES: Readonly<Record<string, (secret: string) => string>> = {
  'a string': (secret) => secret,
  'a string in quotation marks': (secret) => `"${secret}"`,
  'a list': (secret) => `[${secret}]`,
  'an unknown member': (secret) => `{ value: ${secret} }`,
  'an unknown member that looks like a known one': (secret) => `{ flie: ${secret}, secrets: ${secret} }`,
  'another object': (secret) => `{ name: k, secret: { text: { value: '${secret}' } }, key: [{ raw: ${secret} }] }`,
  'braces alone': (secret) => `{ ${secret} }`,
  'no space after the colon': (secret) => `{ value:${secret} }`,
  'a known key and no space': (secret) => `[secret:${secret}, password:${secret}, headers:${secret}]`,
  'a user and a password': (secret) => `["alice:${secret}", { alice: ${secret} }]`,
  'a URL': (secret) => `{ url: "redis://alice:${secret}@127.0.0.1/0", publicUrl: "ftp://alice:${secret}@a.example" }`,
  'a value in place of the name of a variable': (secret) => `{ env: "${secret}-", passwordEnv: "${secret}-" }`,
  headers: (secret) => `{ headers: { Authorization: ${secret}, ${secret} } }`,
  'a header of a probe': (secret) => `{ headers: [{ name: X, value: ${secret}, more: 1 }] }`,
  'a variable': (secret) => `"\${${secret.replaceAll(' ', '_')}}"`,
  'a comment': (secret) => `{} # secret: ${secret}`,
  'a comment in an error': (secret) => `{ # ${secret}\n`,
  'a second colon': (secret) => `a: ${secret}: ${secret}`,
  'a quotation mark that is never closed': (secret) => `"${secret}`,
  'a bracket too many': (secret) => `${secret} }] ]`,
  'a bracket that is never closed': (secret) => `[{ value: ${secret}`,
  'an alias': (secret) => `*${secret}`,
  'a tag': (secret) => `!${secret} x`,
  'a tag of a namespace': (secret) => `!x!${secret} x`,
  'an anchor': (secret) => `{ a: &${secret} b }`,
  'a reserved character': (secret) => `@${secret}`,
  'a directive': (secret) => `x\n%${secret}\n`,
  'a block with a wrong header': (secret) => `|${secret}\n`,
  'a wrong escape': (secret) => `"\\${secret}"`,
  'a tab': (secret) => `\n\t${secret}: x`,
};

/** The value at the path, in a config that has a route. */
function write(path: Path, value: string): string {
  const build = ([step, ...rest]: Path): unknown => {
    if (step === undefined) return 'VALUE';
    const inner = build(rest);
    if (typeof step === 'number') return [inner];
    return { [step]: inner };
  };
  const isOfRoute = path[0] === 'routes';
  const route = { name: 'a', match: { path: '/a' }, upstream: 'http://127.0.0.1:3000' };
  const inRoute = build(path.slice(2));
  const routes = [
    isOfRoute && typeof inRoute === 'object' ? { ...route, ...inRoute } : isOfRoute ? inRoute : { ...route, allow: 'anyone' },
  ];
  const other = isOfRoute ? {} : (build(path) as object);
  return stringify({ routes, ...other }).replace('VALUE', () => value);
}

function show(text: string): string {
  const { problems } = parseConfig('gate.yaml', text, clock);
  const toExcerpt = createExcerpts(text);
  // As check prints them, and as it does with --format json.
  return problems.map((problem) => `${formatShownProblem(problem, toExcerpt(problem))}\n${JSON.stringify(problem)}`).join('\n');
}

describe(`no problem shows a secret in the config (seed ${SEED})`, () => {
  const paths = listPaths();

  test('the schema has places for secrets', () => {
    const names = paths.map((path) => path.join('.'));
    expect(names).toContain('routes.0.webhook.keys.0.secret');
    expect(names).toContain('routes.0.basic.users');
    expect(names).toContain('store.redis');
    expect(names).toContain('provider.endpoints.0');
    expect(names).toContain('admin.appProbes.0');
    expect(names.length).toBeGreaterThan(50);
  });

  test.each(Object.entries(SHAPES))('%s', (_title, toValue) => {
    let count = 0;
    for (let each = 0; each < PATHS_PER_SHAPE; each++) {
      const path = paths[random(paths.length)] ?? [];
      const secret = toSecret();
      const text = write(path, toValue(secret));
      const shown = show(text);
      count += Number(shown !== '');
      for (const part of secret.split(' ')) expect(shown.includes(part), `${text}\n${shown}`).toBe(false);
    }
    expect(count).toBeGreaterThan(0);
  });
});

test('the excerpts of a file with 60,000 keys take linear time, and one with a duplicate key shows no value', () => {
  const keys = Array.from({ length: 60_000 }, (_, index) => `k${index}: 1`);
  const problem = { severity: 'error', file: 'gate.yaml', path: '', message: '', line: 2, column: 1 } as const;
  expect(createExcerpts(['routes: []', ...keys].join('\n'))(problem)[0]).toBe('  2 | k0: …');
  expect(createExcerpts('routes: []\nk0: 1\nk0: 2\n')(problem)[0]).toBe('  2 | …: …');
});
