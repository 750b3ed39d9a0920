/** The report as JUnit XML, which CI servers show. */
import { toInstant } from '../core/clock.ts';
import { type CheckResult, countVerdicts, type Report } from './report.ts';

/** What XML 1.0 §2.2 has no place for, not even escaped. */
const NO_CHARACTER = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu;
const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  '\n': '&#10;',
  '\r': '&#13;',
  '\t': '&#9;',
};

/** One suite, one case a check; what could not be judged counts as skipped. */
export function toJunit(report: Report): string {
  const { fails, look, not_applicable: none, skipped } = countVerdicts(report);
  const counts = { tests: report.checks.length, failures: fails, errors: 0, skipped: look + none + skipped };
  const time = toSeconds(report.durationMs);
  const suite = { name: `sidegate probe ${report.target}`, ...counts, time, timestamp: toInstant(report.startedAt) };
  const cases = report.checks.map(toCase).join('');
  return `<?xml version="1.0" encoding="UTF-8"?>\n<testsuites${toAttributes({ ...counts, time })}>\n  <testsuite${toAttributes(suite)}>\n${cases}  </testsuite>\n</testsuites>\n`;
}

function toCase(check: CheckResult): string {
  const head = toAttributes({ classname: `probe.${check.group}`, name: check.id, time: toSeconds(check.durationMs) });
  return `    <testcase${head}>${toOutcome(check)}</testcase>\n`;
}

function toOutcome({ verdict, severity, sent, expected, came, cost, advice }: CheckResult): string {
  if (verdict === 'holds') return `<system-out>${escapeXml(came)}</system-out>`;
  const note = advice === undefined ? '' : `\n${advice}`;
  if (verdict !== 'fails') return `<skipped${toAttributes({ message: `${came}${note}` })}/>`;
  const text = `sent: ${sent}\nexpected: ${expected}\ncame: ${came}\ncosts: ${cost}${note}`;
  return `<failure${toAttributes({ message: `expected ${expected}, came ${came}`, type: severity })}>${escapeXml(text)}</failure>`;
}

function toAttributes(values: Readonly<Record<string, string | number>>): string {
  return Object.entries(values)
    .map(([name, value]) => ` ${name}="${escapeXml(String(value))}"`)
    .join('');
}

/** Line ends too: in attributes a parser would make spaces of them (XML 1.0 §3.3.3). */
function escapeXml(text: string): string {
  return text.replace(NO_CHARACTER, '\ufffd').replace(/[&<>"\n\r\t]/g, (sign) => ESCAPES[sign] ?? sign);
}

function toSeconds(durationMs: number): string {
  return (durationMs / 1000).toFixed(3);
}
