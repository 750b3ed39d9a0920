/** Says why a file of secrets, users or certificates could not be read, and what to do. */

export const UNREAD_HINT = 'create it, or mount the Secret there, readable by the user that runs the gate';

const TEXTS: Readonly<Record<string, string>> = {
  ENOENT: 'does not exist',
  EISDIR: 'is a directory',
  ENOTDIR: 'is inside something that is not a directory',
  EACCES: 'cannot be read: permission denied',
};

/** The end of a sentence that starts with the path of the file. */
export function toReadProblem(thrown: unknown): string {
  const code = (thrown as NodeJS.ErrnoException).code ?? 'unknown reason';
  return TEXTS[code] ?? `cannot be read (${code})`;
}
