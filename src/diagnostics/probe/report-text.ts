/** The report as text. */
import { GROUPS, type Group, type Outcome } from './check.ts';
import { type CheckResult, countOutcomes, type ProbeReport } from './report.ts';

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
