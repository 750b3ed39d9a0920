/**
 * Checks a password against a stored hash. Only the password threads load this module, because it loads the native bcrypt. No package that is kept up to
 * date has sha256-crypt, sha512-crypt and Apache's apr1.
 */
import { argon2Sync, hash } from 'node:crypto';
import { verifySync as verifyBcrypt } from '@node-rs/bcrypt';
import { isEqualInConstantTime, parseBase64Key } from '../core/bytes.ts';
import { APR1, ARGON2ID, DEFAULT_ROUNDS, MAX_BCRYPT_BYTES, type PasswordHash, SHA_CRYPT, SSHA } from './password-hash.ts';

const SHA1_LENGTH = 20;

const ALPHABET = './0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const APR1_ROUNDS = 1_000;

/** The order in which each scheme encodes its bytes: three bytes per four characters, most significant first; the last group is shorter. */
const SHA256_ORDER = [
  0, 10, 20, 21, 1, 11, 12, 22, 2, 3, 13, 23, 24, 4, 14, 15, 25, 5, 6, 16, 26, 27, 7, 17, 18, 28, 8, 9, 19, 29, 31, 30,
];
const SHA512_ORDER = [
  0, 21, 42, 22, 43, 1, 44, 2, 23, 3, 24, 45, 25, 46, 4, 47, 5, 26, 6, 27, 48, 28, 49, 7, 50, 8, 29, 9, 30, 51, 31, 52, 10, 53,
  11, 32, 12, 33, 54, 34, 55, 13, 56, 14, 35, 15, 36, 57, 37, 58, 16, 59, 17, 38, 18, 39, 60, 40, 61, 19, 62, 20, 41, 63,
];
const MD5_ORDER = [0, 6, 12, 1, 7, 13, 2, 8, 14, 3, 9, 15, 4, 10, 5, 11];

/** Which of the two SHA schemes. */
type ShaCryptId = '5' | '6';

/** Whether the password matches the hash. Slow by design, so it must not run on the event loop. */
export function verifyPassword({ algorithm, text }: Pick<PasswordHash, 'algorithm' | 'text'>, password: Buffer): boolean {
  switch (algorithm) {
    case 'bcrypt':
      return password.length <= MAX_BCRYPT_BYTES && !password.includes(0) && verifyBcrypt(password, text);
    case 'argon2id':
      return verifyArgon2(text, password);
    case 'sha256-crypt':
    case 'sha512-crypt': {
      const [, id, rounds, salt = '', sum = ''] = SHA_CRYPT.exec(text) ?? [];
      return isSame(shaCrypt(id as ShaCryptId, password, Buffer.from(salt), Number(rounds ?? DEFAULT_ROUNDS)), sum);
    }
    case 'apr1': {
      const [, salt = '', sum = ''] = APR1.exec(text) ?? [];
      return isSame(apr1(password, Buffer.from(salt)), sum);
    }
    case 'sha1':
      return isSame(hash('sha1', password, 'base64'), text.slice('{SHA}'.length));
    case 'ssha': {
      const stored = Buffer.from(SSHA.exec(text)?.[1] ?? '', 'base64');
      const made = hash('sha1', Buffer.concat([password, stored.subarray(SHA1_LENGTH)]), 'buffer');
      return isEqualInConstantTime(made, stored.subarray(0, SHA1_LENGTH));
    }
    case 'plain':
      return isEqualInConstantTime(hash('sha256', password, 'buffer'), hash('sha256', text, 'buffer'));
  }
}

function verifyArgon2(text: string, password: Buffer): boolean {
  const [, memory, passes, lanes, salt = '', sum = ''] = ARGON2ID.exec(text) ?? [];
  // `parsePasswordHash` decoded both.
  const [nonce, expected] = [parseBase64Key(salt), parseBase64Key(sum)] as [Buffer, Buffer];
  const made = argon2Sync('argon2id', {
    message: password,
    nonce,
    memory: Number(memory),
    passes: Number(passes),
    parallelism: Number(lanes),
    tagLength: expected.length,
  });
  return isEqualInConstantTime(made, expected);
}

function isSame(made: string, stored: string): boolean {
  return isEqualInConstantTime(Buffer.from(made), Buffer.from(stored));
}

/** The checksum's characters (Drepper's “Unix crypt using SHA-256 and SHA-512”, version 0.6). */
function shaCrypt(id: ShaCryptId, password: Buffer, salt: Buffer, rounds: number): string {
  const digest = (...parts: readonly Buffer[]): Buffer => hash(id === '5' ? 'sha256' : 'sha512', Buffer.concat(parts), 'buffer');
  const both = digest(password, salt, password);
  const start = [password, salt, repeat(both, password.length)];
  for (let bits = password.length; bits > 0; bits >>= 1) start.push((bits & 1) === 1 ? both : password);
  let sum = digest(...start);
  const p = repeat(digest(...Array.from({ length: password.length }, () => password)), password.length);
  const s = repeat(digest(...Array.from({ length: 16 + (sum[0] as number) }, () => salt)), salt.length);
  for (let round = 0; round < rounds; round++) sum = digest(...toRound(round, sum, p, s));
  return toText(sum, id === '5' ? SHA256_ORDER : SHA512_ORDER);
}

/** The checksum's characters (Apache's `apr_md5_encode`). */
function apr1(password: Buffer, salt: Buffer): string {
  const digest = (...parts: readonly Buffer[]): Buffer => hash('md5', Buffer.concat(parts), 'buffer');
  const start = [password, Buffer.from('$apr1$'), salt, repeat(digest(password, salt, password), password.length)];
  for (let bits = password.length; bits > 0; bits >>= 1) start.push((bits & 1) === 1 ? Buffer.alloc(1) : password.subarray(0, 1));
  let sum = digest(...start);
  for (let round = 0; round < APR1_ROUNDS; round++) sum = digest(...toRound(round, sum, password, salt));
  return toText(sum, MD5_ORDER);
}

function toRound(round: number, sum: Buffer, password: Buffer, salt: Buffer): Buffer[] {
  const isOdd = round % 2 === 1;
  const parts = [isOdd ? password : sum];
  if (round % 3 !== 0) parts.push(salt);
  if (round % 7 !== 0) parts.push(password);
  parts.push(isOdd ? sum : password);
  return parts;
}

/** Repeats the bytes up to the given length. */
function repeat(bytes: Buffer, length: number): Buffer {
  return length === 0 ? Buffer.alloc(0) : Buffer.alloc(length, bytes);
}

function toText(sum: Buffer, order: readonly number[]): string {
  let text = '';
  for (let i = 0; i < order.length; i += 3) {
    const group = order.slice(i, i + 3).map((at) => sum[at] as number);
    let bits = group.reduce((all, byte) => (all << 8) | byte, 0);
    for (let left = Math.ceil((group.length * 8) / 6); left > 0; left--) {
      text += ALPHABET[bits & 63];
      bits >>>= 6;
    }
  }
  return text;
}
