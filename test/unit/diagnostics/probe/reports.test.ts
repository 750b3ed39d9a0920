import { execFileSync } from 'node:child_process';
import { describe, expect, test } from 'vitest';
import type { CheckResult, Report } from '../../../../src/diagnostics/probe/report.ts';
import { hasFailed, toJson } from '../../../../src/diagnostics/probe/report.ts';
import { toText } from '../../../../src/diagnostics/probe/report-human.ts';
import { toJunit } from '../../../../src/diagnostics/probe/report-junit.ts';

const AWKWARD = `<a href="x">&amp;'</a> ]]> \u0000\u001b\ufffe \ud800 🎉 é\nnext\tline`;

function toCheck(over: Partial<CheckResult>): CheckResult {
  return {
    id: 'valid',
    group: 'genuine',
    severity: 'critical',
    sent: 's',
    expected: 'e',
    cost: 'c',
    durationMs: 12.5,
    verdict: 'holds',
    came: '200',
    ...over,
  };
}

const report: Report = {
  target: 'http://127.0.0.1/?a=1&b="2"',
  address: '127.0.0.1',
  scheme: 'standard-webhooks',
  startedAt: 1_800_000_000_000,
  durationMs: 1234,
  requests: 7,
  checks: [
    toCheck({}),
    toCheck({ id: 'chunked', verdict: 'fails', severity: 'minor', came: AWKWARD, cost: AWKWARD }),
    toCheck({ id: 'duplicate', group: 'once', verdict: 'look', advice: AWKWARD }),
    toCheck({ id: 'new-id', group: 'once', verdict: 'not_applicable', came: 'none' }),
    toCheck({ id: 'retry', group: 'once', verdict: 'skipped', came: 'not sent' }),
  ],
};

/** What Python's parser makes of it: every element with its attributes and text. */
function parseXml(text: string): { tag: string; attributes: Record<string, string>; text: string | null }[] {
  const script =
    'import sys, json, xml.etree.ElementTree as e; print(json.dumps([{"tag": x.tag, "attributes": x.attrib, "text": x.text} for x in e.fromstring(sys.stdin.buffer.read()).iter()]))';
  return JSON.parse(execFileSync('python3', ['-c', script], { input: text, encoding: 'utf8' })) as ReturnType<typeof parseXml>;
}

describe('the JUnit report', () => {
  test('is XML to a parser, whatever it has to say', () => {
    const elements = parseXml(toJunit(report));
    const counts = { tests: '5', failures: '1', errors: '0', skipped: '3' };
    expect(elements[0]).toMatchObject({ tag: 'testsuites', attributes: counts });
    expect(elements[1]).toMatchObject({
      tag: 'testsuite',
      attributes: { ...counts, name: `sidegate probe ${report.target}`, time: '1.234', timestamp: '2027-01-15T08:00:00.000Z' },
    });
    expect(elements.filter(({ tag }) => tag === 'testcase').map(({ attributes }) => attributes)).toEqual(
      report.checks.map(({ id, group }) => ({ classname: `probe.${group}`, name: id, time: '0.013' })),
    );
  });

  test('keeps every character that XML has', () => {
    const elements = parseXml(toJunit(report));
    const kept = ['\0', '\u001b', '\ufffe', '\ud800'].reduce((text, sign) => text.replaceAll(sign, '\ufffd'), AWKWARD);
    const failure = elements.find(({ tag }) => tag === 'failure');
    expect(failure?.attributes).toEqual({ message: `expected e, came ${kept}`, type: 'minor' });
    expect(failure?.text).toBe(`sent: s\nexpected: e\ncame: ${kept}\ncosts: ${kept}`);
    expect(elements.find(({ tag }) => tag === 'skipped')?.attributes).toEqual({ message: `200\n${kept}` });
  });
});

describe('the text report', () => {
  test('is coloured for terminals only', () => {
    const plain: Report = {
      ...report,
      checks: report.checks.filter(({ came }) => came !== AWKWARD).map((check) => ({ ...check, advice: 'a' })),
    };
    expect(toText(plain, false)).not.toContain('\u001b');
    expect(toText(plain, true)).toContain('\u001b[32mholds   \u001b[0mvalid');
  });

  test('sums up every verdict', () => {
    expect(toText(report, false).trimEnd().split('\n').at(-1)).toBe(
      '1 holds, 1 fails, 1 to look up in your app, 1 not applicable, 1 skipped',
    );
  });
});

test('the JSON report has every check and the counts', () => {
  expect(JSON.parse(toJson(report))).toMatchObject({
    target: report.target,
    startedAt: '2027-01-15T08:00:00.000Z',
    durationMs: 1234,
    verdicts: { holds: 1, fails: 1, look: 1, not_applicable: 1, skipped: 1 },
    checks: report.checks.map(({ id, verdict }) => ({ id, verdict, durationMs: 13 })),
  });
});

test.each([
  ['critical', false],
  ['major', false],
  ['minor', true],
] as const)('a minor failure counts down to %s: %s', (least, isFailure) => {
  expect(hasFailed(report, least)).toBe(isFailure);
});
