/** The last results of the test suites, as `npm run record:suites` keeps them in bench/RESULTS-suites.json. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** A file that vitest's JSON reporter wrote. */
export interface SuiteReport {
  readonly startTime: number;
  readonly numPassedTests: number;
  readonly numFailedTests: number;
  readonly numPendingTests: number;
  readonly testResults: readonly {
    readonly name: string;
    readonly assertionResults: readonly { readonly title: string; readonly status: string }[];
  }[];
}

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

export const SUITE_RESULTS_FILE = join(import.meta.dirname, '..', 'bench', 'RESULTS-suites.json');

/** Nothing if nothing was recorded. */
export function readSuiteResults(file = SUITE_RESULTS_FILE): SuiteResults {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as SuiteResults;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return {};
    throw error;
  }
}

/** How a proof is named in the results. */
export function toTestKey(file: string, title: string): string {
  return `${file} > ${title}`;
}

/** Keeps the counts, and the status of the tests in `keys`. A contract runs in several files, so a test is also found by its title alone. */
export function summarizeReport(
  report: SuiteReport,
  keys: readonly { file: string; title: string }[],
  commit: string,
): SuiteResult {
  const tests: Record<string, 'passed' | 'failed' | 'skipped'> = {};
  for (const { file, title } of keys) {
    const isIn = (name: string): boolean => name.endsWith(`/${file}`) || file.endsWith('.contract.ts');
    const statuses = report.testResults
      .filter(({ name }) => isIn(name))
      .flatMap(({ assertionResults }) => assertionResults.filter((one) => one.title === title).map(({ status }) => status));
    if (statuses.length > 0) tests[toTestKey(file, title)] = toStatus(statuses);
  }
  return {
    date: new Date(report.startTime).toISOString().slice(0, 10),
    commit,
    files: report.testResults.length,
    passed: report.numPassedTests,
    failed: report.numFailedTests,
    skipped: report.numPendingTests,
    tests,
  };
}

function toStatus(statuses: readonly string[]): 'passed' | 'failed' | 'skipped' {
  if (statuses.includes('failed')) return 'failed';
  return statuses.includes('passed') ? 'passed' : 'skipped';
}
