/** Writes JUnit XML for CI servers. */
import { escapeXml, toXmlAttributes } from '../../core/xml.ts';

/** One case of a suite. */
export interface JunitCase {
  readonly name: string;
  readonly seconds?: number;
  readonly failure?: { readonly message: string; readonly text: string };
  /** Why it was skipped. */
  readonly skipped?: string;
}

/** Cases that belong together. */
export interface JunitSuite {
  readonly name: string;
  readonly cases: readonly JunitCase[];
}

/** The suites as one document. */
export function toJunit(...suites: readonly JunitSuite[]): string {
  const totals = toCounts(suites.flatMap(({ cases }) => cases));
  const body = suites.map(toSuite).join('');
  return `<?xml version="1.0" encoding="UTF-8"?>\n<testsuites${toXmlAttributes(totals)}>\n${body}</testsuites>\n`;
}

function toSuite({ name, cases }: JunitSuite): string {
  const body = cases.map((each) => toCase(name, each)).join('');
  return `  <testsuite${toXmlAttributes({ name, ...toCounts(cases) })}>\n${body}  </testsuite>\n`;
}

function toCounts(cases: readonly JunitCase[]): Readonly<Record<string, string>> {
  const seconds = cases.reduce((sum, each) => sum + (each.seconds ?? 0), 0);
  return {
    tests: String(cases.length),
    failures: String(cases.filter(({ failure }) => failure !== undefined).length),
    errors: '0',
    skipped: String(cases.filter(({ skipped }) => skipped !== undefined).length),
    time: seconds.toFixed(3),
  };
}

function toCase(suite: string, { name, seconds, failure, skipped }: JunitCase): string {
  const time = seconds === undefined ? undefined : { time: seconds.toFixed(3) };
  const head = `    <testcase${toXmlAttributes({ classname: suite, name, ...time })}`;
  const inner: string[] = [];
  if (failure !== undefined)
    inner.push(`<failure${toXmlAttributes({ message: failure.message })}>${escapeXml(failure.text)}</failure>`);
  if (skipped !== undefined) inner.push(`<skipped${toXmlAttributes({ message: skipped })}/>`);
  return inner.length === 0 ? `${head}/>\n` : `${head}>${inner.join('')}</testcase>\n`;
}
