/** Prints the last line of CI: the sum over all suites. A step that failed outside the suites counts as one failure. */
import { readTotals, toClosingLine } from './report.ts';

const [failedSteps = '0', ...files] = process.argv.slice(2);
const totals = readTotals(files);
const failed = totals.failed + Number(failedSteps);
console.log(toClosingLine({ ...totals, failed }));
process.exitCode = failed > 0 || totals.passed === 0 ? 1 : 0;
