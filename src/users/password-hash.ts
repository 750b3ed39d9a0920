/** Parses stored password hashes, rates their strength, and creates new ones. Loads the native bcrypt only when it is needed. */
import { argon2Sync, randomBytes } from 'node:crypto';
import { arch, platform, versions } from 'node:process';
import { type Bytes, parseBase64Key } from '../core/bytes.ts';
import { SidegateError, toErrorText } from '../core/errors.ts';
import type { Fault } from '../core/problem.ts';

/** The supported hash formats. */
type HashAlgorithm = 'bcrypt' | 'argon2id' | 'sha512-crypt' | 'sha256-crypt' | 'apr1' | 'sha1' | 'ssha' | 'plain';

/** A stored hash. Never logged, although it is not the password itself. */
export interface PasswordHash {
  readonly algorithm: HashAlgorithm;
  /** The algorithm and its cost parameters: checking two hashes of the same kind takes the same time. */
  readonly kind: string;
  /** Memory that a check allocates. */
  readonly memory: Bytes;
  /** The stored text. */
  readonly text: string;
  /** The rating that `sidegate check` reports. */
  readonly grade: 'good' | 'weak' | 'broken';
  /** How to improve a grade that is not good. */
  readonly advice?: string;
}

const BCRYPT = /^\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}$/;
/** bcrypt ignores bytes beyond this limit, so longer passwords are rejected. */
export const MAX_BCRYPT_BYTES = 72;
/** Memory in KiB, passes, lanes, salt and tag. */
export const ARGON2ID = /^\$argon2id\$v=19\$m=(\d{1,8}),t=(\d{1,4}),p=(\d{1,3})\$([A-Za-z0-9+/]{11,86})\$([A-Za-z0-9+/]{22,86})$/;
/** Variant, rounds, salt and checksum. */
export const SHA_CRYPT = /^\$([56])\$(?:rounds=(\d{1,9})\$)?([./A-Za-z0-9]{0,16})\$([./A-Za-z0-9]{43}|[./A-Za-z0-9]{86})$/;
/** Salt and checksum. */
export const APR1 = /^\$apr1\$([./A-Za-z0-9]{0,8})\$([./A-Za-z0-9]{22})$/;
const SHA1 = /^\{SHA\}([A-Za-z0-9+/]{27}=)$/;
/** SHA-1 of password and salt, and the salt, of at most 64 bytes (nginx, LDAP). */
export const SSHA = /^\{SSHA\}([A-Za-z0-9+/]{28,112}={0,2})$/;
const PLAIN = '{PLAIN}';
/** The formats of other servers that are not supported, by their beginnings. */
const UNSUPPORTED: readonly (readonly [start: RegExp, name: string])[] = [
  [/^\$1\$/, 'MD5 crypt'],
  [/^\$2x?\$/, 'an old form of bcrypt'],
  [/^\$(?:y|gy)\$/, 'yescrypt'],
  [/^\$7\$/, 'scrypt'],
  [/^\{CRYPT\}/i, 'crypt of LDAP'],
  [/^\{S?MD5\}/i, 'MD5 of LDAP'],
  [/^\{S?SHA[0-9]+\}/i, 'SHA-2 of LDAP'],
];
/** Of crypt(3) with DES, which `htpasswd -d` writes; some passwords look so as well. */
const DES = /^(?:[./A-Za-z0-9]{13}|_[./A-Za-z0-9]{19})$/;
/** Of a hash: hexadecimal, or all kinds of characters of an encoding of 6 bits. */
const DIGEST = '(?:[0-9a-fA-F]{32,}|(?=[^$]*[0-9])(?=[^$]*[a-z])(?=[^$]*[A-Z])[-./+=:\\w]{22,})$';
/** A stolen hash would be the password if such a text were one. Other texts with `$` are passwords. */
const LIKE_A_HASH: readonly RegExp[] = [
  // LDAP, Dovecot and Spring, of which only the forms above are supported.
  /^\{[-./\w]+\}/,
  // crypt(3) and MySQL: the known names, even if the rest is cut off.
  /^\$(?:[0-9]|2[a-z]|g?y|sm3|md5|sha1|apr1|p5k2|argon2[a-z]*|scrypt|pbkdf2[-\w]*|bcrypt[-\w]*|A\$[0-9]{3})[$,]/,
  /^\$[PHS]\$[./0-9A-Za-z]{20,}$/,
  // Django and Werkzeug: name$salt$digest.
  /^(?:unsalted_)?(?:md5|sha(?:1|224|256|384|512)|pbkdf2|scrypt|bcrypt|argon2|crypt)(?:[_:][:\w]+)?\$.*\$/,
  // Any other name.
  new RegExp(`^\\$?[-.:+\\w]+\\$.*\\$${DIGEST}`),
];

