/** Turns the config's sources of users into sets of users, realm by realm. */
import { type Config, realmsOf, toSourceName, type UserSourceConfig } from '../config/config.ts';
import { readUserSource, toUserFiles, type UserText } from '../config/user-sources.ts';
import { type HashOptions, type PasswordHash, parsePasswordHash } from '../credentials/password-hash.ts';
import { UserSet, type UserSource } from '../credentials/user-set.ts';
import { parseHtpasswd, type UserEntry } from '../credentials/users.ts';
import type { Trouble } from './trouble.ts';

/** Trouble with a source; never holds a hash or a password. */
export interface UsersTrouble extends Trouble {
  readonly realm: string;
}

/** What reading a realm's sources gave; with an error among the troubles the set is not to be used. */
export interface RealmRead {
  readonly realm: string;
  readonly set: UserSet;
  readonly troubles: readonly UsersTrouble[];
  /** What to watch. */
  readonly files: readonly string[];
}

/** Reads the users of every realm that the config names. */
export async function readRealms(config: Config): Promise<RealmRead[]> {
  const reads = new Map<string, Promise<RealmRead>>();
  for (const { realm, path } of realmsOf(config)) {
    if (realm.users === undefined || reads.has(realm.realm)) continue;
    const options = { allowPlainText: realm.allowPlainTextPasswords };
    reads.set(realm.realm, readRealm(realm.realm, realm.users, [...path, 'users'].join('.'), options));
  }
  return Promise.all(reads.values());
}

async function readRealm(
  realm: string,
  sources: readonly UserSourceConfig[],
  path: string,
  options: HashOptions,
): Promise<RealmRead> {
  const troubles: UsersTrouble[] = [];
  const read: UserSource[] = [];
  for (const [index, source] of sources.entries()) {
    const tell = (severity: UsersTrouble['severity'], message: string, hint?: string): void => {
      const at = sources.length === 1 ? path : `${path}.${index}`;
      troubles.push({ severity, path: at, realm, message, ...(hint === undefined ? undefined : { hint }) });
    };
    const text = await readUserSource(source);
    if ('problem' in text) {
      tell('error', text.problem, text.hint);
      continue;
    }
    const entries = toEntries(text, options, tell);
    // A file that was emptied by accident must not lock everybody out in silence.
    if (entries.length === 0) tell('error', `${text.where} names no user`, 'nobody could come in');
    for (const entry of entries) grade(entry, text.where, tell);
    read.push({ name: toSourceName(source, index), notAfter: source.notAfter, entries });
  }
  return { realm, set: new UserSet(read), troubles, files: sources.flatMap(toUserFiles) };
}

type Tell = (severity: UsersTrouble['severity'], message: string, hint?: string) => void;

function toEntries(text: UserText, options: HashOptions, tell: Tell): readonly UserEntry[] {
  switch (text.kind) {
    case 'htpasswd': {
      const { entries, problems } = parseHtpasswd(text.text, options);
      for (const { line, problem, hint } of problems) tell('error', `${text.where}:${line}: ${problem}`, hint);
      return entries;
    }
    case 'pair': {
      if (text.user.includes(':')) tell('error', `${text.where}: the user has a colon`, 'no client can send one (RFC 7617 §2)');
      if (text.user === '' || text.password === '') tell('error', `${text.where}: user or password is empty`);
      // The Secret's type has the password as it is; whoever can read it needs no guessing.
      const hash: PasswordHash = { algorithm: 'plain', kind: 'plain', text: text.password.normalize('NFC'), grade: 'good' };
      return [{ user: text.user.normalize('NFC'), hash, line: 1 }];
    }
    case 'map':
      return [...text.hashes].flatMap(([user, stored]) => {
        const hash = parsePasswordHash(stored, options);
        if (!('problem' in hash)) return [{ user: user.normalize('NFC'), hash, line: 1 }];
        tell('error', `${text.where}/${user}: ${hash.problem}`, hash.hint);
        return [];
      });
  }
}

function grade({ user, hash, line }: UserEntry, where: string, tell: Tell): void {
  if (hash.grade === 'good') return;
  tell('warning', `${where}:${line}: the password of ${user} is stored as ${hash.kind}, which is ${hash.grade}`, hash.advice);
}
