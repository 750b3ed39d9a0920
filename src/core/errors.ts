/** The third kind of error: neither a refusal (a value) nor a config problem, but trouble with the set-up or a bug. */

/** `user`: the set-up is wrong and its owner can mend it. `system`: our bug or the environment. */
export type ErrorKind = 'user' | 'system';

/** An error that carries a stable code, so that callers decide by code and never by message text. */
export class SidegateError extends Error {
  readonly code: string;
  readonly kind: ErrorKind;

  constructor(kind: ErrorKind, code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'SidegateError';
    this.kind = kind;
    this.code = code;
  }
}

/** The text of anything thrown, for a log line; never the thing itself, which may carry secrets. */
export function toErrorText(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}
