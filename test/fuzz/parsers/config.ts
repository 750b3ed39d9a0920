/** Config files. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseConfig } from '../../../src/config/load/load.ts';
import { toJsonSchema } from '../../../src/config/schema/json-schema.ts';
import { formatProblem, type LocatedProblem } from '../../../src/core/problem.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import type { Target } from '../guided.ts';

const GOLDEN = join(import.meta.dirname, '..', '..', 'golden', 'config');
const clock = new FakeClock();
const MAX_MESSAGE = 2_000;
/** Signs of a text that no one wrote for a reader: a stack trace, or a value that was not meant to be shown. */
const UNREADABLE = /\n\s+at |\bundefined\b|\[object |\bNaN\b|Cannot read propert|is not a function|ZodError/;

/** The names of all keys, at any depth. */
function findKeys(schema: unknown): string[] {
  if (typeof schema !== 'object' || schema === null) return [];
  const own = 'properties' in schema ? Object.keys(Object(schema.properties)) : [];
  return [...own, ...Object.values(schema).flatMap(findKeys)];
}

function checkProblem(problem: LocatedProblem, text: string): void {
  const { message, line, column, hint = '', path } = problem;
  const shown = formatProblem(problem);
  if (message === '') throw new Error(`a problem without a message, at ${path}`);
  // A word of the file may be shown, whatever it is.
  const unreadable = UNREADABLE.exec(`${message} ${hint}`);
  if (unreadable !== null && !text.includes(unreadable[0])) throw new Error(`unreadable: ${shown}`);
  if (shown.length > MAX_MESSAGE + text.length) throw new Error(`${shown.length} characters for one problem`);
  const lines = text.split('\n').length;
  if (line !== undefined && (line < 1 || line > lines || (column ?? 0) < 1))
    throw new Error(`a position outside the file: ${shown}`);
}

/** Whatever the text is, the result is a config, or problems that a person can read, at places in the file. */
export const CONFIG: Target = {
  name: 'config',
  seeds: readdirSync(GOLDEN)
    .filter((name) => name.endsWith('.yaml'))
    .map((name) => readFileSync(join(GOLDEN, name))),
  pieces: [
    ...new Set(findKeys(toJsonSchema()).map((key) => `${key}: `)),
    ...[
      '\n',
      '\n  ',
      '\n    - ',
      '- ',
      '[',
      ']',
      '{',
      '}',
      ',',
      '&a ',
      '*a',
      '<<: *a',
      '|\n',
      '>-\n',
      '"',
      "'",
      '#',
      '? ',
      ': ',
      '!!str ',
    ],
    ...[
      '!!set ',
      '!!binary x',
      '---\n',
      '...\n',
      '%YAML 1.2\n',
      '~',
      'null',
      'true',
      'off',
      '.inf',
      '.nan',
      '0x1F',
      '1_000',
      '5m',
      '-1s',
    ],
    ...['9999999999d', '64Mi', '1e400', '2026-12-31', '__proto__: ', 'constructor: ', 'toString', '\t', '\ufeff', '\u00e9', '\0'],
  ].map((piece) => Buffer.from(piece).toString('latin1')),
  maxBytes: 8_192,
  check(input) {
    const text = new TextDecoder().decode(input);
    for (const options of [{}, { maxProblems: 5 }]) {
      const { config, problems } = parseConfig('gate.yaml', text, clock, options);
      for (const problem of problems) checkProblem(problem, text);
      const hasError = problems.some(({ severity }) => severity === 'error');
      if (hasError === (config !== undefined))
        throw new Error(`${problems.length} problems, but ${config === undefined ? 'no' : 'a'} config`);
      if (config !== undefined && !(Object.isFrozen(config) && Object.isFrozen(config.routes))) throw new Error('not frozen');
    }
  },
};
