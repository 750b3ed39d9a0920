/** `npm test -- [SUITE] [FILES]`: prepares one test suite, runs it, and ends with the line `N passed, N failed`, counted from the runner's own reports. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, rmSync } from 'node:fs';
import { resolve } from 'node:path';
import { execPath } from 'node:process';
import { toImageNodeEnv } from '../test/prepare/image-node.ts';
import { readTotals, toClosingLine } from './report.ts';

/** Node keeps the compiled sources here: each of the many processes that the tests start takes half the CPU then. */
const NODE_COMPILE_CACHE = resolve('.cache/compiled');

/** Besides `test`, which runs without a name. */
const SUITES = 'attack commands provider node26 simulation chaos cluster browser fuzz memory models oracles'.split(' ');
const args = process.argv.slice(2);
const suite = SUITES.includes(args[0] ?? '') ? (args.shift() as string) : 'test';
/** Suites of several projects of vitest.config.ts: groups that run one after another, each of projects at once. */
const GROUPS: Readonly<Record<string, readonly (readonly string[])[]>> = {
  cluster: [['cluster', 'cluster-node'], ['cluster-floods']],
};
/** `npm test` runs the files that no other suite has, unless it names some: the project `test` has all. */
const main = args.some((arg) => !arg.startsWith('-')) ? 'test' : 'main';
const groups = GROUPS[suite] ?? [[suite]];
const reports = groups.flat().map(toReportFile);

const prepared = spawnSync(execPath, ['test/prepare/prepare-test.ts', suite], { stdio: 'inherit' });
if (prepared.status !== 0) process.exit(1);
mkdirSync('.cache/reports', { recursive: true });
for (const report of reports) rmSync(report, { force: true });
const ends: boolean[] = [];
for (const group of groups) ends.push(...(await Promise.all(group.map((project, i) => runProject(project, i === 0)))));
const totals = readTotals(reports);
// A failure outside any test is also a failure.
const failed = totals.failed === 0 && ends.some((isGood) => !isGood) ? 1 : totals.failed;
console.log(toClosingLine({ ...totals, failed }));
process.exitCode = failed > 0 || totals.passed === 0 ? 1 : 0;

function toReportFile(project: string): string {
  return `.cache/reports/${project}.json`;
}

/** Whether the run ended without a failure. The output of all but the first of a group is printed after its end. */
async function runProject(project: string, isFirst: boolean): Promise<boolean> {
  const vitest = [
    'vitest',
    'run',
    '--project',
    project === 'test' ? main : project,
    // The senders' libraries write to the console what they refuse.
    ...(project === 'oracles' ? ['--silent=passed-only'] : []),
    '--reporter=default',
    '--reporter=json',
    '--reporter=./test/support/flaky-reporter.ts',
    `--outputFile.json=${toReportFile(project)}`,
    // Files named on the command line may all belong to another project.
    ...(reports.length > 1 ? ['--passWithNoTests'] : []),
    ...args,
  ];
  const env = { ...(suite === 'node26' ? toImageNodeEnv() : process.env), NODE_COMPILE_CACHE };
  const child = spawn('npx', vitest, { stdio: isFirst ? 'inherit' : ['ignore', 'pipe', 'pipe'], env });
  const printed: Buffer[] = [];
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk: Buffer) => printed.push(chunk));
  const [status] = await once(child, 'close');
  if (printed.length > 0) process.stdout.write(Buffer.concat(printed));
  return status === 0;
}
