/** Shows the problems of a config with the lines that they are about. */
import { readText } from '../config/load/document.ts';
import { createExcerpts } from '../config/load/excerpt.ts';
import { formatShownProblem, type LocatedProblem, type Severity } from '../core/problem.ts';

/** Where the problems are from and go to. */
interface Shown {
  readonly file: string;
  /** Of the config; default: it is read from `file`. */
  readonly text?: string | LocatedProblem | undefined;
  readonly write: (text: string) => void;
  readonly paint?: (severity: Severity) => string;
}

export async function showProblems(problems: readonly LocatedProblem[], { file, text, write, paint }: Shown): Promise<void> {
  if (problems.length === 0) return;
  const read = text ?? (await readText(file));
  const toExcerpt = createExcerpts(typeof read === 'string' ? read : '');
  for (const problem of problems) write(`${formatShownProblem(problem, toExcerpt(problem), paint)}\n`);
}
