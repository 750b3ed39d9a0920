/** Logs what libraries and Node would print as plain text between the JSON lines of the log. */
import { format } from 'node:util';
import type { Logger } from '../telemetry/log/logger.ts';

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
