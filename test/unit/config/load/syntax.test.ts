import { describe, expect, test } from 'vitest';
import { createExcerpts } from '../../../../src/cli/problems.ts';
import { parseConfig } from '../../../../src/config/load/load.ts';
import { formatProblem, formatShownProblem } from '../../../../src/core/problem.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const clock = new FakeClock();
const ROUTE = 'routes:\n  - name: a\n';

function check(text: string): string[] {
  return parseConfig('gate.yaml', text, clock).problems.map(formatProblem);
}

describe('one mistake is one problem, where it begins', () => {
  test.each([
    [
      'a key with too little indentation',
      `${ROUTE}    match: { path: /x }\n   upstream: x\n    webhook: {}\n`,
      '4:4: error this line is not indented',
    ],
    ['a key with too much indentation', `${ROUTE}     match: { path: /x }\n`, '3:6: error this line is not indented'],
    [
      'a key between two indentations',
      `${ROUTE}    webhook:\n      scheme: github\n     keys: []\n`,
      '5:6: error this line is not indented',
    ],
    [
      'an object indented below a value',
      'listen:\n  address: :8080\n   tls:\n     certFile: x\n',
      '3:4: error this line is not indented',
    ],
    [
      'a missing brace',
      `${ROUTE}    match: { path: /x\n    upstream: http://127.0.0.1:3000\n`,
      '3:12: error this { is never closed',
    ],
    [
      'a missing bracket',
      `${ROUTE}    match: { path: /x, methods: [POST }\n    upstream: x\n`,
      '3:33: error this [ is never closed',
    ],
    ['a missing brace at the end', `${ROUTE}    match: { path: /x`, '3:12: error this { is never closed'],
    ['a brace too many', `${ROUTE}    match: { path: /x }}\n    upstream: x\n`, '3:24: error this } closes nothing'],
    [
      'a quotation mark that is never closed',
      'routes:\n  - name: "a\n    match: {}\n',
      '2:11: error this quotation mark is never closed',
    ],
    ['a second colon', 'routes:\n  - name: a: b\n', '2:11: error this value has a colon and a space in it'],
    ['no colon', `${ROUTE}    upstream http://x\n    allow: anyone\n`, '3:5: error this line has no colon after its key'],
    ['a value that starts with @', 'routes:\n  - name: @x\n', '2:11: error a value cannot start with @'],
    ['a variable', `upstream: \${APP}\n`, `1:11: error variables such as \${APP} are not replaced`],
    [
      'a variable in braces',
      `${ROUTE}    basic: { realm: \${REALM} }\n`,
      `3:22: error variables such as \${REALM} are not replaced`,
    ],
    [
      'a variable with a default, in a text that is accepted',
      `${ROUTE}    basic: { realm: "\${REALM:-x}" }\n`,
      `3:21: error variables such as \${REALM}`,
    ],
  ])('%s', (_title, text, expected) => {
    const problems = check(text);
    expect(problems).toHaveLength(1);
    expect(problems[0]).toContain(`gate.yaml:${expected}`);
  });

  test.each([
    ['in an object in braces', 'match: { path:/x }', 'write a space after the colon: path: /x'],
    ['in a block', 'match:\n      path:/x', 'write a space after the colon: path: /x'],
    [
      'in the source of a secret',
      'match: { path: /x }\n    webhook: { keys: [{ name: k, secret: { env:FOO } }] }',
      'write a space after the colon: env: FOO',
    ],
  ])('a missing space after a colon, %s', (_title, text, hint) => {
    const found = check(`${ROUTE}    upstream: http://127.0.0.1:3000\n    ${text}\n`);
    expect(found.filter((problem) => problem.includes(hint))).toHaveLength(1);
    expect(found.filter((problem) => problem.includes('missing: expected'))).toEqual([]);
  });

  test('an alias that no anchor has is probably a pattern', () => {
    const [problem] = check('proxy:\n  allow: [*.example.com]\n');
    expect(problem).toContain('gate.yaml:2:11: error a value cannot start with *\n  hint: put the value in quotation marks');
  });

  test('brackets that are nested too deeply', () => {
    const problems = check(`routes: ${'['.repeat(20_000)}\n`);
    expect(problems).toHaveLength(1);
    expect(problems[0]).toContain('values are nested too deeply here');
  });

  test('independent duplicates are all reported', () => {
    expect(check('log: {}\nlog: {}\njournal: {}\njournal: {}\n')).toHaveLength(2);
  });
});

