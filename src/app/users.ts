/** Reads the users of each realm from the sources in the config. */

import {
  type Config,
  type LimitsConfig,
  type RealmConfig,
  realmsOf,
  toSourceName,
  type UserSourceConfig,
} from '../config/schema/config.ts';
import { readUserSource, toUserFiles, type UserText } from '../config/sources/secrets.ts';
import type { Bytes } from '../core/bytes.ts';
import { error, type Path, type Problem, under, unwrap, warning } from '../core/problem.ts';
import { readContainerMemory } from '../http/server/memory.ts';
import { toHashBudget, toLargestHash } from '../users/hash-pool.ts';
import { parsePasswordHash, toPlainHash } from '../users/password-hash.ts';
import { parseHtpasswd, type UserEntry, UserSet, type UserSource } from '../users/user-set.ts';

/** For each source. */
const MAX_WARNINGS = 20;

/** The result of reading a realm's sources. */
export interface RealmRead {
  readonly realm: string;
  /** The users that can log in; none if a source is missing or names no usable user: then the realm is unavailable. */
  readonly set: UserSet;
  /** How many users cannot log in because their entry is invalid. */
  readonly rejected: number;
  readonly problems: readonly Problem[];
  /** The files to watch. */
  readonly files: readonly string[];
  /** A source could not be read, for a reason that may be temporary: too many open files, or a disk error. */
  readonly isUnread: boolean;
}

/** The memory that password hashing may use, from the config or else from the container's limit; undefined: no limit. */
export function toPasswordMemory({ passwordMemory }: LimitsConfig): Bytes | undefined {
  return passwordMemory ?? toHashBudget(readContainerMemory());
}

/** Reads the users of every realm that the config names; with `changed`, only of those that read one of these files. */
export async function readRealms(config: Config, changed?: readonly string[]): Promise<RealmRead[]> {
  const reads = new Map<string, Promise<RealmRead>>();
  const memory = toPasswordMemory(config.limits);
  for (const { realm, path } of realmsOf(config)) {
    if (realm.users === undefined || reads.has(realm.realm)) continue;
    const files = realm.users.flatMap(toUserFiles);
    if (changed !== undefined && !files.some((file) => changed.includes(file))) continue;
    const reader = new RealmReader(realm, realm.users, [...path, 'users'], memory);
    reads.set(realm.realm, reader.read(files));
  }
  return Promise.all(reads.values());
}

/** Reads the sources of one realm. */
class RealmReader {
  readonly #realm: Pick<RealmConfig, 'realm' | 'allowPlainTextPasswords'>;
  readonly #sources: readonly UserSourceConfig[];
  readonly #path: Path;
  readonly #memory: Bytes | undefined;
  readonly #rejected = new Set<string>();
  #isUnread = false;

  constructor(
    realm: Pick<RealmConfig, 'realm' | 'allowPlainTextPasswords'>,
    sources: readonly UserSourceConfig[],
    path: Path,
    memory: Bytes | undefined,
  ) {
    this.#realm = realm;
    this.#sources = sources;
    this.#path = path;
    this.#memory = memory;
  }

