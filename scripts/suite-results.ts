/** `npm run record:suites`: keeps the results of the suites that ran last in bench/RESULTS-suites.json, for docs/reliability.md. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PROMISES, SUITES } from './reliability-promises.ts';
import type { Report } from './report.ts';

/** A suite as it ran last. */
export interface SuiteResult {
  readonly date: string;
  readonly commit: string;
  /** How many test files ran: fewer than the suite has if only some were named. */
  readonly files: number;
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  /** The status of the tests that prove a promise, by `file > title`. Several tests can have one title. */
  readonly tests: Readonly<Record<string, 'passed' | 'failed' | 'skipped'>>;
}

/** By name; suites that were never recorded are missing. */
export type SuiteResults = Readonly<Record<string, SuiteResult>>;

const SUITE_RESULTS_FILE = join(import.meta.dirname, '..', 'bench', 'RESULTS-suites.json');

/** Nothing if nothing was recorded. */
export function readSuiteResults(): SuiteResults {
  return existsSync(SUITE_RESULTS_FILE) ? (JSON.parse(readFileSync(SUITE_RESULTS_FILE, 'utf8')) as SuiteResults) : {};
}

/** How a proof is named in the results. */
export function toTestKey(file: string, title: string): string {
  return `${file} > ${title}`;
}

/** Keeps the counts, and the status of the tests in `keys`. A contract runs in several files, so a test is also found by its title alone. */
export function summarizeReports(
  reports: readonly Report[],
  keys: readonly { file: string; title: string }[],
  commit: string,
): SuiteResult {
  const files = reports.flatMap(({ testResults }) => testResults);
  const sum = (count: (report: Report) => number): number => reports.reduce((total, report) => total + count(report), 0);
  const tests: Record<string, 'passed' | 'failed' | 'skipped'> = {};
  for (const { file, title } of keys) {
    const isIn = (name: string): boolean => name.endsWith(`/${file}`) || file.endsWith('.contract.ts');
    const statuses = files
      .filter(({ name }) => isIn(name))
      .flatMap(({ assertionResults = [] }) => assertionResults.filter((one) => one.title === title).map(({ status }) => status));
    if (statuses.length > 0) tests[toTestKey(file, title)] = toStatus(statuses);
  }
  return {
    date: new Date(Math.min(...reports.map(({ startTime }) => startTime))).toISOString().slice(0, 10),
    commit,
    files: files.length,
    passed: sum((report) => report.numPassedTests),
    failed: sum((report) => report.numFailedTests),
    skipped: sum((report) => report.numPendingTests),
    tests,
  };
}

function toStatus(statuses: readonly string[]): 'passed' | 'failed' | 'skipped' {
  if (statuses.includes('failed')) return 'failed';
  return statuses.includes('passed') ? 'passed' : 'skipped';
}

function recordSuites(folder: string): void {
  const commit = execFileSync('git', ['rev-parse', '--short=12', 'HEAD'], { encoding: 'utf8' }).trim();
  const proofs = Object.values(PROMISES)
    .flat()
    .flatMap((promised) => promised.proofs);
  const results: Record<string, SuiteResult> = { ...readSuiteResults() };
  for (const suite of Object.keys(SUITES)) {
    const files = (suite === 'test' ? ['test', 'attack', 'provider'] : [suite]).map((name) => join(folder, `${name}.json`));
    if (!files.every((file) => existsSync(file))) continue;
    const keys = proofs.filter((proof) => proof.kind === 'test').filter((proof) => proof.suite === suite);
    const reports = files.map((file) => JSON.parse(readFileSync(file, 'utf8')) as Report);
    results[suite] = summarizeReports(reports, keys, commit);
    console.log(`${suite}: ${results[suite].passed} passed, ${results[suite].failed} failed`);
  }
  writeFileSync(SUITE_RESULTS_FILE, `${JSON.stringify(results, null, 2)}\n`);
}

if (import.meta.main) recordSuites(process.argv[2] ?? join('.cache', 'reports'));
