/** Writes JUnit XML, which CI servers show. */

/** One case of a suite. */
export interface JunitCase {
  readonly name: string;
  readonly seconds?: number;
  readonly failure?: { readonly message: string; readonly text: string };
  /** Why it was not run. */
  readonly skipped?: string;
}

/** Cases that belong together. */
export interface JunitSuite {
  readonly name: string;
  readonly cases: readonly JunitCase[];
}

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

/** The suites as one document. */
export function toJunit(...suites: readonly JunitSuite[]): string {
  const totals = toCounts(suites.flatMap(({ cases }) => cases));
  const body = suites.map(toSuite).join('');
  return `<?xml version="1.0" encoding="UTF-8"?>\n<testsuites${toAttributes(totals)}>\n${body}</testsuites>\n`;
}

function toSuite({ name, cases }: JunitSuite): string {
  const body = cases.map((each) => toCase(name, each)).join('');
  return `  <testsuite${toAttributes({ name, ...toCounts(cases) })}>\n${body}  </testsuite>\n`;
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
  const head = `    <testcase${toAttributes({ classname: suite, name, ...time })}`;
  const inner: string[] = [];
  if (failure !== undefined)
    inner.push(`<failure${toAttributes({ message: failure.message })}>${escapeXml(failure.text)}</failure>`);
  if (skipped !== undefined) inner.push(`<skipped${toAttributes({ message: skipped })}/>`);
  return inner.length === 0 ? `${head}/>\n` : `${head}>${inner.join('')}</testcase>\n`;
}

function toAttributes(values: Readonly<Record<string, string>>): string {
  return Object.entries(values)
    .map(([name, value]) => ` ${name}="${escapeXml(value)}"`)
    .join('');
}

/** Line ends too: in attributes a parser would make spaces of them (XML 1.0 §3.3.3). */
function escapeXml(text: string): string {
  return text.replace(NO_CHARACTER, '\ufffd').replace(/[&<>"\n\r\t]/g, (sign) => ESCAPES[sign] ?? sign);
}
