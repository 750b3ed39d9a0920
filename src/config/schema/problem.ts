/** A problem in the config, with its position and a way to fix it. */

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

/** `file:line:column: error path: message` and, on the next line, the hint. */
export function formatProblem(problem: Problem): string {
  return formatPaintedProblem(problem, String);
}

/** The same, with the severity formatted by `paint`. */
export function formatPaintedProblem(problem: Problem, paint: (severity: Severity) => string): string {
  const place = problem.line === undefined ? problem.file : `${problem.file}:${problem.line}:${problem.column}`;
  const path = problem.path === '' ? '' : ` ${problem.path}:`;
  const hint = problem.hint === undefined ? '' : `\n  hint: ${problem.hint}`;
  return `${place}: ${paint(problem.severity)}${path} ${problem.message}${hint}`;
}
