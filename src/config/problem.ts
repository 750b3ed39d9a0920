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
