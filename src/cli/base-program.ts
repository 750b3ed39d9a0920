/** The base of the commands that use commander. */
import { Command, CommanderError } from 'commander';
import { SidegateError } from '../core/errors.ts';
import { EXIT, type Io } from './io.ts';
import { readVersion } from './version.ts';

/** Parses a repeatable option. */
export const COLLECT = (value: string, previous: readonly string[] = []): readonly string[] => [...previous, value];

/** Creates a program without commands; it throws where commander would end the process. */
export function createBaseProgram(io: Io): Command {
  return new Command('sidegate')
    .version(readVersion(), '-V, --version', 'show the version')
    .helpOption('-h, --help', 'show this help')
    .exitOverride()
    .configureOutput({
      writeOut: io.stdout,
      writeErr: io.stderr,
      outputError: (text, write) => write(toOwnForm(text)),
    })
    .showSuggestionAfterError();
}

/** Commander's errors in the form of all others: `sidegate: …`, on one line with the suggestion. */
function toOwnForm(text: string): string {
  const [first = '', ...more] = text
    .replace(/^error: /, 'sidegate: ')
    .trimEnd()
    .split('\n');
  return `${[first, ...more.map((line) => line.replace(/^\(|\)$/g, ''))].join('. ')}\n`;
}

/** Runs one command of the program that `create` returns; resolves to the exit code. */
export async function parseCommand(
  create: (setExit: (code: number) => void) => Command,
  argv: readonly string[],
  io: Io,
): Promise<number> {
  let exitCode: number = EXIT.ok;
  const program = create((code) => {
    exitCode = code;
  });
  if (argv.length === 0) {
    io.stderr(program.helpInformation());
    return EXIT.usage;
  }
  try {
    await program.parseAsync([...argv], { from: 'user' });
    return exitCode;
  } catch (thrown) {
    if (thrown instanceof CommanderError) return thrown.exitCode === 0 ? EXIT.ok : EXIT.usage;
    if (thrown instanceof SidegateError && thrown.kind === 'user') {
      io.stderr(`sidegate: ${thrown.message}\n`);
      return EXIT.usage;
    }
    throw thrown;
  }
}
