import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { withBlocks } from '../scripts/markdown.ts';
import { renderPromises } from '../scripts/reliability-page.ts';
import { PROMISES, type Proof, RUNS, SUITES, toPlace } from '../scripts/reliability-promises.ts';
import type { Report } from '../scripts/report.ts';
import { summarizeReports } from '../scripts/suite-results.ts';
import * as claims from './models/claims/checks.ts';
import * as lanes from './models/lanes/checks.ts';
import { listSuites } from './support/workflows.ts';

const ROOT = join(import.meta.dirname, '..');
const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8');
const promises = Object.values(PROMISES).flat();
const proofs = promises.flatMap((promised) => promised.proofs);
const isOf = <Kind extends Proof['kind']>(kind: Kind) =>
  proofs.filter((proof): proof is Extract<Proof, { kind: Kind }> => proof.kind === kind);
const scripts = (JSON.parse(read('package.json')) as { scripts: Record<string, string> }).scripts;

describe('the page on reliability', () => {
  test('names only tests and checks that exist', () => {
    const missing = proofs.flatMap((proof) => {
      if (proof.kind === 'run') return [];
      const { file, text } = toPlace(proof);
      return existsSync(join(ROOT, file)) && read(file).includes(text) ? [] : [`${file}: ${text}`];
    });
    expect(missing).toEqual([]);
  });

  test('names only invariants that the model checker checks', () => {
    for (const { model, name } of isOf('invariant')) {
      const { invariants = [], properties = [] } = (model === 'claims' ? claims : lanes).toCheck({ isLive: true });
      expect([...invariants, ...properties], `${model}: ${name}`).toContain(name);
    }
  });

  test('names only scripts that exist', () => {
    const commands = [...Object.values(SUITES), ...Object.values(RUNS).map(({ command }) => command)];
    const named = commands.flatMap((command) => /^npm run (\S+)/.exec(command)?.[1] ?? []);
    expect(named.filter((name) => scripts[name] === undefined)).toEqual([]);
    const suites = commands.flatMap((command) => /^npm test -- (\S+)/.exec(command)?.[1] ?? []);
    expect(suites.filter((name) => !listSuites().includes(name))).toEqual([]);
  });

  test('proves each promise', () => {
    expect(promises.filter((promised) => promised.proofs.length === 0)).toEqual([]);
  });
});

test('a page without results says so, and names the command', () => {
  const page = renderPromises({ suites: {}, runs: {} });
  expect(page).toContain('| soak: half load with reloads and rotations | not run yet | `npm run soak` |');
  expect(page).toContain('| suite `models` | not recorded | `npm test -- models` |');
});

describe('a long run', () => {
  const about = { date: '2026-11-23', commit: 'abc', machine: 'any' };

  test('shows its plain figures under their names, and escapes text that would break the table', () => {
    const soak = { ...about, minutes: 30, slopeMiBPerMinute: 0.01, text: 'a|b', samples: [1], problems: [] };
    const page = renderPromises({ suites: {}, runs: { soak } });
    expect(page).toMatch(/\| problems: 0; minutes: 30; slope.*: 0.01; text: a\\\|b; 2026-11-23, abc \| `npm run soak` \|/);
  });

  test('over several stores has a row for each, and the sum of its problems', () => {
    const part = (problems: readonly string[]): object => ({ events: 50_000, faults: 12, problems });
    const page = renderPromises({ suites: {}, runs: { chaos: { ...about, Sentinel: part([]), 'a Cluster': part(['lost']) } } });
    expect(page).toMatch(/^\| chaos.*, Sentinel \| problems: 0; events: 50,000; faults: 12; 2026-11-23, abc \|/m);
    expect(page).toMatch(/^\| chaos.*, a Cluster \| problems: 1; /m);
    expect(page).toContain('| 1 problem, 2026-11-23, see below | `npm test -- chaos` |');
  });
});

test('a page without its marks is an error', () => {
  expect(withBlocks('README.md', { promises: renderPromises })).toThrow('README.md has no <!-- promises: written by');
});

describe('the recorded result of a suite', () => {
  const report = (statuses: Readonly<Record<string, string>>, name = '/any/test/e2e/gate.test.ts'): Report => ({
    startTime: 0,
    success: false,
    numPassedTests: 2,
    numFailedTests: 1,
    numPendingTests: 3,
    testResults: [
      {
        name,
        status: '',
        assertionResults: Object.entries(statuses).map(([title, status]) => ({ title, fullName: title, status })),
      },
    ],
  });

  test('has the counts, and the status of the tests that prove a promise', () => {
    const keys = [
      { file: 'test/e2e/gate.test.ts', title: 'one' },
      { file: 'test/e2e/gate.test.ts', title: 'absent' },
      { file: 'test/e2e/other.test.ts', title: 'two' },
    ];
    expect(summarizeReports([report({ one: 'passed', two: 'passed' })], keys, 'abc')).toEqual({
      date: '1970-01-01',
      commit: 'abc',
      files: 1,
      passed: 2,
      failed: 1,
      skipped: 3,
      tests: { 'test/e2e/gate.test.ts > one': 'passed' },
    });
  });

  test('is failed if the test fails for one of the implementations of a contract', () => {
    const [first] = report({ one: 'passed' }, '/any/test/contract/a.test.ts').testResults;
    const both = { ...report({ one: 'failed' }, '/any/test/contract/b.test.ts') };
    const all = { ...both, testResults: [...both.testResults, ...(first === undefined ? [] : [first])] };
    const { tests } = summarizeReports([all], [{ file: 'test/contract/x.contract.ts', title: 'one' }], '');
    expect(Object.values(tests)).toEqual(['failed']);
  });
});
