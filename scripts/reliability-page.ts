/** The generated part of docs/reliability.md: each promise, what proves it, the last result, and how to repeat it. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { toTable } from './markdown.ts';
import {
  PROMISES,
  type Promised,
  type Proof,
  RUNS,
  type RunName,
  SUITES,
  type SuiteName,
  toPlace,
} from './reliability-promises.ts';
import { readSuiteResults, type SuiteResult, type SuiteResults, toTestKey } from './suite-results.ts';

const ROOT = join(import.meta.dirname, '..');
/** A long value would make the table unreadable. */
const MAX_FIGURES = 8;

/** The results of a long run; each run has other figures. */
export type RunResult = Readonly<Record<string, unknown>>;

/** The results of the last runs. */
export interface LastResults {
  readonly suites: SuiteResults;
  readonly runs: Readonly<Partial<Record<RunName, RunResult>>>;
}

/** Reads the files that the runs wrote. */
export function readLastResults(): LastResults {
  const runs = Object.entries(RUNS).flatMap(([name, { file }]) => {
    const path = join(ROOT, 'bench', file);
    return existsSync(path) ? [[name, JSON.parse(readFileSync(path, 'utf8')) as RunResult] as const] : [];
  });
  return { suites: readSuiteResults(), runs: Object.fromEntries(runs) };
}

export function renderPromises(results = readLastResults()): string {
  const tables = Object.entries(PROMISES).map(([title, promises]) => {
    const rows = promises.flatMap((promised) => toRows(promised, results));
    return `### ${title}\n\n${toTable(['promise', 'proved by', 'last result', 'repeat'], rows)}`;
  });
  const runs = [...Object.keys(SUITES), ...Object.keys(RUNS)].flatMap((name) => toRunRows(name as SuiteName | RunName, results));
  return [...tables, `### Last runs\n\n${toTable(['run', 'last result', 'repeat'], runs)}`].join('\n');
}

function toRows({ promise, limits, proofs }: Promised, results: LastResults): string[][] {
  const title = limits === undefined ? promise : `${promise} ([limits](${limits}))`;
  return proofs.map((proof, i) => [
    i === 0 ? title : '',
    toProofCell(proof),
    toResult(proof, results),
    `\`${toCommand(proof)}\``,
  ]);
}

function toProofCell(proof: Proof): string {
  if (proof.kind === 'run') return RUNS[proof.run].title;
  const { file } = toPlace(proof);
  const title = proof.kind === 'invariant' ? `invariant \`${proof.name}\`` : proof.title;
  return `[${title}](../${file})`;
}

function toCommand(proof: Proof): string {
  switch (proof.kind) {
    case 'run':
      return RUNS[proof.run].command;
    case 'invariant':
      return SUITES.models;
    case 'simulation':
      return SUITES.simulation;
    case 'test':
      return toTestCommand(proof);
  }
}

/** A contract runs for each implementation. */
function toTestCommand({ suite, file }: Extract<Proof, { kind: 'test' }>): string {
  const name = file.replace(/\.contract\.ts$/, '');
  return suite === 'models'
    ? SUITES.models
    : `${SUITES[suite]} ${name.includes('delivery-queue') ? 'test/contract/delivery-queue' : name}`;
}

function toResult(proof: Proof, { suites, runs }: LastResults): string {
  switch (proof.kind) {
    case 'run':
      return describeRun(runs[proof.run]);
    case 'test':
      return describeTest(suites[proof.suite], toTestKey(proof.file, proof.title));
    case 'invariant':
      return describeSuite(suites['models']);
    case 'simulation':
      return describeSuite(suites['simulation']);
  }
}

function describeTest(suite: SuiteResult | undefined, key: string): string {
  const status = suite?.tests[key];
  return suite === undefined || status === undefined ? 'not recorded' : `${status}, ${suite.date}`;
}

function describeSuite(suite: SuiteResult | undefined): string {
  return suite === undefined ? 'not recorded' : `${suite.failed === 0 ? 'passed' : 'failed'}, ${suite.date}`;
}

function describeRun(run: RunResult | undefined): string {
  if (run === undefined) return 'not run yet';
  const counts = toParts(run).flatMap(({ figures }) => (Array.isArray(figures['problems']) ? [figures['problems'].length] : []));
  const problems = counts.reduce((sum, count) => sum + count, 0);
  return `${counts.length === 0 ? '' : `${problems} problem${problems === 1 ? '' : 's'}, `}${toText(run['date'])}, see below`;
}

/** A run over several topologies has an object for each, with its problems. */
function toParts(run: RunResult): { readonly title: string; readonly figures: RunResult }[] {
  const parts = Object.entries(run).filter((entry): entry is [string, RunResult] => {
    const [, value] = entry;
    return isObject(value) && Array.isArray(value['problems']);
  });
  return parts.length === 0 ? [{ title: '', figures: run }] : parts.map(([title, figures]) => ({ title: `, ${title}`, figures }));
}

function toRunRows(name: SuiteName | RunName, { suites, runs }: LastResults): string[][] {
  if (name in RUNS) return toLongRunRows(RUNS[name as RunName], runs[name as RunName]);
  const suite = suites[name];
  const result =
    suite === undefined
      ? 'not recorded'
      : `${toText(suite.passed)} passed, ${suite.failed} failed, ${suite.skipped} skipped in ${suite.files} files; ${suite.date}, \`${suite.commit}\``;
  return [[`suite \`${name}\``, result, `\`${SUITES[name as SuiteName]}\``]];
}

function toLongRunRows({ title, command }: (typeof RUNS)[RunName], run: RunResult | undefined): string[][] {
  if (run === undefined) return [[title, 'not run yet', `\`${command}\``]];
  const about = [run['date'], run['commit']].filter((each) => each !== undefined).map(toText);
  return toParts(run).map((part) => [
    `${title}${part.title}`,
    [...toFigures(part.figures), about.join(', ')].join('; '),
    `\`${command}\``,
  ]);
}

/** The plain figures of a run, and how many problems it found. */
function toFigures({ date: _date, commit: _commit, machine: _machine, problems, ...others }: RunResult): string[] {
  const figures = Object.entries(others)
    .filter(([, value]) => ['number', 'string', 'boolean'].includes(typeof value))
    .slice(0, MAX_FIGURES)
    .map(([name, value]) => `${toWords(name)}: ${toText(value)}`);
  return [...(Array.isArray(problems) ? [`problems: ${problems.length}`] : []), ...figures];
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function toWords(name: string): string {
  return name.replaceAll('MiB', ' MiB').replace(/(?<=[a-zB])[A-Z](?=[a-z])/g, (letter) => ` ${letter.toLowerCase()}`);
}

function toText(value: unknown): string {
  return typeof value === 'number' ? value.toLocaleString('en') : String(value).replaceAll('|', '\\|');
}
