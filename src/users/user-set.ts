/** The users of a realm at one moment, and the cost of a rejection; also how users and their hashes are read from files. */
import type { Bytes } from '../core/bytes.ts';
import type { EpochMilliseconds } from '../core/clock.ts';
import type { Fault } from '../core/problem.ts';
import type { CheckedHash } from './hash-pool.ts';
import { type PasswordHash, parsePasswordHash } from './password-hash.ts';

/** The entries of one source. */
export interface UserSource {
  /** Name in logs and metrics. */
  readonly name: string;
  /** All its passwords are rejected from then on. */
  readonly notAfter: EpochMilliseconds | undefined;
  readonly entries: readonly UserEntry[];
}

/** A password of a user. */
export interface LivePassword {
  readonly hash: PasswordHash;
  readonly source: string;
  readonly notAfter: EpochMilliseconds | undefined;
}

/** The maximum number of hashes of a kind that one user has, and a hash of that kind to use as a decoy. */
interface Share {
  readonly count: number;
  readonly sample: CheckedHash;
}

/**
 * Finds a user's passwords. A rejection takes the same time for every user name: decoys make up the difference between a user's
 * hashes and the maximum of any user, for each kind. So the time does not reveal whether a user exists or which kind of hash it has.
 */
export class UserSet {
  readonly #passwords = new Map<string, LivePassword[]>();
  readonly #max = new Map<string, Share>();
  #largestHash: Bytes = 0;

  constructor(sources: readonly UserSource[]) {
    for (const { name, notAfter, entries } of sources) {
      for (const { user, hash } of entries) {
        const passwords = this.#passwords.get(user) ?? [];
        passwords.push({ hash, source: name, notAfter });
        this.#largestHash = Math.max(this.#largestHash, hash.memory);
        this.#passwords.set(user, passwords);
      }
    }
    for (const passwords of this.#passwords.values()) {
      for (const [kind, share] of countKinds(passwords)) {
        if (share.count > (this.#max.get(kind)?.count ?? 0)) this.#max.set(kind, share);
      }
    }
  }

  /** Number of users. */
  get size(): number {
    return this.#passwords.size;
  }

  /** Maximum memory for checking one of the hashes. */
  get largestHash(): Bytes {
    return this.#largestHash;
  }

  /** The passwords that are valid at `now`; none for an unknown user. */
  find(user: string, now: EpochMilliseconds): readonly LivePassword[] {
    const passwords = this.#passwords.get(user) ?? [];
    return passwords.filter(({ notAfter }) => notAfter === undefined || now < notAfter);
  }

  /** The decoys to check in addition to a user's hashes. */
  toDecoys(passwords: readonly LivePassword[]): readonly CheckedHash[] {
    const own = countKinds(passwords);
    return [...this.#max].flatMap(([kind, { count, sample }]) =>
      Array.from({ length: count - (own.get(kind)?.count ?? 0) }, () => sample),
    );
  }
}

function countKinds(passwords: readonly LivePassword[]): Map<string, Share> {
  const shares = new Map<string, Share>();
  for (const { hash } of passwords) {
    const count = (shares.get(hash.kind)?.count ?? 0) + 1;
    shares.set(hash.kind, { count, sample: { algorithm: hash.algorithm, text: hash.text } });
  }
  return shares;
}

// The users of a file, with their stored hashes.

/** One password of a user. */
export interface UserEntry {
  readonly user: string;
  readonly hash: PasswordHash;
  /** 1-based line in the file. */
  readonly line: number;
}

type LineFault = Fault & Pick<UserEntry, 'line'>;

/** The result of parsing a file. Lines without a problem are used, except those of users who also have a line with a problem. */
interface UsersRead {
  readonly entries: readonly UserEntry[];
  /** The first problems; they never contain a hash. */
  readonly problems: readonly LineFault[];
  readonly problemCount: number;
  /** Users with a problem on one of their lines: it is unknown which password was intended. */
  readonly rejected: ReadonlySet<string>;
}

/** Two valid passwords allow a user to change from one to the other. */
const MAX_PASSWORDS = 2;
/** In a file of another format every line has a problem. */
const MAX_PROBLEMS = 20;
// biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern must match control characters
const CONTROL = /[\u0000-\u001f\u007f]/;

/** Parses the htpasswd format: one `user:hash` per line, `#` for comments. A user may be on two lines during a password change. */
export function parseHtpasswd(text: string, { allowPlainText }: { readonly allowPlainText: boolean }): UsersRead {
  const entries: UserEntry[] = [];
  const problems: LineFault[] = [];
  const rejected = new Set<string>();
  const passwords = new Map<string, number>();
  let problemCount = 0;
  for (const { content, line } of toLines(text)) {
    const read = parseLine(content, allowPlainText, passwords);
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

/** Some editors begin a file with it. */
const BYTE_ORDER_MARK = '\ufeff';

/** Yields the lines that are neither empty nor comments, with their numbers; lazily, because a file may have millions. */
function* toLines(text: string): Generator<{ readonly content: string; readonly line: number }> {
  let line = 0;
  for (let start = text.startsWith(BYTE_ORDER_MARK) ? 1 : 0; start < text.length; ) {
    const feed = text.indexOf('\n', start);
    const end = feed === -1 ? text.length : feed;
    // As httpd, which ignores whitespace before a user or a comment.
    const content = text.slice(start, text[end - 1] === '\r' ? end - 1 : end).trimStart();
    line++;
    start = end + 1;
    if (content !== '' && !content.startsWith('#')) yield { content, line };
  }
}

/** As nginx and httpd, which ignore further fields: no hash contains a colon. A password in plain text may contain one. */
function parseStored(text: string, allowPlainText: boolean): ReturnType<typeof parsePasswordHash> {
  const end = text.indexOf(':');
  if (end === -1) return parsePasswordHash(text, { allowPlainText });
  const hash = parsePasswordHash(text.slice(0, end).trimEnd(), { allowPlainText });
  return 'algorithm' in hash && hash.algorithm === 'plain' ? parsePasswordHash(text, { allowPlainText }) : hash;
}

type LineRead = { readonly user: string } & ({ readonly hash: PasswordHash } | Fault);

function parseLine(content: string, allowPlainText: boolean, passwords: Map<string, number>): LineRead {
  const colon = content.indexOf(':');
  // Without a colon, the whole line may be a user name.
  if (colon === -1) return { user: content.trim().normalize('NFC'), problem: 'the line has no colon', hint: 'write user:hash' };
  const user = content.slice(0, colon).normalize('NFC');
  if (CONTROL.test(user)) return { user, problem: 'the user name contains a control character', hint: 'clients cannot send one' };
  const hash = parseStored(content.slice(colon + 1).trimEnd(), allowPlainText);
  if ('problem' in hash) return { user, ...hash };
  const count = (passwords.get(user) ?? 0) + 1;
  passwords.set(user, count);
  if (count > MAX_PASSWORDS)
    return { user, problem: `user ${user} has more than ${MAX_PASSWORDS} passwords`, hint: 'remove the oldest' };
  return { user, hash };
}
