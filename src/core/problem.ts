/** Problems with a config and with what it refers to. All are collected, and shown at once with their positions. */
import { toPrintable } from './text.ts';

/** An `error` prevents the start or the reload; a `warning` is printed and logged. */
export type Severity = 'error' | 'warning';

/** Config path, from the top level down. */
export type Path = readonly PropertyKey[];

/** One problem. */
export interface Problem {
  readonly severity: Severity;
  readonly path: Path;
  /** Default: `path`, with dots. */
  readonly shownPath?: string;
  /** Contains no secret, hash or password. */
  readonly message: string;
  /** How to fix it. */
  readonly hint?: string | undefined;
  /** The problem concerns the key itself, not its value. */
  readonly isAboutKey?: true;
}

/** Why a value cannot be used, and how to fix it, where its config path is not known. */
export interface Fault {
  readonly problem: string;
  readonly hint: string;
}

/** A problem as it is shown. */
export interface LocatedProblem extends Pick<Problem, 'severity' | 'message' | 'hint'> {
  /** The file, or the flag, that has the value. */
  readonly file: string;
  /** 1-based; absent if the problem has no position in the file. */
  readonly line?: number;
  readonly column?: number;
  /** With dots, for example `routes.0.webhook.tolerance`; empty for the whole file. */
  readonly path: string;
}

/** The gate does not start with this config. */
export function error(path: Path, message: string, hint?: string): Problem {
  return { severity: 'error', path, message, hint };
}

/** The gate starts, but the operator should know. */
export function warning(path: Path, message: string, hint?: string): Problem {
  return { severity: 'warning', path, message, hint };
}

export function isError({ severity }: { readonly severity: Severity }): boolean {
  return severity === 'error';
}

/** Adds the path of a section to its problems. */
export function under(section: Path, problems: readonly Problem[]): Problem[] {
  return problems.map((problem) => ({ ...problem, path: [...section, ...problem.path] }));
}

/** The value; undefined after its fault has been added to the problems. */
export function unwrap<T extends object>(read: T | Fault, path: Path, problems: Problem[]): T | undefined {
  if (!('problem' in read)) return read;
  problems.push(error(path, read.problem, read.hint));
  return undefined;
}

/** Adds the file, and the position in it if there is one. */
export function locate(
  { severity, path, shownPath = path.join('.'), message, hint }: Problem,
  file: string,
  position?: { readonly line: number; readonly column: number },
): LocatedProblem {
  return { severity, file, ...position, path: shownPath, message, hint };
}

/** `file:line:column: error path: message` and, on the next line, the hint. Texts from the file add no line, and control no terminal. */
export function formatProblem(problem: LocatedProblem): string {
  return format(problem, String);
}

/** The same for a line of the log. */
export function toLogFields({ hint, ...problem }: LocatedProblem): {
  readonly problem: string;
  readonly hint: string | undefined;
} {
  return { problem: formatProblem(problem), hint };
}

/** The same for a terminal: with the severity formatted by `paint`, and an `excerpt` of the file (cli/problems.ts). */
export function formatShownProblem(
  problem: LocatedProblem,
  excerpt: readonly string[],
  paint: (severity: Severity) => string = String,
): string {
  const [head = '', ...hint] = format(problem, paint).split('\n');
  return [head, ...excerpt, ...hint].join('\n');
}

function format(problem: LocatedProblem, paint: (severity: Severity) => string): string {
  const file = toPrintable(problem.file);
  const place = problem.line === undefined ? file : `${file}:${problem.line}:${problem.column}`;
  const path = problem.path === '' ? '' : ` ${toPrintable(problem.path)}:`;
  const hint = problem.hint === undefined ? '' : `\n  hint: ${toPrintable(problem.hint)}`;
  return `${place}: ${paint(problem.severity)}${path} ${toPrintable(problem.message)}${hint}`;
}
