import { Readable } from 'node:stream';
import type { Command } from 'commander';
import { expect, test } from 'vitest';
import { createProgram, EXAMPLES, findCommand } from '../../../src/cli/program.ts';

const silent = { env: {}, stdout: () => undefined, stderr: () => undefined, stdin: Readable.from([]) as NodeJS.ReadableStream };
const program = createProgram(silent, () => undefined);

function toRunnable(command: Command): string[] {
  const own = command.name() === 'sidegate' ? '' : command.name();
  if (command.commands.length === 0) return [own];
  return command.commands.flatMap((each) => toRunnable(each).map((words) => `${own} ${words}`.trim()));
}

test('each command has examples', () => {
  expect(Object.keys(EXAMPLES).sort()).toEqual(toRunnable(program).sort());
});

/** Words as a shell splits them, without redirections and pipes. */
function toWords(line: string): string[] {
  const [, own = ''] = /(?:^|\| )sidegate (.*?)(?: (?:\||>).*)?$/.exec(line) ?? [];
  return [...own.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? '').filter((word) => word !== '<');
}

test.each(Object.entries(EXAMPLES).flatMap(([words, lines]) => lines.map((line): [string, string] => [line, words])))(
  '%s has only options and arguments that the command has',
  (line, words) => {
    const command = findCommand(program, words);
    const args = toWords(line);
    expect(args.slice(0, words.split(' ').length).join(' ')).toBe(words);
    const { operands, unknown } = command.parseOptions(args.slice(words.split(' ').length));
    expect(unknown).toEqual([]);
    const { registeredArguments } = command;
    expect(operands.length).toBeGreaterThanOrEqual(registeredArguments.filter(({ required }) => required).length);
    const isVariadic = registeredArguments.some(({ variadic }) => variadic);
    expect(operands.length).toBeLessThanOrEqual(isVariadic ? Number.POSITIVE_INFINITY : registeredArguments.length);
    for (const option of command.options)
      if (option.mandatory) expect(command.getOptionValue(option.attributeName())).toBeDefined();
  },
);
