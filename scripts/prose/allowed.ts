/** Findings that may stay. */
export interface Allowed {
  /** Relative to the root of the project; `*` for all files. */
  readonly file: string;
  /** As the finding quotes it. */
  readonly found: string;
  readonly reason: string;
}

export const ALLOWED: readonly Allowed[] = [];
