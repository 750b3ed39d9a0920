/** `sidegate check`: reports all problems of a config, with positions and hints, and how overlapping routes are separated. */

import { reportConfig } from '../app/check.ts';
import { readText } from '../config/load/document.ts';
import { systemClock } from '../core/clock.ts';
import { usageError } from '../core/errors.ts';
import { isError, type Severity } from '../core/problem.ts';
import { formatJson, paint, toPrintable } from '../core/text.ts';
import { EXIT, type Io } from './io.ts';
import { showProblems } from './problems.ts';

/** Exits with 0 if the gate can run with the config, even if there are warnings. */
export async function checkFile(
  file: string | undefined,
  options: {
    readonly config?: string;
    readonly listen?: string;
    readonly admin?: string;
    readonly upstream?: string;
    readonly appProbe?: readonly string[];
    readonly connect?: boolean;
    readonly format: string;
  },
  io: Io,
): Promise<number> {
  const config = toConfigFile(file, options.config);
  const text = await readText(config, config === '-' ? (io.stdin as AsyncIterable<Buffer>) : undefined);
  const { listen, admin, upstream, appProbe: appProbes } = options;
  const { problems, notes } = await reportConfig(config, systemClock, {
    overrides: { listen, admin, upstream, appProbes },
    connects: options.connect === true,
    text,
  });
  const errors = problems.filter(isError).length;
  if (options.format === 'json') {
    io.stdout(formatJson(problems));
  } else {
    const shade = (severity: Severity): string => paint(io, severity === 'error' ? 'bad' : 'warning', severity);
    await showProblems(problems, { file: config, text, write: io.stdout, paint: shade });
    const name = toPrintable(config);
    for (const note of notes) io.stdout(`${name}: note: ${toPrintable(note)}\n`);
    const summary = toSummary(errors, problems.length - errors);
    io.stdout(`${name}: ${paint(io, errors === 0 ? 'good' : 'bad', summary)}\n`);
  }
  return errors === 0 ? EXIT.ok : EXIT.failed;
}

function toConfigFile(file: string | undefined, config: string | undefined): string {
  if (file !== undefined && config !== undefined)
    throw usageError('name the config file once: as the argument, or with --config');
  const named = file ?? config;
  if (named === undefined) throw usageError('missing config file: use sidegate check FILE (or --config FILE)');
  return named;
}

function toSummary(errors: number, warnings: number): string {
  const suffix = warnings === 0 ? '' : `, ${count(warnings, 'warning')}`;
  return `${errors === 0 ? 'ok' : count(errors, 'error')}${suffix}`;
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}
