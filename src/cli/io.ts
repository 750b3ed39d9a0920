/** The environment of a command, which tests can replace, and its exit codes. */

import { format } from 'node:util';
import type { Logger } from '../telemetry/log/logger.ts';

/** Streams and environment of a command. */
export interface Io {
  readonly stdin: NodeJS.ReadableStream & { isTTY?: boolean };
  readonly stdout: (text: string) => void;
  /** Aborts when the reader of standard output has gone, for commands that never end on their own. */
  readonly outputClosed?: AbortSignal;
  /** Standard output is a terminal, and NO_COLOR is not set. */
  readonly isColored?: boolean;
  readonly stderr: (text: string) => void;
  /** Standard error is a terminal. */
  readonly isTerminal?: boolean;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Exit codes: success; a negative result; incorrect usage. */
export const EXIT = { ok: 0, failed: 1, usage: 2 } as const;

// Logs what libraries and Node would print as plain text between the JSON lines of the log.

const MAX_LENGTH = 500;

/** For commands that log and print nothing else. */
export function logForeignLines(logger: Logger<'library_warning'>): void {
  const log = (...parts: readonly unknown[]): void => {
    logger.warn('library_warning', { message: format(...parts).slice(0, MAX_LENGTH) });
  };
  Object.assign(console, { log, info: log, warn: log, error: log });
  // Node's own listener prints them.
  process.removeAllListeners('warning');
  process.on('warning', ({ name, message }) => log(`${name}: ${message}`));
}
