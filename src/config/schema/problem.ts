/** The second kind of error: trouble in the config, with its place and a way to mend it. */

/** `error` refuses to start; `warning` is shown and logged. */
export type Severity = 'error' | 'warning';

/** One thing wrong with the config. */
export interface Problem {
  readonly severity: Severity;
  readonly file: string;
  /** 1-based; absent where the trouble has no place in the file. */
  readonly line?: number;
  readonly column?: number;
  /** Dotted path, for example `routes.0.webhook.tolerance`; empty for the whole file. */
  readonly path: string;
  readonly message: string;
  /** How to mend it. */
  readonly hint?: string;
}

/** `file:line:column: error path: message` and, on a line of its own, how to mend it. */
export function formatProblem(problem: Problem): string {
  return formatPaintedProblem(problem, String);
}

/** The same with the severity as `paint` shows it. */
export function formatPaintedProblem(problem: Problem, paint: (severity: Severity) => string): string {
  const place = problem.line === undefined ? problem.file : `${problem.file}:${problem.line}:${problem.column}`;
  const path = problem.path === '' ? '' : ` ${problem.path}:`;
  const hint = problem.hint === undefined ? '' : `\n  hint: ${problem.hint}`;
  return `${place}: ${paint(problem.severity)}${path} ${problem.message}${hint}`;
}
