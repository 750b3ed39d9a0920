/** A set of users and their stored hashes, as files bring them. */
import { type HashOptions, type PasswordHash, parsePasswordHash } from './password-hash.ts';

/** One password of a user. */
export interface UserEntry {
  readonly user: string;
  readonly hash: PasswordHash;
  /** 1-based, in the file it came from. */
  readonly line: number;
}

/** What is wrong with a line; never holds the hash. */
export interface UsersProblem {
  readonly line: number;
  readonly problem: string;
  readonly hint: string;
}

/** What a file gave. With a problem, none of its entries are used: half a file may lock out or let in the wrong people. */
export interface UsersRead {
  readonly entries: readonly UserEntry[];
  readonly problems: readonly UsersProblem[];
}

/** Two live passwords let a user change from one to the other. */
const MOST_PASSWORDS = 2;
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const CONTROL = /[\u0000-\u001f\u007f]/;

/** Reads htpasswd's format: `user:hash` a line, `#` for comments. A user may stand on two lines while a password is changed. */
export function parseHtpasswd(text: string, options: HashOptions): UsersRead {
  const entries: UserEntry[] = [];
  const problems: UsersProblem[] = [];
  const passwords = new Map<string, number>();
  text.split('\n').forEach((raw, at) => {
    const line = at + 1;
    const content = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
    if (content.trim() === '' || content.startsWith('#')) return;
    const colon = content.indexOf(':');
    if (colon === -1) {
      problems.push({ line, problem: 'the line has no colon', hint: 'write user:hash' });
      return;
    }
    const user = content.slice(0, colon).normalize('NFC');
    if (CONTROL.test(user)) {
      problems.push({ line, problem: 'the user has a control character', hint: 'no client can send one' });
      return;
    }
    // Some tools add fields behind the hash, as in /etc/passwd.
    const stored = content.slice(colon + 1).trimEnd();
    const hash = parsePasswordHash(stored, options);
    if ('problem' in hash) {
      problems.push({ line, ...hash });
      return;
    }
    const count = (passwords.get(user) ?? 0) + 1;
    passwords.set(user, count);
    if (count > MOST_PASSWORDS) {
      problems.push({ line, problem: `user ${user} has more than ${MOST_PASSWORDS} passwords`, hint: 'remove the oldest' });
      return;
    }
    entries.push({ user, hash, line });
  });
  return { entries, problems };
}
