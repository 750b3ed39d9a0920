/** A problem in the config, with its position and a way to fix it. */
import { toPrintable } from '../../core/terminal.ts';

/** An `error` prevents the start or the reload; a `warning` is printed and logged. */
export type Severity = 'error' | 'warning';

/** One problem in the config. */
export interface Problem {
  readonly severity: Severity;
  readonly file: string;
  /** 1-based; absent if the problem has no position in the file. */
  readonly line?: number;
  readonly column?: number;
  /** Dotted path, for example `routes.0.webhook.tolerance`; empty for the whole file. */
  readonly path: string;
  readonly message: string;
  /** How to fix it. */
  readonly hint?: string;
}

/** `file:line:column: error path: message` and, on the next line, the hint. Texts from the file add no line, and control no terminal. */
export function formatProblem(problem: Problem): string {
  return format(problem, String);
}

/** The same for a terminal: with the severity formatted by `paint`, and an `excerpt` of the file (config/load/excerpt.ts). */
export function formatShownProblem(
  problem: Problem,
  excerpt: readonly string[],
  paint: (severity: Severity) => string = String,
): string {
  const [head = '', ...hint] = format(problem, paint).split('\n');
  return [head, ...excerpt, ...hint].join('\n');
}

function format(problem: Problem, paint: (severity: Severity) => string): string {
  const file = toPrintable(problem.file);
  const place = problem.line === undefined ? file : `${file}:${problem.line}:${problem.column}`;
  const path = problem.path === '' ? '' : ` ${toPrintable(problem.path)}:`;
  const hint = problem.hint === undefined ? '' : `\n  hint: ${toPrintable(problem.hint)}`;
  return `${place}: ${paint(problem.severity)}${path} ${toPrintable(problem.message)}${hint}`;
}
