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

/** What a file gave. Lines without a problem are used; a user on a line with one is not, whatever other lines say. */
export interface UsersRead {
  readonly entries: readonly UserEntry[];
  /** The first of them. */
  readonly problems: readonly UsersProblem[];
  readonly problemCount: number;
  /** Users on lines with a problem: nobody knows which password was meant. */
  readonly rejected: ReadonlySet<string>;
}

/** Two live passwords let a user change from one to the other. */
const MAX_PASSWORDS = 2;
/** A file of another kind has a problem on each of its lines. */
const MAX_PROBLEMS = 20;
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const CONTROL = /[\u0000-\u001f\u007f]/;

/** Reads htpasswd's format: `user:hash` a line, `#` for comments. A user may stand on two lines while a password is changed. */
export function parseHtpasswd(text: string, options: HashOptions): UsersRead {
  const entries: UserEntry[] = [];
  const problems: UsersProblem[] = [];
  const rejected = new Set<string>();
  const passwords = new Map<string, number>();
  let problemCount = 0;
  for (const { content, line } of toLines(text)) {
    const read = parseLine(content, options, passwords);
    if ('hash' in read) {
      entries.push({ ...read, line });
      continue;
    }
    const { user, ...problem } = read;
    rejected.add(user);
    problemCount++;
    if (problems.length < MAX_PROBLEMS) problems.push({ line, ...problem });
  }
  const usable = rejected.size === 0 ? entries : entries.filter(({ user }) => !rejected.has(user));
  return { entries: usable, problems, problemCount, rejected };
}

/** The lines that are not empty and not comments, with their numbers; one at a time, as a file may have millions. */
function* toLines(text: string): Generator<{ readonly content: string; readonly line: number }> {
  let line = 0;
  for (let start = 0; start < text.length; ) {
    const feed = text.indexOf('\n', start);
    const end = feed === -1 ? text.length : feed;
    const content = text.slice(start, text[end - 1] === '\r' ? end - 1 : end);
    line++;
    start = end + 1;
    if (content.trim() !== '' && !content.startsWith('#')) yield { content, line };
  }
}

type LineRead = { readonly user: string } & (
  | { readonly hash: PasswordHash }
  | { readonly problem: string; readonly hint: string }
);

function parseLine(content: string, options: HashOptions, passwords: Map<string, number>): LineRead {
  const colon = content.indexOf(':');
  // Without a colon, all of it may be a name.
  if (colon === -1) return { user: content.trim().normalize('NFC'), problem: 'the line has no colon', hint: 'write user:hash' };
  const user = content.slice(0, colon).normalize('NFC');
  if (CONTROL.test(user)) return { user, problem: 'the user has a control character', hint: 'no client can send one' };
  // Some tools add fields behind the hash, as in /etc/passwd.
  const hash = parsePasswordHash(content.slice(colon + 1).trimEnd(), options);
  if ('problem' in hash) return { user, ...hash };
  const count = (passwords.get(user) ?? 0) + 1;
  passwords.set(user, count);
  if (count > MAX_PASSWORDS)
    return { user, problem: `user ${user} has more than ${MAX_PASSWORDS} passwords`, hint: 'remove the oldest' };
  return { user, hash };
}
