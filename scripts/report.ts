/** Adds up the runners' JSON reports, and describes what failed. */
import { readFileSync } from 'node:fs';
import { relative } from 'node:path';

/** The sums over the reports. */
export interface Totals {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

interface Assertion {
  readonly status: string;
  readonly title: string;
  readonly fullName: string;
  readonly failureMessages?: readonly string[];
}

interface TestFile {
  readonly name: string;
  readonly status: string;
  readonly message?: string;
  readonly assertionResults?: readonly Assertion[];
}

/** A report of vitest's JSON reporter. */
export interface Report {
  readonly startTime: number;
  readonly numPassedTests: number;
  readonly numFailedTests: number;
  readonly numPendingTests: number;
  readonly success: boolean;
  readonly testResults: readonly TestFile[];
}

/** Lines of one message that a reader needs: the comparison and the place, not the whole trace. */
const MAX_LINES = 12;
const MAX_LINE_LENGTH = 300;
const MAX_FAILURES = 20;

/** Adds up all reports; a missing or unreadable report counts as a failure. */
export function readTotals(files: readonly string[]): Totals {
  return files
    .map((file) => toTotals(readReport(file)))
    .reduce(
      (sum, one) => ({ passed: sum.passed + one.passed, failed: sum.failed + one.failed, skipped: sum.skipped + one.skipped }),
      { passed: 0, failed: 0, skipped: 0 },
    );
}

/** The failed tests with the start of their messages, so that the end of a long log says what failed. */
export function readFailures(files: readonly string[]): string[] {
  const failures = files.flatMap((file) => describeFailures(file, readReport(file)));
  const more = failures.length - MAX_FAILURES;
  return more > 0 ? [...failures.slice(0, MAX_FAILURES), `and ${more} more`] : failures;
}

function readReport(file: string): Report | undefined {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as Report;
  } catch {
    return undefined;
  }
}

function toTotals(report: Report | undefined): Totals {
  if (report === undefined) return { passed: 0, failed: 1, skipped: 0 };
  const { numPassedTests, numFailedTests, numPendingTests, success } = report;
  const failed = numFailedTests === 0 && !success ? 1 : numFailedTests;
  return { passed: numPassedTests, failed, skipped: numPendingTests };
}

function describeFailures(file: string, report: Report | undefined): string[] {
  if (report === undefined) return [`${file}: the report is missing: the suite did not run to its end`];
  const found = report.testResults.flatMap(describeFile);
  return found.length === 0 && !report.success ? [`${file}: the suite failed outside its tests`] : found;
}

function describeFile({ name, status, message = '', assertionResults = [] }: TestFile): string[] {
  const path = relative('.', name);
  const failed = assertionResults.filter((assertion) => assertion.status === 'failed');
  if (failed.length > 0)
    return failed.map(({ fullName, failureMessages = [] }) => `${path} > ${fullName}\n${shorten(failureMessages.join('\n'))}`);
  return status === 'failed' ? [`${path}\n${shorten(message)}`] : [];
}

function shorten(message: string): string {
  const lines = message.split('\n').filter((line) => !line.includes('node_modules'));
  return lines
    .slice(0, MAX_LINES)
    .map((line) => `  ${line.slice(0, MAX_LINE_LENGTH)}`)
    .join('\n');
}

/** The last line of a run. */
export function toClosingLine({ passed, failed, skipped }: Totals): string {
  return `${passed} passed, ${failed} failed${skipped === 0 ? '' : `, ${skipped} skipped`}`;
}