/** Memory of every format except argon2id; bcrypt needs 4 KiB. */
const SMALL: Bytes = 16 * 1_024;
/** OWASP's minimum for bcrypt. */
const GOOD_BCRYPT_COST = 10;
/** With a higher cost, each attempt would occupy a thread for seconds. */
const MAX_BCRYPT_COST = 16;
/** In KiB: OWASP's minimum with two passes, and the most that one check may allocate. */
const GOOD_ARGON2_MEMORY = 19_456;
const MAX_ARGON2_MEMORY = 262_144;
const MAX_ARGON2_PASSES = 20;
/** Rounds of sha-crypt if the hash does not specify them. */
export const DEFAULT_ROUNDS = 5_000;
const MIN_ROUNDS = 1_000;
const MAX_ROUNDS = 2_000_000;
const GOOD_ROUNDS = 50_000;

/** Parses one stored hash. */
export function parsePasswordHash(text: string, { allowPlainText }: { readonly allowPlainText: boolean }): PasswordHash | Fault {
  return parseBcrypt(text) ?? parseArgon2(text) ?? parseShaCrypt(text) ?? parseOld(text) ?? parseRest(text, allowPlainText);
}

function parseBcrypt(text: string): PasswordHash | Fault | undefined {
  const cost = BCRYPT.exec(text)?.[1];
  if (cost === undefined) return undefined;
  if (Number(cost) > MAX_BCRYPT_COST || Number(cost) < 4) {
    return { problem: `bcrypt with cost ${Number(cost)} is not accepted`, hint: `use a cost from 10 to ${MAX_BCRYPT_COST}` };
  }
  const hash = { algorithm: 'bcrypt', kind: `bcrypt cost ${Number(cost)}`, memory: SMALL, text } as const;
  if (Number(cost) >= GOOD_BCRYPT_COST) return { ...hash, grade: 'good' };
  return { ...hash, grade: 'weak', advice: `hash it again with a cost of ${GOOD_BCRYPT_COST} or more` };
}

function parseArgon2(text: string): PasswordHash | Fault | undefined {
  const found = ARGON2ID.exec(text);
  // Of a text that was cut off, most have bits that no writer leaves.
  if (found === null || [found[4], found[5]].some((part = '') => parseBase64Key(part) === undefined)) return undefined;
  if (argon2Sync === undefined) {
    return {
      problem: `argon2id needs Node 24.7 or newer; this is Node ${versions.node}`,
      hint: 'update Node, or create a bcrypt hash with `sidegate hash-password`',
    };
  }
  const [memory, passes, lanes] = [found[1], found[2], found[3]].map(Number) as [number, number, number];
  if (memory < 8 * lanes || memory > MAX_ARGON2_MEMORY || passes < 1 || passes > MAX_ARGON2_PASSES || lanes < 1) {
    return {
      problem: `argon2id with m=${memory}, t=${passes}, p=${lanes} is not accepted`,
      hint: `use at most m=${MAX_ARGON2_MEMORY} (KiB) and t=${MAX_ARGON2_PASSES}`,
    };
  }
  const kind = `argon2id m=${memory} t=${passes} p=${lanes}`;
  const hash = { algorithm: 'argon2id', kind, memory: memory * 1_024, text } as const;
  if (memory * passes >= GOOD_ARGON2_MEMORY * 2) return { ...hash, grade: 'good' };
  return { ...hash, grade: 'weak', advice: `hash it again with m=${GOOD_ARGON2_MEMORY}, t=2 or more` };
}

function parseShaCrypt(text: string): PasswordHash | Fault | undefined {
  const found = SHA_CRYPT.exec(text);
  if (found === null || (found[4] as string).length !== (found[1] === '5' ? 43 : 86)) return undefined;
  const rounds = Number(found[2] ?? DEFAULT_ROUNDS);
  if (rounds < MIN_ROUNDS || rounds > MAX_ROUNDS) {
    return { problem: `rounds=${rounds} is not accepted`, hint: `use ${MIN_ROUNDS} to ${MAX_ROUNDS}` };
  }
  const algorithm = found[1] === '5' ? 'sha256-crypt' : 'sha512-crypt';
  const hash = { algorithm, kind: `${algorithm} rounds ${rounds}`, memory: SMALL, text } as const;
  if (rounds >= GOOD_ROUNDS) return { ...hash, grade: 'good' };
  return { ...hash, grade: 'weak', advice: 'a GPU can try millions of passwords per second: hash it again with bcrypt' };
}

