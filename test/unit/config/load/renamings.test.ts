import { describe, expect, test } from 'vitest';
import { parseYaml } from '../../../../src/config/load/document.ts';
import { applyRenamings, type CurrentFile, type Renaming } from '../../../../src/config/load/renamings.ts';

const RENAMINGS: readonly Renaming[] = [
  { kind: 'key', at: ['routes', '*', 'dedup'], old: 'waitAtMost', name: 'maxWait' },
  { kind: 'key', at: ['tls'], old: 'more', name: 'additional' },
  { kind: 'value', at: ['order'], key: 'onStale', old: 'answer', name: 'acknowledge' },
];

function apply(text: string): CurrentFile {
  const file = parseYaml('gate.yaml', text, 'start with routes:');
  if ('problems' in file) throw new Error('the file cannot be parsed');
  return applyRenamings(file, RENAMINGS);
}

describe('an old name', () => {
  test('is replaced, with a warning that names both', () => {
    const { value, ratings } = apply(
      'routes: [{ dedup: { lease: 1s } }, { dedup: { waitAtMost: 2s } }]\norder: { onStale: answer }\n',
    );
    expect(value).toEqual({
      routes: [{ dedup: { lease: '1s' } }, { dedup: { maxWait: '2s' } }],
      order: { onStale: 'acknowledge' },
    });
    expect(ratings).toEqual([
      {
        severity: 'warning',
        path: ['routes', 1, 'dedup', 'waitAtMost'],
        message: '"waitAtMost" is deprecated: it was renamed to "maxWait"',
        hint: 'write maxWait',
        isAboutKey: true,
      },
      {
        severity: 'warning',
        path: ['order', 'onStale'],
        message: '"answer" is deprecated: it was renamed to "acknowledge"',
        hint: 'write acknowledge',
      },
    ]);
  });

  test('is an error beside the new one, which counts', () => {
    const { value, ratings } = apply('tls: { more: [1], additional: [2] }\n');
    expect(value).toEqual({ tls: { additional: [2] } });
    expect(ratings).toMatchObject([{ severity: 'error', path: ['tls', 'more'], hint: 'remove it' }]);
  });

  test('is named, with its position, in problems with its value', () => {
    const { toProblem, locate } = apply('tls:\n  more:\n    - { file: a }\n    - { file: b }\n');
    expect(locate(['tls', 'additional', '1', 'file'])).toEqual({ line: 4, column: 15 });
    expect(toProblem('error', { path: ['tls', 'additional', 1, 'file'], message: 'missing' })).toMatchObject({
      path: 'tls.more.1.file',
      line: 4,
    });
  });
});

test.each([
  ['a list instead of an object', 'tls: [more]\n'],
  ['an object instead of a list', 'routes: { dedup: { waitAtMost: 1s } }\n'],
  ['null', 'tls:\nroutes:\n'],
  ['a string', 'text\n'],
  ['the same name elsewhere', 'order: { waitAtMost: 1s, more: answer }\n'],
  ['current names', 'tls: { additional: [] }\norder: { onStale: acknowledge }\n'],
])('leaves %s unchanged', (_, text) => {
  const file = parseYaml('gate.yaml', text, 'start with routes:');
  const { value, ratings } = apply(text);
  expect(value).toEqual('value' in file ? file.value : undefined);
  expect(ratings).toEqual([]);
});
