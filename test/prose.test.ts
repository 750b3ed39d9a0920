/** The linter of prose finds what each rule forbids, where it promises to look, and nothing else. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ALLOWED, lintProse } from '../scripts/lint-prose.ts';
import { findAll, RULES } from '../scripts/prose/rules.ts';
import { listFiles, SCOPES } from '../scripts/prose/scopes.ts';
import { makeFolder } from './support/fixtures.ts';

const ROOT = resolve(import.meta.dirname, '..');

/** Lints files below an empty folder, in the scopes that have any of them. */
function lint(
  files: Record<string, string>,
  { scopes, allowed = [] }: { scopes?: typeof SCOPES; allowed?: typeof ALLOWED } = {},
): string[] {
  const root = makeFolder();
  for (const [file, text] of Object.entries(files)) {
    mkdirSync(join(root, dirname(file)), { recursive: true });
    writeFileSync(join(root, file), text);
  }
  const matching = SCOPES.map((scope) => ({
    ...scope,
    globs: scope.globs.filter((glob) => listFiles(root, { ...scope, globs: [glob] }).length > 0),
  }));
  return lintProse(root, scopes ?? matching, allowed);
}

describe('each rule', () => {
  const samples = (key: 'bad' | 'good'): [string, string, (typeof RULES)[number]][] =>
    RULES.flatMap((rule) => rule[key].map((sample): [string, string, typeof rule] => [rule.name, sample, rule]));
  const findsIn = (sample: string, rule: (typeof RULES)[number]): boolean => {
    const isHeading = sample.startsWith('## ');
    const passage = {
      kind: isHeading ? ('heading' as const) : ('message' as const),
      start: 0,
      text: sample.replace(/^## /, '   '),
    };
    return findAll(passage, [rule]).length > 0;
  };

  test.each(samples('bad'))('finds a bad sample (%s: %s)', (_, sample, rule) => {
    expect(findsIn(sample, rule)).toBe(true);
  });
  test.each(samples('good'))('passes a good sample (%s: %s)', (_, sample, rule) => {
    expect(findsIn(sample, rule)).toBe(false);
  });
});

test('prints file, line, column, the word, and what to write', () => {
  expect(lint({ 'README.md': '# A page\n\nThis is how\nto *mend* it.\n' })).toEqual(['README.md:4:5: word: "mend"; write: fix']);
});

test('counts the items of a list in a comment as sentences', () => {
  const words = 'word '.repeat(25);
  expect(lint({ 'src/a.ts': `/**\n * ${words}:\n * - ${words}\n * - ${words}\n */\n` })).toEqual([]);
  expect(lint({ 'src/a.ts': `/**\n * ${words}:\n * ${words}\n */\n` })).toHaveLength(1);
});

describe('finds a word in', () => {
  test.each([
    ['a Markdown paragraph across lines', 'docs/a.md', 'It is left\nout here.'],
    ['a Markdown list', 'docs/a/b.md', '- One\n  - It is left out.'],
    ['a Markdown table', 'docs/a.md', '| a | b |\n| --- | --- |\n| c | left out |\n'],
    ['a link', 'docs/a.md', 'See [what is **left out**](b.md).'],
    ['a heading', 'CHANGELOG.md', '## Left out'],
    ['a comment of a YAML block', 'CONTRIBUTING.md', '```yaml\na: 1 # left out: 2\n```\n'],
    ['a comment of a shell block', 'docs/a.md', '```sh\n# with the value left out\nls\n```\n'],
    ['a comment of values', 'chart/a/values.yaml', '# If left\n# out: 1.\na: 1\n'],
    ['a description of a schema', 'chart/a/values.schema.json', '{"a": {"description": "A. Left out: \\"1\\"."}}'],
    ['a text of an alert', 'chart/a/rules/b.yaml', 'a:\n  summary: >-\n    {{ $value }} are left\n    out\n'],
    ['a title of a dashboard', 'chart/a/dashboards/b.json', '{"panels": [{"title": "Left out"}]}'],
    ['a comment of a template', 'chart/a/templates/b.yaml', '{{- /* It is left\n out. */ -}}\na: 1\n'],
    ['a YAML comment of a template', 'chart/a/templates/b.tpl', 'a: {{ .b }}\n# The rest is\n# left out.\n'],
    ['a message of a template', 'chart/a/templates/b.yaml', '{{- fail (printf "\\n\\nthe key %s is left out" .b) -}}\n'],
    ['a message of a policy', 'chart/a/templates/b.yaml', 'a:\n  - message: the sidecar was left out\n'],
    [
      'a computed message of a policy',
      'chart/a/templates/b.yaml',
      "a:\n  - messageExpression: >-\n      variables.pod +\n      ' is left out'\n    b: 1\n",
    ],
    ['notes', 'chart/a/templates/NOTES.txt', '{{ if .a }}\nIt is left\nout.\n{{ end }}\n'],
    ['a doc comment', 'src/a.ts', '/**\n * It is left\n * out.\n */\n'],
    ['line comments', 'src/a.ts', '  // It is left\n  // out.\n'],
    ['a message', 'src/a/b.ts', "const a = 'the key was left out';\n"],
    ['a line of a page', 'src/a.ts', 'const a = `Usage:\n\n  the key that was left out\n`;\n'],
    ['a message with a quote', 'src/a.ts', "const a = 'it\\'s a key left out';\n"],
    ['a message in parts', 'src/a.ts', 'const a = `the key $' + '{b} was left out`;\n'],
    ['a message within an expression', 'src/a.ts', 'const a = `$' + "{b ? 'the key was left out' : ''}`;\n"],
  ])('%s', (_, file, text) => {
    expect(lint({ [file]: text })).toEqual([expect.stringMatching(/^[^:]+:\d+:\d+: word: "left out"; write: /i)]);
  });
});

describe('skips', () => {
  test.each([
    ['a code span', 'docs/a.md', 'The field `mend` and ``left out``.'],
    ['a code block', 'docs/a.md', '```json\n{"mend": 1}\n```\n\n    mend\n'],
    ['the target of a link', 'docs/a.md', 'See [this](left%20out/mend.md "mend").'],
    ['YAML that is not prose', 'chart/a/values.yaml', 'mend: mend\n'],
    ['commands in notes', 'chart/a/templates/NOTES.txt', 'Run:\n\n     mend it\n'],
    ['names in sources', 'src/a.ts', "const mend = { mend: 'mend', a: 'mend it' };\n"],
    ['an example of a doc comment', 'src/a.ts', "/** A.\n * @example\n * mend('it now');\n */\n"],
    ['code in a message', 'src/a.ts', 'const a = "the field `mend` is unknown here";\n'],
    ['an expression in a message', 'src/a.ts', 'const a = `the field $' + '{mend} is unknown here`;\n'],
    ['URLs and paths in comments', 'src/a.ts', '// See https://example.org/mend and src/mend/left.ts here.\n'],
  ])('%s', (_, file, text) => {
    expect(lint({ [file]: text })).toEqual([]);
  });
});

describe('the files', () => {
  test('include every page, chart text and source', () => {
    const files = SCOPES.flatMap((scope) => listFiles(ROOT, scope));
    expect(files).toEqual(
      expect.arrayContaining([
        ...['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'ARCHITECTURE.md', 'SECURITY.md'],
        ...['docs/README.md', 'docs/adr/0001-own-forwarder.md', 'docs/how-to/stripe.md', 'docs/runbooks/SidegateClockSkew.md'],
        ...[
          'chart/sidegate/README.md',
          'chart/sidegate-lib/README.md',
          'chart/sidegate/values.yaml',
          'chart/sidegate/values.schema.json',
        ],
        ...['chart/sidegate/rules/store.yaml', 'chart/sidegate/dashboards/fleet.json', 'chart/sidegate/templates/NOTES.txt'],
        ...['chart/sidegate/templates/requirements.yaml', 'chart/sidegate-lib/templates/_helpers.tpl', 'src/cli/main.ts'],
        ...['examples/fixtures/gate.yaml', 'config/quickstart.yaml', 'quickstart/main.ts'],
      ]),
    );
    expect(new Set(files).size).toBe(files.length);
  });

  test('must match each glob of a scope, so that moving a folder does not disable the check', () => {
    const scopes = [{ name: 'docs', globs: ['docs/*.md', 'moved/*.md'], extract: () => [] }];
    expect(lint({ 'docs/a.md': '' }, { scopes })).toEqual(['scope docs: no file matches moved/*.md']);
  });
});

describe('the allow-list', () => {
  const files = { 'docs/a.md': 'Mend it.\n', 'docs/b.md': 'Mend it.\n' };

  test('accepts one word in one file', () => {
    expect(lint(files, { allowed: [{ file: 'docs/a.md', found: 'mend', reason: 'a test' }] })).toEqual([
      'docs/b.md:1:1: word: "Mend"; write: fix',
    ]);
  });
  test('rejects an entry that nothing needs', () => {
    expect(lint({ 'docs/a.md': '' }, { allowed: [{ file: 'docs/a.md', found: 'mend', reason: 'a test' }] })).toEqual([
      'docs/a.md: "mend" is allowed but not found; remove it from ALLOWED',
    ]);
  });
  test('has a reason for each entry', () => {
    expect(ALLOWED.filter(({ reason }) => reason.length < 10)).toEqual([]);
  });
});
