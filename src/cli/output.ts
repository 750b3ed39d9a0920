/** Report options, the same in all commands: `--format FORMAT` and `--output FILE`. Older spellings are deprecated aliases. */

import { writeFile } from 'node:fs/promises';
import { type Command, Option } from 'commander';
import { usageError } from '../core/errors.ts';
import type { Io } from './io.ts';

/** The report formats of a command, and the option of older releases. */
interface ReportForm {
  readonly command: string;
  /** The first is the default. */
  readonly formats: readonly [string, ...string[]];
  /** The option that older releases had instead of `--format`. */
  readonly formerly?: '--json' | '--output';
}

/** The report formats of all commands. */
export const REPORTS = {
  check: { command: 'check', formats: ['text', 'json'], formerly: '--json' },
  explain: { command: 'explain', formats: ['text', 'json'], formerly: '--json' },
  sign: { command: 'sign', formats: ['headers', 'curl', 'json'] },
  inject: { command: 'inject', formats: ['yaml', 'json', 'patch'], formerly: '--output' },
  doctor: { command: 'doctor', formats: ['text', 'json'], formerly: '--output' },
} as const satisfies Record<string, ReportForm>;

/** The options, as parsed by commander. */
interface GivenOutput {
  readonly format?: string;
  readonly output?: string;
  readonly json?: boolean;
}

/** The format and the file of a report; undefined: standard output. */
interface OutputOptions {
  readonly format: string;
  readonly output?: string;
}

/** Older releases selected a format with `--output`; these words are not accepted as file names there. */
const FORMAT_WORDS = ['text', 'json', 'yaml', 'patch', 'junit'];

/** Adds the options to a command. */
export function withReport(command: Command, { formats, formerly }: ReportForm): Command {
  const list = `${formats.slice(0, -1).join(', ')} or ${formats.at(-1)}`;
  command.option('--format <format>', `${list}; default: ${formats[0]}`);
  command.option('-o, --output <file>', 'write the report to this file');
  return formerly === '--json' ? command.addOption(new Option('--json', 'as --format json').hideHelp()) : command;
}

/** Returns the report options; warns on standard error if the spelling is deprecated. */
function readOutput(given: GivenOutput, { command, formats, formerly }: ReportForm, io: Io): OutputOptions {
  const { output, json } = given;
  const isFormat = formerly === '--output' && given.format === undefined && FORMAT_WORDS.includes(output ?? '');
  const format = given.format ?? (isFormat ? output : json === true ? 'json' : undefined) ?? formats[0];
  if (!formats.includes(format)) throw usageError(`--format ${format} is not one of ${formats.join(', ')}`);
  if (isFormat) deprecate(command, `--output ${output}`, `--format ${output}`, io);
  if (json === true) deprecate(command, '--json', '--format json', io);
  return output === undefined || isFormat ? { format } : { format, output };
}

/** Warns on standard error about a deprecated spelling. */
export function deprecate(command: string, old: string, better: string, io: Io): void {
  io.stderr(`sidegate ${command}: ${old} is deprecated; write ${better}\n`);
}

/** Runs a command and writes its standard output to the file, unless it printed nothing. */
export async function writeReport(output: string | undefined, io: Io, run: (io: Io) => Promise<number>): Promise<number> {
  if (output === undefined) return run(io);
  const parts: string[] = [];
  const toParts = (text: string): void => {
    parts.push(text);
  };
  const code = await run({ ...io, isColored: false, stdout: toParts });
  if (parts.length === 0) return code;
  try {
    await writeFile(output, parts.join(''));
  } catch (thrown) {
    throw usageError(`cannot write --output ${output} (${(thrown as NodeJS.ErrnoException).code ?? 'unknown reason'})`);
  }
  return code;
}

/** Runs a command with its report options, and writes its report accordingly. */
export async function runReport<O extends GivenOutput>(
  given: O,
  form: ReportForm,
  io: Io,
  run: (options: O & OutputOptions, io: Io) => Promise<number>,
): Promise<number> {
  const output = readOutput(given, form, io);
  return writeReport(output.output, io, (out) => run({ ...given, ...output }, out));
}
