/** The environment of a command, which tests can replace. */

/** Streams and environment of a command. */
export interface Io {
  readonly stdin: NodeJS.ReadableStream & { isTTY?: boolean };
  readonly stdout: (text: string) => void;
  /** Aborts when the reader of standard output has gone, for commands that never end on their own. */
  readonly outputClosed?: AbortSignal;
  /** Standard output is a terminal, and NO_COLOR is not set. */
  readonly isColored?: boolean;
  readonly stderr: (text: string) => void;
  /** Standard error is a terminal. */
  readonly isTerminal?: boolean;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Exit codes: success; a negative result; incorrect usage. */
export const EXIT = { ok: 0, failed: 1, usage: 2 } as const;
