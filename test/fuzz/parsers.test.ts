import { expect, test } from 'vitest';
import { CI_SEED, fuzzTarget, type Target } from './guided.ts';
import { HTPASSWD } from './parsers/htpasswd.ts';
import { PARSERS } from './parsers.ts';

test.each(PARSERS)('the properties of $target.name hold', async ({ target, inputs }) => {
  const run = await fuzzTarget(target, { seed: CI_SEED, inputs, seconds: 60 });
  expect(run.failure).toBeUndefined();
  expect(run.kept).toBeGreaterThan(0);
  expect(run.inputs).toBeGreaterThanOrEqual(Math.min(inputs, 300));
});

const FAULTY: Target = {
  ...HTPASSWD,
  name: 'faulty',
  async check(input) {
    await HTPASSWD.check(input);
    if (input.includes('m=99999999') && input.includes('\t')) throw new Error('both pieces');
  },
};

test('finds a fault that needs two pieces, and prints the smallest input that shows it, as source', async () => {
  const { failure } = await fuzzTarget(FAULTY, { seed: CI_SEED, inputs: 100_000, seconds: 60 });
  expect(failure).toMatch(/^faulty: both pieces\n/);
  expect(failure).toMatch(/input: Buffer\.from\("(?:m=99999999\\t|\\tm=99999999)", 'latin1'\)$/);
});

test('repeats a run with its seed', async () => {
  const budget = { seed: 7, inputs: 2_000, seconds: 60 };
  // How many inputs count as new code differs: some code runs only once in a process.
  const [first, second] = [await fuzzTarget(FAULTY, budget), await fuzzTarget(FAULTY, budget)];
  expect(first).toEqual({ ...second, kept: expect.any(Number) });
  expect(first.failure).toBeDefined();
});
