/** Checks a password against a stored hash. Only the password threads load this module, because it loads the native bcrypt. */
import { argon2Sync, hash } from 'node:crypto';
import { verifySync as verifyBcrypt } from '@node-rs/bcrypt';
import { isEqualInConstantTime, parseBase64 } from '../core/bytes.ts';
import { apr1, type ShaCryptId, shaCrypt } from './crypt.ts';
import { APR1, ARGON2ID, DEFAULT_ROUNDS, MAX_BCRYPT_BYTES, type PasswordHash, SHA_CRYPT, SSHA } from './password-hash.ts';

const SHA1_LENGTH = 20;

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
  const expected = fromUnpadded(sum);
  const made = argon2Sync('argon2id', {
    message: password,
    nonce: fromUnpadded(salt),
    memory: Number(memory),
    passes: Number(passes),
    parallelism: Number(lanes),
    tagLength: expected.length,
  });
  return isEqualInConstantTime(made, expected);
}

function fromUnpadded(text: string): Buffer {
  return parseBase64(text.padEnd(Math.ceil(text.length / 4) * 4, '=')) ?? Buffer.alloc(0);
}

function isSame(made: string, stored: string): boolean {
  return isEqualInConstantTime(Buffer.from(made), Buffer.from(stored));
}
