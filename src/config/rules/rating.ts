/** What a rule says of the config: where, what, how much it matters, and how to mend it. */
import type { Finding } from '../schema/issues.ts';
import type { Problem } from '../schema/problem.ts';

/** A finding and how much it matters. */
export type Rating = Finding & { readonly severity: Problem['severity'] };

/** From the top of the config down. */
export type Path = readonly PropertyKey[];

/** The gate cannot run so. */
export function error(path: Path, message: string, hint?: string): Rating {
  return { severity: 'error', path, message, ...(hint === undefined ? undefined : { hint }) };
}

/** It can, but somebody should know. */
export function warning(path: Path, message: string, hint?: string): Rating {
  return { severity: 'warning', path, message, ...(hint === undefined ? undefined : { hint }) };
}
