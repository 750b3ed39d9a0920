/** Shows the problems of a config with the lines that they are about. */
import { readText } from '../config/load/document.ts';
import { formatShownProblem, type Problem, type Severity } from '../config/schema/problem.ts';

/** Where the problems are from and go to. */
export interface Shown {
  readonly file: string;
  /** Of the config; default: it is read from `file`. */
  readonly text?: string | Problem | undefined;
  readonly write: (text: string) => void;
  readonly paint?: (severity: Severity) => string;
}

export async function showProblems(problems: readonly Problem[], { file, text, write, paint }: Shown): Promise<void> {
  const read = problems.length === 0 ? '' : (text ?? (await readText(file)));
  const lines = typeof read === 'string' ? read.split(/\r?\n/) : [];
  for (const problem of problems) write(`${formatShownProblem(problem, lines, paint)}\n`);
}
