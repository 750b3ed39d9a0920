/** The results of fixture files as text, as JSON, and as JUnit XML. */
import { formatProblem, type LocatedProblem } from '../../core/problem.ts';
import type { Tone } from '../../core/text.ts';
import { type JunitCase, type JunitSuite, toJunit } from '../junit.ts';
import type { TestFailure, TestResult } from './run-tests.ts';

/** The results of one file. */
export interface FileReport {
  readonly file: string;
  /** The tested config; undefined if the fixture file is invalid. */
  readonly config: string | undefined;
  /** Why the tests could not be run; empty if they were. */
  readonly problems: readonly LocatedProblem[];
  readonly results: readonly TestResult[];
}

/** The results of all files. */
export interface TestReport {
  readonly files: readonly FileReport[];
  /** By config, the routes that no test has reached; undefined if only selected tests were run. */
  readonly untested: readonly { readonly config: string; readonly routes: readonly string[] }[] | undefined;
}

/** The report formats. */
export const FORMATS: Readonly<Record<string, (report: TestReport, shade?: Paint) => string>> = {
  text: toText,
  json: toJson,
  junit: toXml,
};

/** Counts the tests per outcome. */
export function countResults({ files }: TestReport): { passed: number; failed: number; unusable: number } {
  const results = files.flatMap((file) => file.results);
  const unusable = results.filter(({ failure }) => failure?.problem !== undefined).length;
  const failed = results.filter(({ failure }) => failure !== undefined).length - unusable;
  return { passed: results.length - failed - unusable, failed, unusable };
}

/** Colors words of a text report; by default, it does not. */
type Paint = (tone: Tone, text: string) => string;
const PLAIN: Paint = (_tone, text) => text;

function toText(report: TestReport, shade: Paint = PLAIN): string {
  const { passed, failed, unusable } = countResults(report);
  const unread = report.files.filter(({ problems }) => problems.length > 0).length;
  const counts = [`${passed} passed`, `${failed} failed`];
  if (unusable > 0) counts.push(`${unusable} unusable`);
  if (unread > 0) counts.push(`${unread} ${unread === 1 ? 'file' : 'files'} not run`);
  const end = failed + unusable + unread === 0 ? shade('good', 'SUCCESS') : shade('bad', 'FAILED');
  const untested = (report.untested ?? []).filter(({ routes }) => routes.length > 0);
  const lines = [
    ...report.files.flatMap((file) => toFileLines(file, shade)),
    `${end}: ${counts.join(', ')}`,
    ...untested.map(({ config, routes }) => `routes without a test in ${config}: ${routes.join(', ')}`),
  ];
  return `${lines.join('\n')}\n`;
}

function toFileLines({ file, config, problems, results }: FileReport, shade: Paint): string[] {
  return [
    config === undefined ? file : `${file} (${config})`,
    ...problems.map((problem) => indent(formatProblem(problem), 2)),
    ...results.flatMap(({ name, failure }) =>
      failure === undefined
        ? [`  ${shade('good', 'ok      ')}  ${name}`]
        : [
            `  ${shade('bad', failure.problem === undefined ? 'FAILED  ' : 'UNUSABLE')}  ${name}`,
            ...toFailureLines(file, failure).map((line) => `            ${line}`),
          ],
    ),
  ];
}

/** The position, the expected and the actual values. */
function toFailureLines(file: string, { position, step, stepName, time, mismatches, decision, problem }: TestFailure): string[] {
  const lines = [position === undefined ? file : `${file}:${position.line}`];
  const which = [step === undefined ? '' : `step ${step}`, stepName ?? '', time === undefined ? '' : `time ${time}`];
  const where = which.filter((word) => word !== '').join(', ');
  if (where !== '') lines.push(`in ${where}`);
  if (problem !== undefined) lines.push(problem.problem, ...(problem.hint === undefined ? [] : [`hint: ${problem.hint}`]));
  for (const { field, expected, actual } of mismatches) lines.push(`${field}:`, `  expected ${expected}`, `  actual   ${actual}`);
  if (decision !== undefined) lines.push(`decision: ${decision}`);
  return lines;
}

function indent(text: string, by: number): string {
  return text.replace(/^/gm, ' '.repeat(by));
}

function toJson(report: TestReport): string {
  const files = report.files.map(({ results, ...rest }) => ({
    ...rest,
    tests: results.map(({ name, position, seconds, failure }) => ({
      name,
      line: position?.line,
      outcome: toOutcome(failure),
      seconds: Number(seconds.toFixed(3)),
      ...(failure === undefined ? undefined : { failure: { ...failure, position: undefined, line: failure.position?.line } }),
    })),
  }));
  return `${JSON.stringify({ ...countResults(report), files, untested: report.untested }, undefined, 2)}\n`;
}

function toOutcome(failure: TestFailure | undefined): string {
  if (failure === undefined) return 'passed';
  return failure.problem === undefined ? 'failed' : 'unusable';
}

function toXml({ files }: TestReport): string {
  return toJunit(...files.map(toSuite));
}

/** A file that cannot be run is one failed case: an empty suite would look successful. */
function toSuite({ file, problems, results }: FileReport): JunitSuite {
  if (problems.length === 0) return { name: file, cases: results.map((result) => toCase(file, result)) };
  const text = problems.map(formatProblem).join('\n');
  return { name: file, cases: [{ name: 'can be run', failure: { message: problems[0]?.message ?? '', text } }] };
}

function toCase(file: string, { name, seconds, failure }: TestResult): JunitCase {
  if (failure === undefined) return { name, seconds };
  const [first] = failure.mismatches;
  const message =
    failure.problem?.problem ?? (first === undefined ? '' : `${first.field}: expected ${first.expected}, actual ${first.actual}`);
  return { name, seconds, failure: { message, text: toFailureLines(file, failure).join('\n') } };
}
