/** What a command may use of the world, so that tests can hand it another. */

/** Streams and environment of a command. */
export interface Io {
  readonly stdin: NodeJS.ReadableStream & { isTTY?: boolean };
  readonly stdout: (text: string) => void;
  /** Standard output is a terminal, and its user has not asked for plain text (NO_COLOR). */
  readonly isColoured?: boolean;
  readonly stderr: (text: string) => void;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Exit codes: done; the thing asked about is not right; the command was used wrongly. */
export const EXIT = { ok: 0, failed: 1, usage: 2 } as const;
