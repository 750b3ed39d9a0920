import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { makeFolder } from './support/fixtures.ts';

const ROOT = join(import.meta.dirname, '..');
const PASSED = { numPassedTests: 3, numFailedTests: 0, numPendingTests: 1, success: true, testResults: [] };

test('adds up the reports of the suites', () => {
  expect(summarize([PASSED, PASSED])).toEqual({ status: 0, lines: ['6 passed, 0 failed, 2 skipped'] });
});

test('names each failed test with the start of its message, without the frames of libraries', () => {
  const failure = {
    name: resolve(ROOT, 'test/e2e/gate.test.ts'),
    status: 'failed',
    assertionResults: [
      { status: 'passed', fullName: 'a gate starts' },
      {
        status: 'failed',
        fullName: 'a gate rejects',
        failureMessages: [
          `expected 1 to be 2\n    at test/e2e/gate.test.ts:1:2\n    at node_modules/x.js:1:2\n${'y\n'.repeat(50)}`,
        ],
      },
    ],
  };
  const { status, lines } = summarize([{ ...PASSED, numFailedTests: 1, success: false, testResults: [failure] }]);
  expect(status).toBe(1);
  expect(lines.slice(0, 3)).toEqual([
    '== failed: test/e2e/gate.test.ts > a gate rejects',
    '  expected 1 to be 2',
    '      at test/e2e/gate.test.ts:1:2',
  ]);
  expect(lines).toHaveLength(14);
  expect(lines.at(-1)).toBe('3 passed, 1 failed, 1 skipped');
});

test('names the tests that passed in their second run', () => {
  const { status, lines } = summarize([PASSED], { flaky: '== flaky: test/memory/a.test.ts > holds\n' });
  expect([status, lines]).toEqual([0, ['== flaky: test/memory/a.test.ts > holds', '3 passed, 0 failed, 1 skipped']]);
});

test('names a test file that could not be loaded', () => {
  const failure = { name: resolve(ROOT, 'test/x.test.ts'), status: 'failed', message: 'SyntaxError: x', assertionResults: [] };
  const { lines } = summarize([{ ...PASSED, success: false, testResults: [failure] }]);
  expect(lines).toEqual(['== failed: test/x.test.ts', '  SyntaxError: x', '3 passed, 1 failed, 1 skipped']);
});

test('counts a missing report and a failed step as one failure each', () => {
  const { status, lines } = summarize([PASSED], { failedSteps: 1, missing: ['gone.json'] });
  expect(status).toBe(1);
  expect(lines.at(-2)).toContain('gone.json: the report is missing: the suite did not run to its end');
  expect(lines.at(-1)).toBe('3 passed, 2 failed, 1 skipped');
});

test('lists at most 20 failures', () => {
  const testResults = Array.from({ length: 25 }, (_, i) => ({ name: `t${i}`, status: 'failed', message: 'm' }));
  const { lines } = summarize([{ ...PASSED, numFailedTests: 25, success: false, testResults }]);
  expect(lines.slice(-2)).toEqual(['== failed: and 5 more', '3 passed, 25 failed, 1 skipped']);
});

test('the steps of .ci/run that npm does not start have the Node of the project, too, whatever Node the machine has', () => {
  const [beforeSummary] = readFileSync(join(ROOT, '.ci/run'), 'utf8').split('\nstep 60 node ');
  const assignments = beforeSummary?.split('\n').filter((line) => line.startsWith('PATH=')) ?? [];
  const { stdout } = spawnSync('bash', ['-c', [...assignments, 'command -v node'].join('\n')], {
    cwd: ROOT,
    encoding: 'utf8',
    env: { PATH: '/usr/bin:/bin' },
  });
  expect(stdout.trim()).toBe(join(ROOT, 'node_modules/.bin/node'));
});

function summarize(
  reports: readonly object[],
  { failedSteps = 0, missing = [], flaky }: { failedSteps?: number; missing?: readonly string[]; flaky?: string } = {},
): { status: number | null; lines: string[] } {
  const folder = makeFolder();
  const files = reports.map((report, i) => {
    const file = join(folder, `${i}.json`);
    writeFileSync(file, JSON.stringify(report));
    return file;
  });
  if (flaky !== undefined) writeFileSync(join(folder, 'flaky.txt'), flaky);
  const all = [...files, ...missing.map((name) => join(folder, name))];
  const { status, stdout } = spawnSync(process.execPath, ['scripts/ci-summary.ts', `${failedSteps}`, ...all], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  return { status, lines: stdout.trimEnd().split('\n') };
}
