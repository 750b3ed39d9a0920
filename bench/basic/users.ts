/** The users of the benchmark of Basic, their stored hashes, and the header lines that loads send. */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { makeHash } from '../../src/users/password-make.ts';

/** A user with a valid password. */
export interface User {
  readonly name: string;
  readonly password: string;
  readonly hash: string;
}

/** All users and files, by purpose. */
export interface Users {
  /** Many, bcrypt cost 10. */
  readonly steady: readonly User[];
  /** The user whose password is guessed, then the user who logs in; both bcrypt with cost 11. */
  readonly storm: readonly [User, User];
  /** One user per algorithm. */
  readonly mixed: readonly User[];
}

const STEADY_USERS = 16;
const STEADY_COST = 10;
const STORM_COST = 11;
const MIXED_COSTS = [10, 11];
/** Separates the fields of one request in a file of requests. */
const FIELD_END = '\t';

/** Creates all users with new passwords. */
export async function makeUsers(): Promise<Users> {
  const steady: User[] = [];
  for (let i = 0; i < STEADY_USERS; i++) steady.push(await makeUser(`user-${i + 10}`, STEADY_COST));
  const storm = [await makeUser('known', STORM_COST), await makeUser('guest', STORM_COST)] as const;
  const mixed: User[] = [];
  for (const cost of MIXED_COSTS) mixed.push(await makeUser(`bcrypt-${cost}`, cost));
  mixed.push(await withHash('argon2-id', (password) => makeHash(password, { algorithm: 'argon2id' })));
  mixed.push(await withHash('sha-512-c', (password) => askOpenssl('-6', password)));
  mixed.push(await withHash('apr-1-md5', (password) => askOpenssl('-apr1', password)));
  return { steady, storm, mixed };
}

/** Writes an htpasswd file. */
export function writeUsers(folder: string, name: string, users: readonly User[]): string {
  const file = join(folder, name);
  writeFileSync(file, users.map(({ name: user, hash }) => `${user}:${hash}\n`).join(''));
  return file;
}

/** Writes the requests of a load: one line per request, with its header fields separated by TAB. */
export function writeRequests(folder: string, name: string, requests: readonly (readonly string[])[]): string {
  const file = join(folder, name);
  writeFileSync(file, requests.map((fields) => `${fields.join(FIELD_END)}\n`).join(''));
  return file;
}

/** The header field with a user's password, or another password. */
export function toAuthorization({ name, password }: Pick<User, 'name' | 'password'>): string {
  return `Authorization: Basic ${Buffer.from(`${name}:${password}`).toString('base64')}`;
}

/** A wrong password of the same strength as the right ones. */
export function makePassword(): string {
  return randomBytes(12).toString('base64url');
}

function makeUser(name: string, cost: number): Promise<User> {
  return withHash(name, (password) => makeHash(password, { algorithm: 'bcrypt', cost }));
}

async function withHash(name: string, make: (password: string) => string | Promise<string>): Promise<User> {
  const password = makePassword();
  return { name, password, hash: await make(password) };
}

function askOpenssl(kind: string, password: string): string {
  return execFileSync('openssl', ['passwd', kind, '-stdin'], { input: password, encoding: 'utf8' }).trim();
}
