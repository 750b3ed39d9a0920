/** Problems with tokens. */
import type { TokenProblem } from '../scheme.ts';

/** A problem with the form of a token. */
export function malformed(problem: string): TokenProblem {
  return { problem, kind: 'malformed' };
}
