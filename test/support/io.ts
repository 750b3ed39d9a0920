/** The surroundings of a command that runs inside the test's process. */
import type { Io } from '../../src/cli/io.ts';

/** An `Io`, and all that the command printed on it so far. */
export interface RecordedIo {
  readonly io: Io;
  readonly stdout: () => string;
  readonly stderr: () => string;
}

/** `over`: standard input and environment, if the command reads them. */
export function recordIo(over: Partial<Pick<Io, 'stdin' | 'env'>> = {}): RecordedIo {
  const printed = { stdout: '', stderr: '' };
  const print =
    (to: keyof typeof printed) =>
    (text: string): void => {
      printed[to] += text;
    };
  return {
    io: { stdin: process.stdin, env: {}, ...over, stdout: print('stdout'), stderr: print('stderr') },
    stdout: () => printed.stdout,
    stderr: () => printed.stderr,
  };
}