describe('the line that is shown with a problem', () => {
  const show = (text: string): string => {
    const [problem] = parseConfig('gate.yaml', text, clock).problems;
    return problem === undefined ? '' : formatShownProblem(problem, createExcerpts(text)(problem));
  };

  test('has a mark below the column', () => {
    const lines = show(`upstream: \${APP}\n`).split('\n');
    expect(lines.slice(1, 3)).toEqual([`  1 | upstream: \${APP}`, '    |           ^']);
  });

  test.each([
    'secret: hunter2hunter2',
    'secret: "hunter2hunter2"',
    'keys: [{ name: a, secret: hunter2hunter2 }]',
    'store: { redis: { url: "redis://u:hunter2hunter2@h/0", foo: 1 } }',
    'provider: { encryption: { keys: ["aHVudGVyMmh1bnRlcjJodW50ZXIyaHVudGVyMg=="] }, foo: 1 }',
    'routes: [whsec_hunter2hunter2]',
    'admin: { token: hunter2hunter2 }',
    'basic: { password: hunter2hunter2',
    'authorization: Bearer hunter2hunter2',
    'password: "ab,hunter2"',
    'password: ab: hunter2',
    'store: { redis: { password: "a{b} hunter2" } }',
    "'client-secret' : hunter2",
  ])('never shows what may be a secret: %s', (text) => {
    const shown = show(`${text}\n`);
    expect(shown).toContain('1 | ');
    expect(shown).not.toMatch(/hunter2|aHVudGVy/);
  });

  test('has the keys, and values that the schema knows not to be secrets', () => {
    const route =
      'routes:\n  - { name: a, match: { path: /x }, timeout: 5, webhook: { keys: [{ name: k, secret: { value: b } }] } } # c\n';
    expect(show(route)).toContain(
      '  2 |   - { name: a, match: { path: /x }, timeout: 5, webhook: { keys: [{ name: k, secret: { value: … } }] } } …\n',
    );
    expect(show(`${ROUTE}    match: { path: /x, retries: 5\n`)).toContain('  3 |     match: { path: …, …: …\n');
  });

  test('does not show a secret below its key', () => {
    expect(show('secret:\n  hunter2: a: b\n')).not.toContain('hunter2: a');
    expect(show('routes:\n  - name: a\n    webhook: { keys: [{ name: k, secret:\n      hunter2 }] }\n')).not.toContain('hunter2');
  });

  test('has no characters that control the terminal, and no lines of its own', () => {
    const text = 'routes:\r\n  - "\\e]0;a\\a\\nb.yaml: ok": \u009b2J\u202e\r\n';
    const problems = parseConfig('gate.yaml', text, clock).problems;
    const shown = problems.map((problem) => formatShownProblem(problem, createExcerpts(text)(problem)));
    expect(shown.join('\n')).toContain('unknown key "\\u001b]0;a\\u0007\\u000ab.yaml:…"');
    expect(shown.join('\n').replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Cf}]/u);
    for (const each of shown) for (const line of each.split('\n')) expect(line).toMatch(/^(?:gate\.yaml:| {2})/);
  });

  test('is bounded', () => {
    const shown = show(`a: "${'x'.repeat(5_000)}"\n`);
    expect(Math.max(...shown.split('\n').map((line) => line.length))).toBeLessThan(1_000);
  });
});

test('duplicate keys are found in linear time, each at its position', () => {
  const keys = Array.from({ length: 26_000 }, (_, index) => `k${index}`);
  const text = `listen: { a: 1, "a": 2 }\n${[...keys, 'k0', '? k1\n', '&x k25999'].map((key) => `${key}: 1`).join('\n')}\n`;
  expect(check(text).map((problem) => problem.split('\n')[0])).toEqual(
    ['1:17', '26002:1', '26003:3', '26005:4'].map((at) => `gate.yaml:${at}: error this key is already in use in the same object`),
  );
});

test('each of many problems in one object is located in constant time', () => {
  const problems = check(`${Array.from({ length: 20_000 }, (_, index) => `k${index}: 1\n`).join('')}`);
  expect(problems).toHaveLength(20_000);
  expect(problems.at(-1)).toContain('gate.yaml:20000:1: error k19999: unknown key');
});
