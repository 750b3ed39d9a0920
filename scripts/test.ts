/** Runs one test suite and ends with the line `N passed, N failed`, counted from the runner's own report. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, rmSync } from 'node:fs';
import { toImageNodeEnv } from './image-node.ts';
import { readTotals, toClosingLine } from './report.ts';

const [suite = 'test', ...rest] = process.argv.slice(2);
const config = suite === 'test' ? 'vitest.config.ts' : `vitest.${suite}.config.ts`;
const report = `.cache/reports/${suite}.json`;

mkdirSync('.cache/reports', { recursive: true });
rmSync(report, { force: true });
const args = [
  'vitest',
  'run',
  '--config',
  config,
  '--reporter=default',
  '--reporter=json',
  `--outputFile.json=${report}`,
  ...rest,
];
const env = suite === 'node26' ? toImageNodeEnv() : process.env;
const { status } = spawnSync('npx', args, { stdio: 'inherit', env });
const totals = readTotals([report]);
// A failure outside any test is also a failure.
const failed = totals.failed === 0 && status !== 0 ? 1 : totals.failed;
console.log(toClosingLine({ ...totals, failed }));
process.exitCode = failed > 0 || totals.passed === 0 ? 1 : 0;
