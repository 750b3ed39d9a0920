/** `sidegate test`: runs fixture files against the configs that they name, and compares the decisions with the expected ones. */

import { writeFile } from 'node:fs/promises';
import { relative } from 'node:path';
import { findNearest } from '../config/schema/did-you-mean.ts';
import { findUnused } from '../config/sources/fake-sources.ts';
import { usageError } from '../core/errors.ts';
import { error, isError, type LocatedProblem } from '../core/problem.ts';
import { paint, type Tone } from '../core/text.ts';
import { type Fixtures, loadFixtures } from '../diagnostics/simulate/fixtures.ts';
import { countResults, type FileReport, FORMATS, type TestReport } from '../diagnostics/simulate/report.ts';
import { runTests } from '../diagnostics/simulate/run-tests.ts';
import { prepareSimulation } from '../diagnostics/simulate/simulator.ts';
import { toChoice } from './input.ts';

import { EXIT, type Io } from './io.ts';

/** By config: its routes, and those that a request has reached. */
type Coverage = Map<string, { readonly routes: readonly string[]; readonly reached: Set<string> }>;

/** Exits with 0 if everything is as expected, with 1 if something is not, with 2 if something could not be run. */
export async function testConfigs(
  files: readonly string[],
  options: {
    readonly run?: string;
    readonly format: string;
    readonly output?: string;
  },
  io: Io,
): Promise<number> {
  const write = FORMATS[toChoice(options.format, Object.keys(FORMATS), '--format')] as (typeof FORMATS)[string];
  const pattern = options.run === undefined ? undefined : toPattern(options.run);
  const coverage: Coverage = new Map();
  const reports: FileReport[] = [];
  for (const file of files) reports.push(await testFile(file, pattern, coverage));
  const report: TestReport = { files: reports, untested: pattern === undefined ? toUntested(coverage) : undefined };
  const { passed, failed, unusable } = countResults(report);
  const isUnread = reports.some(({ problems }) => problems.length > 0);
  if (passed + failed + unusable === 0 && !isUnread) throw usageError(`--run ${options.run} matches no test`);
  await writeTestReport(report, write, options.output, io);
  if (isUnread || unusable > 0) return EXIT.usage;
  return failed === 0 ? EXIT.ok : EXIT.failed;
}

function toPattern(text: string): RegExp {
  try {
    return new RegExp(text, 'u');
  } catch {
    throw usageError(`--run ${text} is not a regular expression`);
  }
}

async function testFile(file: string, pattern: RegExp | undefined, coverage: Coverage): Promise<FileReport> {
  const fixtures = await loadFixtures(file);
  if (fixtures.tests === undefined) return { file, config: undefined, problems: fixtures.problems, results: [] };
  const config = relative('.', fixtures.config);
  const ready = await prepareSimulation(config, fixtures.now, fixtures.fakeSources);
  if (ready.loaded === undefined) return { file, config, problems: toConfigProblems(ready.problems, fixtures), results: [] };
  const problems = findUnusedSecrets(ready.loaded.config, fixtures);
  if (problems.length > 0) return { file, config, problems, results: [] };
  const tests = fixtures.tests.filter(({ name }) => pattern?.test(name) !== false);
  const { results, routes } = await runTests(fixtures, tests, ready);
  const known = coverage.get(config) ?? { routes: ready.loaded.config.routes.map(({ name }) => name), reached: new Set() };
  for (const route of routes) known.reached.add(route);
  coverage.set(config, known);
  return { file, config, problems: [], results };
}

const SECRET_PATH = /\.(?:secret|verifyToken|urlCredentials|users)\b/;
const MISSING = /is not set$|does not exist$|(?:cannot|may not) be read/;

/** Hints that the fixture file can also contain a missing secret. */
function toConfigProblems(problems: readonly LocatedProblem[], { file }: Fixtures): LocatedProblem[] {
  return problems
    .filter(isError)
    .map((problem) =>
      SECRET_PATH.test(problem.path) && MISSING.test(problem.message)
        ? { ...problem, hint: `add it to ${file}, under secrets` }
        : problem,
    );
}

/** A name that the config does not use is a mistake: the real secret would be used instead. */
function findUnusedSecrets(config: object, { fakeSources, locate }: Fixtures): LocatedProblem[] {
  const { env, files } = findUnused(config, fakeSources);
  const known = listReferences(config);
  const toUnused = (section: 'env' | 'files', name: string): LocatedProblem => {
    const nearest = findNearest(name, known);
    const hint = nearest === undefined ? undefined : `did you mean ${nearest}?`;
    const message = `the config does not refer to the ${section === 'env' ? 'variable' : 'file'} ${name}`;
    return locate(error(['secrets', section, name], message, hint));
  };
  return [...env.map((name) => toUnused('env', name)), ...files.map((name) => toUnused('files', name))];
}

function listReferences(value: unknown): string[] {
  if (typeof value !== 'object' || value === null) return [];
  const own = ['env', 'file'].map((key) => (value as Readonly<Record<string, unknown>>)[key]);
  return [...own.filter((name) => typeof name === 'string'), ...Object.values(value).flatMap(listReferences)];
}

function toUntested(coverage: Coverage): TestReport['untested'] {
  return [...coverage].map(([config, { routes, reached }]) => ({
    config,
    routes: routes.filter((route) => !reached.has(route)),
  }));
}

/** With --output, writes the report to the file and the text to standard output. */
async function writeTestReport(
  report: TestReport,
  write: (typeof FORMATS)[string],
  output: string | undefined,
  io: Io,
): Promise<void> {
  const shade = (tone: Tone, text: string): string => paint(io, tone, text);
  if (output === undefined) return io.stdout(write(report, shade));
  try {
    await writeFile(output, write(report));
  } catch (thrown) {
    throw usageError(`cannot write --output ${output} (${(thrown as NodeJS.ErrnoException).code ?? 'unknown reason'})`);
  }
  io.stdout(FORMATS['text']?.(report, shade) ?? '');
}
