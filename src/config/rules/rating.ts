/** The findings of rules about the config: position, message, severity and fix. */
import type { SchemaFinding } from '../schema/issues.ts';
import type { Problem } from '../schema/problem.ts';

/** A finding with its severity. */
export type Rating = SchemaFinding & { readonly severity: Problem['severity'] };

/** Config path, from the top level down. */
export type Path = readonly PropertyKey[];

/** The gate does not start with this config. */
export function error(path: Path, message: string, hint?: string): Rating {
  return { severity: 'error', path, message, ...(hint === undefined ? undefined : { hint }) };
}

/** The gate starts, but the operator should know. */
export function warning(path: Path, message: string, hint?: string): Rating {
  return { severity: 'warning', path, message, ...(hint === undefined ? undefined : { hint }) };
}
