/** The words of a command line, compared with those that bash itself finds. */
import { spawnSync } from 'node:child_process';
import { describe, expect, test } from 'vitest';
import { toWords } from '../../../../src/diagnostics/captured/curl.ts';

const read = (line: string): string[] => toWords(Buffer.from(line).toString('latin1'));

/** Bytes as latin1, like `toWords`. */
function runBash(line: string): string[] {
  const { stdout, stderr } = spawnSync('bash', ['--norc', '-c', `words() { printf '%s\\0' "$@"; }\nwords ${line}`], {
    env: { PATH: process.env['PATH'], LC_ALL: 'C.UTF-8' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  expect(stderr.toString()).toBe('');
  return stdout.toString('latin1').split('\0').slice(0, -1);
}

describe('finds the words that bash finds', () => {
  test.each([
    // Quotes and escapes.
    ...[`a b`, `'a b' "c d"`, `a\\ b`, `a\\'b`, `''`, `""`, `a''b`, `a"b"'c'`, `"'"`, `'"'`, `a\\`, `\\n`, `'\\'`],
    ...[`"a\\"b"`, '"a\\`b"', `"a\\$b"`, `"a\\db"`, `"\\\\"`, `"a\\!b"`, `'{"a": "it'\\''s"}'`, `"{\\"a\\":1}"`],
    ...[
      `$'a\\nb'`,
      `$'it\\'s'`,
      `$'\\x41\\101\\u00e9'`,
      `$'\\U1F600'`,
      `$'\\xff\\xfe'`,
      `$'\\q\\?\\"\\e'`,
      `$'\\ca\\c['`,
      `x$'y'z`,
    ],
    ...[`$"x"`, `a$"x y"`],
    // Lines and comments.
    ...[
      `a \\\n b`,
      `a\\\nb`,
      `'a\nb'`,
      `"a\\\nb"`,
      `'a\\\nb'`,
      `a\tb`,
      `a # b`,
      `a#b #c`,
      `http://h/#x`,
      `'#' a\\ #b`,
      `"a" "#"`,
    ],
    // Characters that mean something elsewhere in a shell, or in a byte of which they are a part.
    ...[`http://h/?a=b`, `http://h/*`, `{a}`, `[a]`, `a~`, `a=b`, `!`, `a!b`, `%20`, `a^b`],
    ...['é à "é"', 'a\u00a0b', 'a\u0085b', 'a\u2028b', '\ufeffa'],
    // A dollar that nothing follows is a dollar.
    ...[`$`, `a$`, `"$"`, `"a$ b"`, `"$'"`, `"a$'b'"`, `$.`, `"$%"`, `"5$"`],
  ])('in %j', (line) => {
    expect(read(line)).toEqual(runBash(line));
  });

  test('even if a browser writes one character as two escapes, which bash does not join', () => {
    expect(read(`$'\\ud83d\\ude00'`)).toEqual([Buffer.from('😀').toString('latin1')]);
  });
});

describe('rejects words that only a shell can expand:', () => {
  const parts = ['$NAME', '$_', `\${NAME}`, '$(date)', '`date`', '$1', '$@', '$*', '$#', '$?', '$$', '$!', '$-', '$[1+1]'];

  test.each(parts)('%s', (part) => {
    for (const line of [part, `-d x${part}`, `-H "Authorization: Bearer ${part}"`, `"\\\\${part}"`])
      expect(() => read(line)).toThrow(`the command line has ${part[0]}…, which only a shell can look up: put the value there`);
  });

  test.each(parts)('%s, but not if it is quoted or in a comment', (part) => {
    expect(read(`'${part}' # ${part}`)).toEqual([part]);
    expect(read(`"\\${part.replaceAll('`date`', '`date\\`')}"`)).toEqual([part]);
  });
});

test('stops at the end of the command', () => {
  expect(read("curl http://h/ -d 'a\nb'\ncurl http://other/")).toEqual(['curl', 'http://h/', '-d', 'a\nb']);
  expect(read('curl http://h/ | jq .')).toEqual(['curl', 'http://h/']);
  expect(read('# first\ncurl http://h/ # then\ncurl http://other/')).toEqual(['curl', 'http://h/']);
});
