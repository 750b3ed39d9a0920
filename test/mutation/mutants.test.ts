import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { applyMutant, findMutants, sampleMutants } from './mutants.ts';
import { TARGETS } from './targets.ts';

const SOURCE = `import { x } from './x.ts';
type Kind = 'a' | 'b';
export async function check(size: number, kind: Kind): Promise<string> {
  if (size >= 10 && kind !== 'b') await x();
  count += 1;
  return kind === 'a' ? \`n\${size - 1}\` : 'too large to hold';
}
`;

test('makes each change once, and none in imports, types and messages', () => {
  const mutants = findMutants('check.ts', SOURCE);
  const toLines = (): string[] => mutants.map(({ line, mutation }) => `${line} ${mutation}`);
  expect(toLines()).toEqual([
    '3 early return: { → { return;',
    "4 negation: size >= 10 && kind !== 'b' → !(size >= 10 && kind !== 'b')",
    "4 logic: size >= 10 && kind !== 'b' → ((size >= 10) || (kind !== 'b'))",
    '4 boundary: size >= 10 → size > 10',
    "4 negation: kind !== 'b' → kind === 'b'",
    "4 string: 'b' → ''",
    '4 statement: await x(); → ;',
    '4 await: await x() → x()',
    '5 statement: count += 1; → ;',
    '5 arithmetic: count += 1 → count -= 1',
    "6 negation: kind === 'a' → kind !== 'a'",
    "6 string: 'a' → ''",
    '6 arithmetic: size - 1 → size + 1',
  ]);
});

test('gives the same change at two positions of a line two names', () => {
  const names = findMutants('check.ts', "const [a = '', b = ''] = read();\n").map(({ mutation }) => mutation);
  expect(names).toEqual(["string: '' → 'mutant'", "string: '' → 'mutant' (2)"]);
});

test('changes nothing but the place of the mutant', () => {
  for (const mutant of findMutants('check.ts', SOURCE)) {
    const mutated = applyMutant(SOURCE, mutant);
    expect(mutated).not.toBe(SOURCE);
    expect(mutated.startsWith(SOURCE.slice(0, mutant.start))).toBe(true);
    expect(mutated.endsWith(SOURCE.slice(mutant.end))).toBe(true);
  }
});

test('draws the same sample after the file was moved and lines were added, and another one with another seed', () => {
  const toNames = (file: string, source: string, seed = 1): string[] =>
    sampleMutants(findMutants(file, source), 5, seed).map(({ code, mutation }) => `${code} ${mutation}`);
  const sample = toNames('src/a/check.ts', SOURCE);
  expect(toNames('src/b/c/check.ts', `// A comment.\n${SOURCE}`)).toEqual(sample);
  expect(toNames('src/a/check.ts', SOURCE, 2)).not.toEqual(sample);
});

test('mutates only files and folders that exist', () => {
  const root = join(import.meta.dirname, '../..');
  expect(TARGETS.filter((target) => !existsSync(join(root, target)))).toEqual([]);
});
