/** Errors that are neither a refusal (a value) nor a config problem: a wrong setup, a bug, or a fault of the environment. */

/** `user`: the setup is wrong, and the operator can fix it. `system`: a bug in sidegate, or a fault of the environment. */
type ErrorKind = 'user' | 'system';

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

/** The message of a thrown value, for a log line. Do not log the value itself: it may carry secrets. */
export function toErrorText(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}

/** A thrown error for a log line, without its message, which may quote what a client sent. */
interface ErrorSummary {
  /** The class of the error, and its code if it has one. */
  readonly error: string;
  /** The innermost frames of its stack. */
  readonly at: readonly string[];
}

const MAX_FRAMES = 8;
const MAX_SUMMARY_TEXT = 200;
const FRAME = /^ {4}at (.*)$/gm;
const IDENTIFIER = /^[A-Za-z_$][\w$]*$/;

/** Summarizes where an error was thrown, in at most 2 kB. Never throws, for any thrown value. */
export function toErrorSummary(thrown: unknown): ErrorSummary {
  try {
    if (!(thrown instanceof Error)) return { error: `a thrown ${typeof thrown}`, at: [] };
    const { name, code, stack = '' } = thrown as NodeJS.ErrnoException;
    const words = [name, code].filter((word) => typeof word === 'string' && IDENTIFIER.test(word));
    // The message comes before the first frame, and may look like one.
    const frames = String(stack).slice(String(stack).indexOf(thrown.message) + thrown.message.length);
    const at = [...frames.matchAll(FRAME)].slice(0, MAX_FRAMES).map(([, frame = '']) => frame.slice(0, MAX_SUMMARY_TEXT));
    return { error: words.join(' ').slice(0, MAX_SUMMARY_TEXT), at };
  } catch {
    return { error: 'an error that cannot be read', at: [] };
  }
}

/** An error in how the command was used. */
export function usageError(message: string): SidegateError {
  return new SidegateError('user', 'usage', message);
}
