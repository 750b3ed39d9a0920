/** The report of a probe, as data, as text, as JSON, and as JUnit XML. */
import { type EpochMilliseconds, type Milliseconds, toInstant } from '../../core/clock.ts';
import { type JunitCase, toJunit } from '../junit.ts';
import { type Check, type CheckFinding, type CheckSeverity, GROUPS, type Group, type Outcome, SEVERITIES } from './check.ts';

/** A check and what it found. */
export interface CheckResult extends Omit<Check, 'run' | 'isLast'>, CheckFinding {
  readonly durationMs: Milliseconds;
}

/** The result of all checks. */
export interface ProbeReport {
  /** The URL as given. */
  readonly target: string;
  /** The address that sent the first response; empty if there was none. */
  readonly address: string;
  readonly scheme: string;
  readonly startedAt: EpochMilliseconds;
  readonly durationMs: Milliseconds;
  readonly requests: number;
  readonly checks: readonly CheckResult[];
}

/** Counts the checks per outcome. */
function countOutcomes({ checks }: ProbeReport): Readonly<Record<Outcome, number>> {
  const counts: Record<Outcome, number> = { passed: 0, failed: 0, see: 0, not_applicable: 0, skipped: 0 };
  for (const { outcome } of checks) counts[outcome]++;
  return counts;
}

/** Whether a check of this severity or a worse one failed. */
export function hasFailed({ checks }: ProbeReport, least: CheckSeverity): boolean {
  return checks.some(
    ({ outcome, severity }) => outcome === 'failed' && SEVERITIES.indexOf(severity) <= SEVERITIES.indexOf(least),
  );
}

/** The report as JSON. */
export function toJson(report: ProbeReport): string {
  const { startedAt, durationMs, checks, ...rest } = report;
  const shown = {
    ...rest,
    startedAt: toInstant(startedAt),
    durationMs: Math.round(durationMs),
    outcomes: countOutcomes(report),
    checks: checks.map(({ later: _later, ...check }) => ({ ...check, durationMs: Math.round(check.durationMs) })),
  };
  return `${JSON.stringify(shown, undefined, 2)}\n`;
}

const WORDS: Readonly<Record<Outcome, string>> = {
  passed: 'passed',
  failed: 'FAILED',
  see: 'see',
  not_applicable: '-',
  skipped: 'skipped',
};
/** ECMA-48: green, red, yellow, faint. */
const COLORS: Readonly<Record<Outcome, number>> = { passed: 32, failed: 31, see: 33, not_applicable: 2, skipped: 2 };
const WORD_WIDTH = 8;

/** Lines of text; `isColored` only for terminals. */
export function toText(report: ProbeReport, isColored: boolean): string {
  const width = Math.max(...report.checks.map(({ id }) => id.length)) + 2;
  const groups = Object.keys(GROUPS) as Group[];
  const sections = groups.flatMap((group) => {
    const checks = report.checks.filter((check) => check.group === group && check.outcome !== 'skipped');
    return checks.length === 0 ? [] : [`${GROUPS[group]}\n${checks.map((check) => toLines(check, width, isColored)).join('')}`];
  });
  const skipped = Map.groupBy(
    report.checks.filter(({ outcome }) => outcome === 'skipped'),
    ({ actual }) => actual,
  );
  for (const [actual, checks] of skipped) sections.push(`${checks.length} checks skipped: ${actual}\n`);
  const place = report.address === '' ? report.target : `${report.target} (${report.address})`;
  const heading = `${place}, ${report.scheme}: ${report.checks.length} checks, ${report.requests} requests`;
  return `${heading}\n\n${sections.join('\n')}\n${toSummary(report)}\n`;
}

function toLines(
  { id, outcome, severity, actual, sent, expected, impact, advice }: CheckResult,
  width: number,
  isColored: boolean,
): string {
  const word = WORDS[outcome].padEnd(WORD_WIDTH);
  const shown = isColored ? `\u001b[${COLORS[outcome]}m${word}\u001b[0m` : word;
  const line = `  ${shown}${id.padEnd(width)}`;
  const note = advice === undefined ? '' : `${' '.repeat(WORD_WIDTH + 2)}${advice}\n`;
  if (outcome !== 'failed') return `${line}${actual}\n${note}`;
  const details = [`sent:     ${sent}`, `expected: ${expected}`, `actual:   ${actual}`, `impact:   ${impact}`];
  return `${line}${severity}\n${details.map((detail) => `${' '.repeat(WORD_WIDTH + 2)}${detail}\n`).join('')}${note}`;
}

/** The number of checks per outcome, in one line. */
export function toSummary(report: ProbeReport): string {
  const { passed, failed, see, not_applicable: none, skipped } = countOutcomes(report);
  const parts = [
    `${passed} passed`,
    `${failed} failed`,
    ...(see > 0 ? [`${see} to verify in your app`] : []),
    ...(none > 0 ? [`${none} not applicable`] : []),
    ...(skipped > 0 ? [`${skipped} skipped`] : []),
  ];
  return parts.join(', ');
}

/** The report as JUnit XML: one suite with one case per check; checks without a decision count as skipped. */
export function toXml({ target, startedAt, durationMs, checks }: ProbeReport): string {
  return toJunit({ name: `sidegate probe ${target}`, startedAt, seconds: durationMs / 1000, cases: checks.map(toCase) });
}

function toCase({ group, id, durationMs, ...check }: CheckResult): JunitCase {
  const { outcome, severity, sent, expected, actual, impact, advice } = check;
  const result = { className: `probe.${group}`, name: id, seconds: durationMs / 1000 };
  if (outcome === 'passed') return { ...result, output: actual };
  const note = advice === undefined ? '' : `\n${advice}`;
  if (outcome !== 'failed') return { ...result, skipped: `${actual}${note}` };
  const text = `sent: ${sent}\nexpected: ${expected}\nactual: ${actual}\nimpact: ${impact}${note}`;
  return { ...result, failure: { message: `expected ${expected}, actual ${actual}`, type: severity, text } };
}
