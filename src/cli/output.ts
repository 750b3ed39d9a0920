/** Report options, the same in all commands: `--format FORMAT` and `--output FILE`. */

import { writeFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { usageError } from '../core/errors.ts';
import { toChoice } from './input.ts';

import type { Io } from './io.ts';

/** The report formats of a command; the first is the default. */
type ReportFormats = readonly [string, ...string[]];

/** The report formats of all commands. */
export const REPORTS = {
  check: ['text', 'json'],
  explain: ['text', 'json'],
  sign: ['headers', 'curl', 'json'],
  inject: ['yaml', 'json', 'patch'],
  doctor: ['text', 'json'],
} as const satisfies Record<string, ReportFormats>;

/** The options, as parsed by commander. */
interface GivenOutput {
  readonly format?: string;
  readonly output?: string;
}

/** Adds the options to a command. */
export function withReport(command: Command, formats: ReportFormats): Command {
  const list = `${formats.slice(0, -1).join(', ')} or ${formats.at(-1)}`;
  command.option('--format <format>', `${list}; default: ${formats[0]}`);
  return command.option('-o, --output <file>', 'write the report to this file');
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
  formats: ReportFormats,
  io: Io,
  run: (options: O & { readonly format: string }, io: Io) => Promise<number>,
): Promise<number> {
  const format = given.format ?? formats[0];
  toChoice(format, formats, '--format');
  return writeReport(given.output, io, (out) => run({ ...given, format }, out));
}
