/** Writes the options of every command into docs/cli.md, from the program itself. */
import { readFileSync } from 'node:fs';
import { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import { createProgram } from '../src/cli/program.ts';

const BEGIN = '<!-- options: written by `npm run docs` -->\n';
const END = '<!-- /options -->\n';
/** The width of the help texts, independent of the terminal. */
const WIDTH = 100;

/** Renders the page. */
export function renderCliPage(): string {
  const text = readFileSync(fileURLToPath(new URL('../docs/cli.md', import.meta.url)), 'utf8');
  const [before, rest = ''] = text.split(BEGIN);
  const after = rest.split(END)[1];
  if (after === undefined) throw new Error(`docs/cli.md has no ${BEGIN.trim()} … ${END.trim()}`);
  return `${before}${BEGIN}\n${renderHelp()}\n${END}${after}`;
}

function renderHelp(): string {
  const silent = { env: {}, stdout: () => undefined, stderr: () => undefined };
  const program = createProgram({ ...silent, stdin: Readable.from([]) as NodeJS.ReadableStream }, () => undefined);
  return program.commands.flatMap((command) => renderCommand(command, 'sidegate')).join('\n');
}

/** A command, and the commands of a group. */
function renderCommand(command: Command, before: string): string[] {
  command.configureHelp({ helpWidth: WIDTH }).configureOutput({ getOutHasColors: () => false });
  const name = `${before} ${command.name()}`;
  const own = `### ${name}\n\n\`\`\`text\n${command.helpInformation().trimEnd()}\n\`\`\`\n`;
  return [own, ...command.commands.flatMap((member) => renderCommand(member, name))];
}
