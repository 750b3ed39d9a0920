/** The report as JUnit XML, which CI servers show. */
import { toInstant } from '../../core/clock.ts';
import { escapeXml, toXmlAttributes } from '../../core/xml.ts';
import { type CheckResult, countVerdicts, type Report } from './report.ts';

/** One suite, one case a check; what could not be judged counts as skipped. */
export function toJunit(report: Report): string {
  const { fails, look, not_applicable: none, skipped } = countVerdicts(report);
  const counts = { tests: report.checks.length, failures: fails, errors: 0, skipped: look + none + skipped };
  const time = toSeconds(report.durationMs);
  const suite = { name: `sidegate probe ${report.target}`, ...counts, time, timestamp: toInstant(report.startedAt) };
  const cases = report.checks.map(toCase).join('');
  return `<?xml version="1.0" encoding="UTF-8"?>\n<testsuites${toXmlAttributes({ ...counts, time })}>\n  <testsuite${toXmlAttributes(suite)}>\n${cases}  </testsuite>\n</testsuites>\n`;
}

function toCase(check: CheckResult): string {
  const head = toXmlAttributes({ classname: `probe.${check.group}`, name: check.id, time: toSeconds(check.durationMs) });
  return `    <testcase${head}>${toOutcome(check)}</testcase>\n`;
}

function toOutcome({ verdict, severity, sent, expected, came, cost, advice }: CheckResult): string {
  if (verdict === 'holds') return `<system-out>${escapeXml(came)}</system-out>`;
  const note = advice === undefined ? '' : `\n${advice}`;
  if (verdict !== 'fails') return `<skipped${toXmlAttributes({ message: `${came}${note}` })}/>`;
  const text = `sent: ${sent}\nexpected: ${expected}\ncame: ${came}\ncosts: ${cost}${note}`;
  return `<failure${toXmlAttributes({ message: `expected ${expected}, came ${came}`, type: severity })}>${escapeXml(text)}</failure>`;
}

function toSeconds(durationMs: number): string {
  return (durationMs / 1000).toFixed(3);
}