  async read(files: readonly string[]): Promise<RealmRead> {
    const read: UserSource[] = [];
    const problems: Problem[] = [];
    let isComplete = true;
    for (const [index, source] of this.#sources.entries()) {
      const found: Problem[] = [];
      const entries = await this.#readSource(source, found);
      problems.push(...under(this.#sources.length === 1 ? this.#path : [...this.#path, index], found));
      if (entries.length === 0) isComplete = false;
      read.push({ name: toSourceName(source, index), notAfter: source.notAfter, entries });
    }
    // After all sources: an invalid entry in one of them may be meant to replace an entry in another.
    const usable = read.map((source) => ({ ...source, entries: source.entries.filter(({ user }) => !this.#rejected.has(user)) }));
    const set = new UserSet(isComplete ? usable : []);
    const [{ realm }, rejected, isUnread] = [this.#realm, this.#rejected.size, this.#isUnread];
    return { realm, set, rejected, problems, files, isUnread };
  }

  /** Paths of problems are relative to the source. */
  async #readSource(source: UserSourceConfig, problems: Problem[]): Promise<readonly UserEntry[]> {
    const text = unwrap(await readUserSource(source), [], problems);
    if (text === undefined) {
      this.#isUnread = true;
      return [];
    }
    const entries = this.#toEntries(text, problems).filter((entry) => this.#isAffordable(entry, text.where, problems));
    // A file that was emptied by accident must not lock everybody out without an error.
    if (entries.length === 0) problems.push(error([], `${text.where} contains no users`, 'nobody could log in'));
    problems.push(...findWeakHashes(entries, text.where));
    return entries;
  }

  #toEntries(text: UserText, found: Problem[]): readonly UserEntry[] {
    const options = { allowPlainText: this.#realm.allowPlainTextPasswords };
    switch (text.kind) {
      case 'htpasswd': {
        const { entries, problems, problemCount, rejected } = parseHtpasswd(text.text, options);
        for (const { line, problem, hint } of problems) found.push(error([], `${text.where}:${line}: ${problem}`, hint));
        const more = problemCount - problems.length;
        if (more > 0) found.push(error([], `${text.where}: ${more} more lines have a problem`));
        for (const user of rejected) this.#rejected.add(user);
        return entries;
      }
      case 'pair': {
        const user = text.user.normalize('NFC');
        // This type of Secret has the password in plain text, so a slow hash would protect nothing.
        const entry = { user, hash: toPlainHash(text.password.normalize('NFC')), line: 1 };
        if (!text.user.includes(':') && text.user !== '' && text.password !== '') return [entry];
        if (text.user.includes(':'))
          found.push(error([], `${text.where}: the user name contains a colon`, 'no client can send one (RFC 7617 §2)'));
        else found.push(error([], `${text.where}: user or password is empty`));
        this.#rejected.add(user);
        return [];
      }
      case 'map':
        return [...text.hashes].flatMap(([name, stored]) => {
          const user = name.normalize('NFC');
          const hash = parsePasswordHash(stored, options);
          if (!('problem' in hash)) return [{ user, hash, line: 1 }];
          found.push(error([], `${text.where}/${name}: ${hash.problem}`, hash.hint));
          this.#rejected.add(user);
          return [];
        });
    }
  }

  /** A hash that needs more memory than there is would get the process killed, and every route with it. */
  #isAffordable({ user, hash, line }: UserEntry, where: string, problems: Problem[]): boolean {
    const largest = toLargestHash(this.#memory);
    if (hash.memory <= largest) return true;
    const message = `${where}:${line}: the password of ${user} is stored as ${hash.kind}, which needs ${toMebibytes(hash.memory)} MiB; password hashing may use ${toMebibytes(largest)} MiB`;
    const hint = 'hash it again with less memory, or raise limits.passwordMemory or the memory limit of the container';
    problems.push(error([], message, hint));
    this.#rejected.add(user);
    return false;
  }
}

function toMebibytes(bytes: Bytes): string {
  return (bytes / 2 ** 20).toFixed(0);
}

/** Weak and broken hashes: of the first by name, of the rest by number. */
function findWeakHashes(entries: readonly UserEntry[], where: string): Problem[] {
  const weak = entries.filter(({ hash }) => hash.grade !== 'good');
  const found = weak
    .slice(0, MAX_WARNINGS)
    .map(({ user, hash, line }) =>
      warning([], `${where}:${line}: the password of ${user} is stored as ${hash.kind}, which is ${hash.grade}`, hash.advice),
    );
  const more = weak.length - MAX_WARNINGS;
  return more > 0 ? [...found, warning([], `${where}: ${more} more passwords are stored in a weak or broken form`)] : found;
}
