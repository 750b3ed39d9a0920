/** Prints what failed in CI, and as the last line the sum over all suites. A step that failed outside the suites counts as one failure. */
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { readFailures, readTotals, toClosingLine } from './report.ts';

const [failedSteps = '0', ...files] = process.argv.slice(2);
const totals = readTotals(files);
const failed = totals.failed + Number(failedSteps);
for (const failure of readFailures(files)) console.log(`== failed: ${failure}`);
const flaky = join(dirname(files[0] ?? ''), 'flaky.txt');
if (existsSync(flaky)) process.stdout.write(readFileSync(flaky));
console.log(toClosingLine({ ...totals, failed }));
process.exitCode = failed > 0 || totals.passed === 0 ? 1 : 0;
