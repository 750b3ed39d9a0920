/** All commands except `run` and `deliver`. The build makes a separate bundle of this file, which the sidecar never loads. */
import { runInjectServer, runRotateCertificates } from './injector-commands.ts';
import type { Io } from './io.ts';
import { runProgram } from './program.ts';

/** Runs one command; resolves to the exit code. */
export function runTools(argv: readonly string[], io: Io): Promise<number> {
  const [command, ...rest] = argv;
  const run =
    command === 'inject-server' ? runInjectServer : command === 'rotate-certificates' ? runRotateCertificates : undefined;
  if (run === undefined || rest.includes('--help') || rest.includes('-h')) return runProgram(argv, io);
  return run(rest, io);
}
