/** The report as people read it. */
import { GROUPS, type Group, type Verdict } from './check.ts';
import { type CheckResult, countVerdicts, type Report } from './report.ts';

const WORDS: Readonly<Record<Verdict, string>> = {
  holds: 'holds',
  fails: 'FAILS',
  look: 'look',
  not_applicable: '-',
  skipped: 'skipped',
};
/** Of ECMA-48: green, red, yellow, faint. */
const COLOURS: Readonly<Record<Verdict, number>> = { holds: 32, fails: 31, look: 33, not_applicable: 2, skipped: 2 };
const WORD_WIDTH = 8;

/** Lines of text; `isColoured` only for terminals. */
export function toText(report: Report, isColoured: boolean): string {
  const width = Math.max(...report.checks.map(({ id }) => id.length)) + 2;
  const groups = Object.keys(GROUPS) as Group[];
  const sections = groups.flatMap((group) => {
    const checks = report.checks.filter((check) => check.group === group);
    return checks.length === 0 ? [] : [`${GROUPS[group]}\n${checks.map((check) => toLines(check, width, isColoured)).join('')}`];
  });
  const place = report.address === '' ? report.target : `${report.target} (${report.address})`;
  const heading = `${place}, ${report.scheme}: ${report.checks.length} checks, ${report.requests} requests`;
  return `${heading}\n\n${sections.join('\n')}\n${toSummary(report)}\n`;
}

function toLines(
  { id, verdict, severity, came, sent, expected, cost, advice }: CheckResult,
  width: number,
  isColoured: boolean,
): string {
  const word = WORDS[verdict].padEnd(WORD_WIDTH);
  const shown = isColoured ? `\u001b[${COLOURS[verdict]}m${word}\u001b[0m` : word;
  const line = `  ${shown}${id.padEnd(width)}`;
  const note = advice === undefined ? '' : `${' '.repeat(WORD_WIDTH + 2)}${advice}\n`;
  if (verdict !== 'fails') return `${line}${came}\n${note}`;
  const details = [`sent:     ${sent}`, `expected: ${expected}`, `came:     ${came}`, `costs:    ${cost}`];
  return `${line}${severity}\n${details.map((detail) => `${' '.repeat(WORD_WIDTH + 2)}${detail}\n`).join('')}${note}`;
}

/** How many checks came to what, in one line. */
export function toSummary(report: Report): string {
  const { holds, fails, look, not_applicable: none, skipped } = countVerdicts(report);
  const parts = [
    `${holds} ${holds === 1 ? 'holds' : 'hold'}`,
    `${fails} ${fails === 1 ? 'fails' : 'fail'}`,
    ...(look > 0 ? [`${look} to look up in your app`] : []),
    ...(none > 0 ? [`${none} not applicable`] : []),
    ...(skipped > 0 ? [`${skipped} skipped`] : []),
  ];
  return parts.join(', ');
}
