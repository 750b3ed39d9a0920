/** A problem with something that the config refers to: a secret, users, certificates. */
export interface SourceProblem {
  readonly severity: 'error' | 'warning';
  /** Config path, for example `routes.0.webhook.keys.1.secret`. */
  readonly path: string;
  /** Never contains a secret, a hash or a password. */
  readonly message: string;
  readonly hint?: string;
}
