/** Adds up the runners' JSON reports. */
import { readFileSync } from 'node:fs';

/** The sums over the reports. */
export interface Totals {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

/** Adds up all reports; a missing or unreadable report counts as a failure. */
export function readTotals(files: readonly string[]): Totals {
  return files
    .map(readOne)
    .reduce(
      (sum, one) => ({ passed: sum.passed + one.passed, failed: sum.failed + one.failed, skipped: sum.skipped + one.skipped }),
      {
        passed: 0,
        failed: 0,
        skipped: 0,
      },
    );
}

function readOne(file: string): Totals {
  try {
    const report = JSON.parse(readFileSync(file, 'utf8')) as Record<string, unknown>;
    const { numPassedTests, numFailedTests, numPendingTests, success } = report;
    const failed = Number(numFailedTests);
    return {
      passed: Number(numPassedTests),
      failed: failed === 0 && success !== true ? 1 : failed,
      skipped: Number(numPendingTests),
    };
  } catch {
    return { passed: 0, failed: 1, skipped: 0 };
  }
}

/** The last line of a run. */
export function toClosingLine({ passed, failed, skipped }: Totals): string {
  return `${passed} passed, ${failed} failed${skipped === 0 ? '' : `, ${skipped} skipped`}`;
}
