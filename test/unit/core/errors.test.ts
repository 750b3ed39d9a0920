import { expect, test } from 'vitest';
import { toErrorSummary } from '../../../src/core/errors.ts';

test('names the class, the code and the frames of an error, and never its message', () => {
  const error = Object.assign(new TypeError('token abc\n    at secret (file.ts:1:1)'), { code: 'ERR_X' });
  const summary = toErrorSummary(error);
  expect(summary.error).toBe('TypeError ERR_X');
  expect(summary.at[0]).toContain('errors.test.ts');
  expect(JSON.stringify(summary)).not.toMatch(/token|secret/);
});

test.each([
  ['a string', 'secret', 'a thrown string'],
  ['undefined', undefined, 'a thrown undefined'],
  ['an object', { password: 'secret' }, 'a thrown object'],
  ['an error with an odd name', Object.assign(new Error('x'), { name: 'my secret' }), ''],
  [
    'an error whose name cannot be read',
    Object.defineProperty(new Error('x'), 'name', {
      get() {
        throw new Error('secret');
      },
    }),
    'an error that cannot be read',
  ],
])('shows nothing of the text of %s', (_title, thrown, expected) => {
  const summary = toErrorSummary(thrown);
  expect(summary.error).toBe(expected);
  expect(JSON.stringify(summary)).not.toContain('secret');
});

test('keeps a summary small, however long the stack', () => {
  const error = new Error('x');
  error.stack = `Error: x\n${`    at ${'f'.repeat(10_000)} (a.ts:1:1)\n`.repeat(1_000)}`;
  expect(JSON.stringify(toErrorSummary(error)).length).toBeLessThan(2_000);
});
