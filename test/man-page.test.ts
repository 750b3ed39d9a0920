import { expect, test } from 'vitest';
import { renderManPage } from '../scripts/man-page.ts';
import { EXAMPLES } from '../src/cli/program.ts';

test('the man page has each command with its options and examples, in plain roff', () => {
  const page = renderManPage('1.2.3');
  const lines = page.split('\n');
  expect(new Set(lines.filter((line) => line.startsWith('.')).map((line) => line.split(' ')[0]))).toEqual(
    new Set(['.TH', '.SH', '.SS', '.B', '.I', '.TP', '.PP', '.EX', '.EE']),
  );
  expect(page).toMatch(/^\p{ASCII}+$/u);
  expect(page).toContain('.B \\-\\-log\\-format <format>');
  for (const [words, examples] of Object.entries(EXAMPLES)) {
    expect(page).toContain(`.SS sidegate ${words.replaceAll('-', '\\-')} `);
    for (const example of examples) expect(lines).toContain(example.replaceAll('-', '\\-').replaceAll('…', '\\[u2026]'));
  }
});
