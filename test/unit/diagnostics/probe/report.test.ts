import { execFileSync } from 'node:child_process';
import { describe, expect, test } from 'vitest';
import {
  type CheckResult,
  hasFailed,
  type ProbeReport,
  toJson,
  toText,
  toXml,
} from '../../../../src/diagnostics/probe/report.ts';

const AWKWARD = `<a href="x">&amp;'</a> ]]> \u0000\u001b\ufffe \ud800 🎉 é\nnext\tline`;

function toCheck(over: Partial<CheckResult>): CheckResult {
  return {
    id: 'valid',
    group: 'valid',
    severity: 'critical',
    sent: 's',
    expected: 'e',
    impact: 'c',
    durationMs: 12.5,
    outcome: 'passed',
    actual: '200',
    ...over,
  };
}

const report: ProbeReport = {
  target: 'http://127.0.0.1/?a=1&b="2"',
  address: '127.0.0.1',
  scheme: 'standard-webhooks',
  startedAt: 1_800_000_000_000,
  durationMs: 1234,
  requests: 7,
  checks: [
    toCheck({}),
    toCheck({ id: 'chunked', outcome: 'failed', severity: 'minor', actual: AWKWARD, impact: AWKWARD }),
    toCheck({ id: 'duplicate', group: 'once', outcome: 'see', advice: AWKWARD }),
    toCheck({ id: 'new-id', group: 'once', outcome: 'not_applicable', actual: 'none' }),
    toCheck({ id: 'retry', group: 'once', outcome: 'skipped', actual: 'not sent' }),
  ],
};

/** What Python's parser makes of it: every element with its attributes and text. */
function parseXml(text: string): { tag: string; attributes: Record<string, string>; text: string | null }[] {
  const script =
    'import sys, json, xml.etree.ElementTree as e; print(json.dumps([{"tag": x.tag, "attributes": x.attrib, "text": x.text} for x in e.fromstring(sys.stdin.buffer.read()).iter()]))';
  return JSON.parse(execFileSync('python3', ['-c', script], { input: text, encoding: 'utf8' })) as ReturnType<typeof parseXml>;
}

describe('the JUnit report', () => {
  test('is valid XML for any text', () => {
    const elements = parseXml(toXml(report));
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

  test('keeps every character that XML allows', () => {
    const elements = parseXml(toXml(report));
    const kept = ['\0', '\u001b', '\ufffe', '\ud800'].reduce((text, sign) => text.replaceAll(sign, '\ufffd'), AWKWARD);
    const failure = elements.find(({ tag }) => tag === 'failure');
    expect(failure?.attributes).toEqual({ message: `expected e, actual ${kept}`, type: 'minor' });
    expect(failure?.text).toBe(`sent: s\nexpected: e\nactual: ${kept}\nimpact: ${kept}`);
    expect(elements.find(({ tag }) => tag === 'skipped')?.attributes).toEqual({ message: `200\n${kept}` });
  });
});

describe('the text report', () => {
  test('is coloured for terminals only', () => {
    const plain: ProbeReport = {
      ...report,
      checks: report.checks.filter(({ actual }) => actual !== AWKWARD).map((check) => ({ ...check, advice: 'a' })),
    };
    expect(toText(plain, false)).not.toContain('\u001b');
    expect(toText(plain, true)).toContain('\u001b[32mpassed  \u001b[0mvalid');
  });

  test('counts every outcome', () => {
    expect(toText(report, false).trimEnd().split('\n').at(-1)).toBe(
      '1 passed, 1 failed, 1 to verify in your app, 1 not applicable, 1 skipped',
    );
  });
});

test('the JSON report has every check and the counts', () => {
  expect(JSON.parse(toJson(report))).toMatchObject({
    target: report.target,
    startedAt: '2027-01-15T08:00:00.000Z',
    durationMs: 1234,
    outcomes: { passed: 1, failed: 1, see: 1, not_applicable: 1, skipped: 1 },
    checks: report.checks.map(({ id, outcome }) => ({ id, outcome, durationMs: 13 })),
  });
});

test.each([
  ['critical', false],
  ['major', false],
  ['minor', true],
] as const)('a minor failure counts down to %s: %s', (least, isFailure) => {
  expect(hasFailed(report, least)).toBe(isFailure);
});
