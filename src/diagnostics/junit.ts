/** Writes JUnit XML for CI servers. */
import { type EpochMilliseconds, toInstant } from '../core/clock.ts';

/** One case of a suite; without a failure and a reason to skip it, it has passed. */
export interface JunitCase {
  readonly name: string;
  /** Default: the name of the suite. */
  readonly className?: string;
  readonly seconds?: number;
  readonly failure?: { readonly message: string; readonly type?: string; readonly text: string };
  /** Why it was skipped. */
  readonly skipped?: string;
  readonly output?: string;
}

/** Cases that belong together. */
export interface JunitSuite {
  readonly name: string;
  readonly startedAt?: EpochMilliseconds;
  /** Default: the sum of the cases. */
  readonly seconds?: number;
  readonly cases: readonly JunitCase[];
}

/** The suites as one document. */
export function toJunit(...suites: readonly JunitSuite[]): string {
  const counts = toCounts(suites.flatMap(({ cases }) => cases));
  const time = suites.reduce((sum, suite) => sum + toSeconds(suite), 0).toFixed(3);
  const body = suites.map(toSuite).join('');
  return `<?xml version="1.0" encoding="UTF-8"?>\n<testsuites${toXmlAttributes({ ...counts, time })}>\n${body}</testsuites>\n`;
}

function toSuite(suite: JunitSuite): string {
  const { name, startedAt, cases } = suite;
  const timestamp = startedAt === undefined ? undefined : { timestamp: toInstant(startedAt) };
  const head = toXmlAttributes({ name, ...toCounts(cases), time: toSeconds(suite).toFixed(3), ...timestamp });
  return `  <testsuite${head}>\n${cases.map((each) => toCase(name, each)).join('')}  </testsuite>\n`;
}

function toSeconds({ seconds, cases }: JunitSuite): number {
  return seconds ?? cases.reduce((sum, each) => sum + (each.seconds ?? 0), 0);
}

function toCounts(cases: readonly JunitCase[]): Readonly<Record<string, number>> {
  return {
    tests: cases.length,
    failures: cases.filter(({ failure }) => failure !== undefined).length,
    errors: 0,
    skipped: cases.filter(({ skipped }) => skipped !== undefined).length,
  };
}

function toCase(suite: string, { name, className, seconds, failure, skipped, output }: JunitCase): string {
  const time = seconds === undefined ? undefined : { time: seconds.toFixed(3) };
  const head = `    <testcase${toXmlAttributes({ classname: className ?? suite, name, ...time })}`;
  const inner: string[] = [];
  if (failure !== undefined) {
    const { text, ...attributes } = failure;
    inner.push(`<failure${toXmlAttributes(attributes)}>${escapeXml(text)}</failure>`);
  }
  if (skipped !== undefined) inner.push(`<skipped${toXmlAttributes({ message: skipped })}/>`);
  if (output !== undefined) inner.push(`<system-out>${escapeXml(output)}</system-out>`);
  return inner.length === 0 ? `${head}/>\n` : `${head}>${inner.join('')}</testcase>\n`;
}

/** Characters that XML 1.0 §2.2 does not allow, not even escaped. */
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

/** Formats attributes, each with a leading space. */
function toXmlAttributes(values: Readonly<Record<string, string | number>>): string {
  return Object.entries(values)
    .map(([name, value]) => ` ${name}="${escapeXml(String(value))}"`)
    .join('');
}

/**
 * Escapes text for element content and attributes. Line ends are escaped, too: in attributes a parser would convert them to
 * spaces (XML 1.0 §3.3.3).
 */
function escapeXml(text: string): string {
  return text.replace(NO_CHARACTER, '\ufffd').replace(/[&<>"\n\r\t]/g, (sign) => ESCAPES[sign] ?? sign);
}
