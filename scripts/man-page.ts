/** Renders the man page from the commands and their help, as `npm run build` writes it. */
import { Readable } from 'node:stream';
import type { Command } from 'commander';
import { createProgram, EXAMPLES } from '../src/cli/program.ts';

const HEX = 16;

/** Literal text: hyphens that can be copied, no requests at the start of a line, and only ASCII. */
function toRoff(text: string): string {
  const escaped = text
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replace(/^(?=[.'])/gm, '\\&');
  return escaped.replace(/\P{ASCII}/gu, (char) => `\\[u${char.codePointAt(0)?.toString(HEX).toUpperCase().padStart(4, '0')}]`);
}

function toEntries(entries: readonly (readonly [term: string, text: string])[]): string {
  return entries.map(([term, text]) => `.TP\n.B ${toRoff(term)}\n${toRoff(text)}\n`).join('');
}

function renderCommand(command: Command, before: string): string {
  const words = `${before} ${command.name()}`.trim();
  if (command.commands.length > 0) return command.commands.map((each) => renderCommand(each, words)).join('');
  const help = command.createHelp();
  const described = [
    ...help.visibleArguments(command).map((each) => [help.argumentTerm(each), help.argumentDescription(each)] as const),
    ...help.visibleOptions(command).map((each) => [help.optionTerm(each), help.optionDescription(each)] as const),
  ];
  const examples = (EXAMPLES[words] ?? []).map((line) => `${toRoff(line)}\n`).join('');
  const start = `.SS ${toRoff(`sidegate ${words} ${command.usage()}`)}\n${toRoff(command.description())}.\n`;
  return `${start}${toEntries(described)}.PP\nExamples:\n.PP\n.EX\n${examples}.EE\n`;
}

/** The commands, of which only the help is read. */
export function createHelpProgram(): Command {
  const silent = { env: {}, stdout: () => undefined, stderr: () => undefined };
  return createProgram({ ...silent, stdin: Readable.from([]) as NodeJS.ReadableStream }, () => undefined);
}

export function renderManPage(version: string): string {
  const program = createHelpProgram();
  const commands = program.commands.map((command) => renderCommand(command, '')).join('');
  return `.TH SIDEGATE 1 "" "sidegate ${toRoff(version)}"
.SH NAME
sidegate \\- authenticating reverse proxy for webhooks and HTTP Basic
.SH SYNOPSIS
.B sidegate
.I command
[options]
.SH DESCRIPTION
${toRoff(program.description())}
.SH COMMANDS
${commands}.SH EXIT STATUS
${toEntries([
  ['0', 'success'],
  ['1', 'a negative result, such as an invalid config'],
  ['2', 'incorrect usage'],
])}`;
}
