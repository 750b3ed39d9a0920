/** All commands except `run` and `check`. The build makes a separate bundle of this file, which the sidecar never loads. */
import { runInjectServer } from './inject-server.ts';
import type { Io } from './io.ts';
import { runProgram } from './program.ts';
import { runRotateCertificates } from './rotate-certificates.ts';

/** Runs one command; resolves to the exit code. */
export function runTools(argv: readonly string[], io: Io): Promise<number> {
  const [command, ...rest] = argv;
  if (command === 'inject-server') return runInjectServer(rest, io);
  if (command === 'rotate-certificates') return runRotateCertificates(rest, io);
  return runProgram(argv, io);
}