function parseOld(text: string): PasswordHash | undefined {
  const advice = 'a GPU can try billions of passwords per second: hash it again with bcrypt';
  if (APR1.test(text)) return { algorithm: 'apr1', kind: 'apr1', memory: SMALL, text, grade: 'broken', advice };
  if (SHA1.test(text))
    return { algorithm: 'sha1', kind: 'sha1', memory: SMALL, text, grade: 'broken', advice: `it has no salt, and ${advice}` };
  if (SSHA.test(text)) return { algorithm: 'ssha', kind: 'ssha', memory: SMALL, text, grade: 'broken', advice };
  return undefined;
}

function parseRest(text: string, allowPlainText: boolean): PasswordHash | Fault {
  const hint = 'create the entry with `sidegate hash-password` or htpasswd -B';
  if (text === '') return { problem: 'the hash is missing', hint };
  const isPlain = text.startsWith(PLAIN);
  const orPlain = allowPlainText ? `${hint}; if it is the password itself, write ${PLAIN} before it` : hint;
  if (!isPlain && LIKE_A_HASH.some((form) => form.test(text))) {
    const name = UNSUPPORTED.find(([start]) => start.test(text))?.[1];
    return {
      problem: `the hash is incomplete or has an unsupported format${name === undefined ? '' : `: ${name}`}`,
      hint: `${orPlain}; htpasswd -2 and -5 are also supported`,
    };
  }
  if (!isPlain && DES.test(text)) {
    const rest = allowPlainText ? 'it is ambiguous' : 'neither is accepted';
    return { problem: `DES crypt, or a plain-text password; ${rest}`, hint: orPlain };
  }
  if (!allowPlainText) return { problem: 'not a hash; plain-text passwords are not accepted', hint };
  const password = isPlain ? text.slice(PLAIN.length) : text;
  if (password === '') return { problem: 'the password is missing', hint };
  return { ...toPlainHash(password), grade: 'broken', advice: 'anyone who can read the file knows the password' };
}

/** A plain-text password from a source where that is expected, such as a mounted Secret. */
export function toPlainHash(text: string): PasswordHash {
  return { algorithm: 'plain', kind: 'plain', memory: SMALL, text, grade: 'good' };
}

/** The kind of hash to create. */
export type MadeHash =
  | { readonly algorithm: 'bcrypt' /** 10 to 16: each step doubles the work. */; readonly cost: number }
  | { readonly algorithm: 'argon2id' };

/** OWASP's minimum: 19 MiB, two passes. */
const MADE_ARGON2ID = { memory: 19_456, passes: 2, parallelism: 1, tagLength: 32 };
const SALT_BYTES = 16;
// biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern must match control characters
const CONTROL_CHARACTER = /[\u0000-\u001f\u007f]/;

/** Why a password cannot be stored, or undefined. */
export function findPasswordProblem(password: string, { algorithm }: MadeHash): Fault | undefined {
  if (algorithm === 'argon2id' && argon2Sync === undefined)
    return { problem: `argon2id needs Node 24.7 or newer; this is Node ${versions.node}`, hint: 'use --algorithm bcrypt' };
  if (password === '') return { problem: 'the password is empty', hint: 'enter a password' };
  if (CONTROL_CHARACTER.test(password))
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
  const { memory, passes, parallelism } = MADE_ARGON2ID;
  const nonce = randomBytes(SALT_BYTES);
  const tag = argon2Sync('argon2id', { message, nonce, ...MADE_ARGON2ID });
  const toText = (bytes: Buffer): string => bytes.toString('base64').replaceAll('=', '');
  return `$argon2id$v=19$m=${memory},t=${passes},p=${parallelism}$${toText(nonce)}$${toText(tag)}`;
}

// The native bcrypt, the only package that is not in the bundles.

type Bcrypt = typeof import('@node-rs/bcrypt');

const HINT =
  `install @node-rs/bcrypt with its optional dependencies, which include the build for ${platform}-${arch}, ` +
  'or use the container image';

/** Loads the package. Throws a SidegateError that says how to install it. */
async function loadBcrypt(): Promise<Bcrypt> {
  try {
    return await import('@node-rs/bcrypt');
  } catch (thrown) {
    const [reason = ''] = toErrorText(thrown).split('\n');
    throw new SidegateError('user', 'bcrypt_missing', `cannot load the native bcrypt: ${reason} (${HINT})`, { cause: thrown });
  }
}

/** Why passwords cannot be checked in this installation, or undefined. */
export async function findBcryptProblem(): Promise<Fault | undefined> {
  try {
    await loadBcrypt();
    return undefined;
  } catch {
    return { problem: 'passwords cannot be checked: the native bcrypt is missing or does not load', hint: HINT };
  }
}
