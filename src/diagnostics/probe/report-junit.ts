/** The report as JUnit XML for CI servers. */
import { toInstant } from '../../core/clock.ts';
import { escapeXml, toXmlAttributes } from '../../core/xml.ts';
import { type CheckResult, countOutcomes, type ProbeReport } from './report.ts';

/** One suite with one case per check; checks without a decision count as skipped. */
export function toJunit(report: ProbeReport): string {
  const { failed, see, not_applicable: none, skipped } = countOutcomes(report);
  const counts = { tests: report.checks.length, failures: failed, errors: 0, skipped: see + none + skipped };
  const time = toSeconds(report.durationMs);
  const suite = { name: `sidegate probe ${report.target}`, ...counts, time, timestamp: toInstant(report.startedAt) };
  const cases = report.checks.map(toCase).join('');
  return `<?xml version="1.0" encoding="UTF-8"?>\n<testsuites${toXmlAttributes({ ...counts, time })}>\n  <testsuite${toXmlAttributes(suite)}>\n${cases}  </testsuite>\n</testsuites>\n`;
}

function toCase(check: CheckResult): string {
  const head = toXmlAttributes({ classname: `probe.${check.group}`, name: check.id, time: toSeconds(check.durationMs) });
  return `    <testcase${head}>${toResult(check)}</testcase>\n`;
}

function toResult({ outcome, severity, sent, expected, actual, impact, advice }: CheckResult): string {
  if (outcome === 'passed') return `<system-out>${escapeXml(actual)}</system-out>`;
  const note = advice === undefined ? '' : `\n${advice}`;
  if (outcome !== 'failed') return `<skipped${toXmlAttributes({ message: `${actual}${note}` })}/>`;
  const text = `sent: ${sent}\nexpected: ${expected}\nactual: ${actual}\nimpact: ${impact}${note}`;
  return `<failure${toXmlAttributes({ message: `expected ${expected}, actual ${actual}`, type: severity })}>${escapeXml(text)}</failure>`;
}

function toSeconds(durationMs: number): string {
  return (durationMs / 1000).toFixed(3);
}
