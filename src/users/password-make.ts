/** Creates stored hashes. */
import { argon2Sync, randomBytes } from 'node:crypto';
import { versions } from 'node:process';
import { loadBcrypt } from './native-bcrypt.ts';
import { MAX_BCRYPT_BYTES } from './password-hash.ts';

/** The kind of hash to create. */
export type MadeHash =
  | { readonly algorithm: 'bcrypt' /** 10 to 16: each step doubles the work. */; readonly cost: number }
  | { readonly algorithm: 'argon2id' };

/** Why a password cannot be stored. */
export interface PasswordProblem {
  readonly problem: string;
  readonly hint: string;
}

/** OWASP's minimum: 19 MiB, two passes. */
const ARGON2ID = { memory: 19_456, passes: 2, parallelism: 1, tagLength: 32 };
const SALT_BYTES = 16;
// biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern must match control characters
const CONTROL = /[\u0000-\u001f\u007f]/;

/** Why a password cannot be stored, or undefined. */
export function findPasswordProblem(password: string, { algorithm }: MadeHash): PasswordProblem | undefined {
  if (algorithm === 'argon2id' && argon2Sync === undefined)
    return { problem: `argon2id needs Node 24.7 or newer; this is Node ${versions.node}`, hint: 'use --algorithm bcrypt' };
  if (password === '') return { problem: 'the password is empty', hint: 'enter a password' };
  if (CONTROL.test(password))
    return { problem: 'the password contains a control character', hint: 'clients cannot send one (RFC 7617 §2)' };
  const { length } = Buffer.from(password.normalize('NFC'));
  if (algorithm === 'bcrypt' && length > MAX_BCRYPT_BYTES)
    return {
      problem: `the password has ${length} bytes; bcrypt supports at most ${MAX_BCRYPT_BYTES}`,
      hint: 'use --algorithm argon2id',
    };
  return undefined;
}

/** Creates the hash for a users file. The password is normalized to NFC, as are the passwords in requests. */
export async function makeHash(password: string, made: MadeHash): Promise<string> {
  const bytes = Buffer.from(password.normalize('NFC'));
  if (made.algorithm === 'argon2id') return makeArgon2id(bytes);
  const { hash } = await loadBcrypt();
  // The same algorithm, under the prefix that htpasswd and its readers use.
  return (await hash(bytes, made.cost)).replace(/^\$2b\$/, '$2y$');
}

function makeArgon2id(message: Buffer): string {
  const { memory, passes, parallelism } = ARGON2ID;
  const nonce = randomBytes(SALT_BYTES);
  const tag = argon2Sync('argon2id', { message, nonce, ...ARGON2ID });
  const toText = (bytes: Buffer): string => bytes.toString('base64').replaceAll('=', '');
  return `$argon2id$v=19$m=${memory},t=${passes},p=${parallelism}$${toText(nonce)}$${toText(tag)}`;
}
