/** `sidegate check`: all problems of a config, with places and hints, and how routes inside others are kept apart. */
import { reportConfig } from '../app/check.ts';
import { formatProblem } from '../config/problem.ts';
import { systemClock } from '../core/clock.ts';
import { EXIT, type Io } from './io.ts';

/** Options of the command. */
export interface CheckOptions {
  readonly config: string;
  readonly listen?: string;
  readonly admin?: string;
  readonly upstream?: string;
  readonly appProbe?: readonly string[];
  readonly json?: boolean;
}

/** Exit 0 where the gate could run with it, warnings or not. */
export async function checkFile(options: CheckOptions, io: Io): Promise<number> {
  const { config, listen, admin, upstream, appProbe: appProbes } = options;
  const { problems, notes } = await reportConfig(config, systemClock, { listen, admin, upstream, appProbes });
  const errors = problems.filter(({ severity }) => severity === 'error').length;
  if (options.json === true) {
    io.stdout(`${JSON.stringify(problems, undefined, 2)}\n`);
  } else {
    for (const problem of problems) io.stdout(`${formatProblem(problem)}\n`);
    for (const note of notes) io.stdout(`${config}: note: ${note}\n`);
    io.stdout(toSummary(options.config, errors, problems.length - errors));
  }
  return errors === 0 ? EXIT.ok : EXIT.failed;
}

function toSummary(file: string, errors: number, warnings: number): string {
  if (errors === 0) return `${file}: ok${warnings === 0 ? '' : `, ${count(warnings, 'warning')}`}\n`;
  return `${file}: ${count(errors, 'error')}${warnings === 0 ? '' : `, ${count(warnings, 'warning')}`}\n`;
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}
