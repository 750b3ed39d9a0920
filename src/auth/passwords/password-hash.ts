/** Stored password hashes: what each form is, and how good it is. */
import { argon2Sync } from 'node:crypto';
import { versions } from 'node:process';

/** A size in bytes. */
export type Bytes = number;

/** Every form that is read. */
export type HashAlgorithm = 'bcrypt' | 'argon2id' | 'sha512-crypt' | 'sha256-crypt' | 'apr1' | 'sha1' | 'plain';

/** A stored hash. It tells nothing of the password but what whoever reads the file knows anyway, and is still never logged. */
export interface PasswordHash {
  readonly algorithm: HashAlgorithm;
  /** Everything that decides what a check costs: two hashes of one kind cost the same. */
  readonly kind: string;
  /** What a check allocates. */
  readonly memory: Bytes;
  /** As it is stored. */
  readonly text: string;
  /** What `check` says of it. */
  readonly grade: 'good' | 'weak' | 'broken';
  /** What to do about a grade that is not good. */
  readonly advice?: string;
}

/** Why a hash is not taken. */
export interface HashProblem {
  readonly problem: string;
  readonly hint: string;
}

/** What else is taken. */
export interface HashOptions {
  /** Passwords that are stored as they are. */
  readonly allowPlainText: boolean;
}

const BCRYPT = /^\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}$/;
/** bcrypt's own limit in bytes: what is beyond it would be ignored, so it is refused. */
export const BCRYPT_LONGEST = 72;
/** Memory in KiB, passes, lanes, salt and tag. */
export const ARGON2ID = /^\$argon2id\$v=19\$m=(\d{1,8}),t=(\d{1,4}),p=(\d{1,3})\$([A-Za-z0-9+/]{11,86})\$([A-Za-z0-9+/]{22,86})$/;
/** Which, rounds, salt and checksum. */
export const SHA_CRYPT = /^\$([56])\$(?:rounds=(\d{1,9})\$)?([./A-Za-z0-9]{0,16})\$([./A-Za-z0-9]{43}|[./A-Za-z0-9]{86})$/;
/** Salt and checksum. */
export const APR1 = /^\$apr1\$([./A-Za-z0-9]{0,8})\$([./A-Za-z0-9]{22})$/;
const SHA1 = /^\{SHA\}([A-Za-z0-9+/]{27}=)$/;
const LIKE_A_HASH = /^(?:\$[0-9a-z]|\{[A-Z0-9]+\})/;

/** Of every form but argon2id; bcrypt needs 4 KiB. */
const SMALL: Bytes = 16 * 1_024;
/** OWASP's floor for bcrypt. */
const GOOD_BCRYPT_COST = 10;
/** More would hold a thread for seconds at each attempt. */
const HIGHEST_BCRYPT_COST = 16;
/** KiB; OWASP's floor with two passes, and what one check may take of the container's memory. */
const GOOD_ARGON2_MEMORY = 19_456;
const HIGHEST_ARGON2_MEMORY = 262_144;
const HIGHEST_ARGON2_PASSES = 20;
/** Of sha-crypt, where the hash says nothing else. */
export const DEFAULT_ROUNDS = 5_000;
const LOWEST_ROUNDS = 1_000;
const HIGHEST_ROUNDS = 2_000_000;
const GOOD_ROUNDS = 50_000;

/** Reads one stored hash. */
export function parsePasswordHash(text: string, options: HashOptions): PasswordHash | HashProblem {
  return parseBcrypt(text) ?? parseArgon2(text) ?? parseShaCrypt(text) ?? parseOld(text) ?? parseRest(text, options);
}

function parseBcrypt(text: string): PasswordHash | HashProblem | undefined {
  const cost = BCRYPT.exec(text)?.[1];
  if (cost === undefined) return undefined;
  if (Number(cost) > HIGHEST_BCRYPT_COST || Number(cost) < 4) {
    return { problem: `bcrypt with cost ${Number(cost)} is not taken`, hint: `use 10 to ${HIGHEST_BCRYPT_COST}` };
  }
  const hash = { algorithm: 'bcrypt', kind: `bcrypt cost ${Number(cost)}`, memory: SMALL, text } as const;
  if (Number(cost) >= GOOD_BCRYPT_COST) return { ...hash, grade: 'good' };
  return { ...hash, grade: 'weak', advice: `hash it again with a cost of ${GOOD_BCRYPT_COST} or more` };
}

function parseArgon2(text: string): PasswordHash | HashProblem | undefined {
  const found = ARGON2ID.exec(text);
  if (found === null) return undefined;
  if (argon2Sync === undefined) {
    return {
      problem: `argon2id needs Node 24.7 or newer; this is Node ${versions.node}`,
      hint: 'update Node, or make a bcrypt hash with `sidegate hash-password`',
    };
  }
  const [memory, passes, lanes] = [found[1], found[2], found[3]].map(Number) as [number, number, number];
  if (memory < 8 * lanes || memory > HIGHEST_ARGON2_MEMORY || passes < 1 || passes > HIGHEST_ARGON2_PASSES || lanes < 1) {
    return {
      problem: `argon2id with m=${memory}, t=${passes}, p=${lanes} is not taken`,
      hint: `use at most m=${HIGHEST_ARGON2_MEMORY} (KiB) and t=${HIGHEST_ARGON2_PASSES}`,
    };
  }
  const kind = `argon2id m=${memory} t=${passes} p=${lanes}`;
  const hash = { algorithm: 'argon2id', kind, memory: memory * 1_024, text } as const;
  if (memory * passes >= GOOD_ARGON2_MEMORY * 2) return { ...hash, grade: 'good' };
  return { ...hash, grade: 'weak', advice: `hash it again with m=${GOOD_ARGON2_MEMORY}, t=2 or more` };
}

function parseShaCrypt(text: string): PasswordHash | HashProblem | undefined {
  const found = SHA_CRYPT.exec(text);
  if (found === null || (found[4] as string).length !== (found[1] === '5' ? 43 : 86)) return undefined;
  const rounds = Number(found[2] ?? DEFAULT_ROUNDS);
  if (rounds < LOWEST_ROUNDS || rounds > HIGHEST_ROUNDS) {
    return { problem: `rounds=${rounds} is not taken`, hint: `use ${LOWEST_ROUNDS} to ${HIGHEST_ROUNDS}` };
  }
  const algorithm = found[1] === '5' ? 'sha256-crypt' : 'sha512-crypt';
  const hash = { algorithm, kind: `${algorithm} rounds ${rounds}`, memory: SMALL, text } as const;
  if (rounds >= GOOD_ROUNDS) return { ...hash, grade: 'good' };
  return { ...hash, grade: 'weak', advice: 'a graphics card tries millions a second: hash it again with bcrypt' };
}

function parseOld(text: string): PasswordHash | undefined {
  const advice = 'a graphics card tries billions a second: hash it again with bcrypt';
  if (APR1.test(text)) return { algorithm: 'apr1', kind: 'apr1', memory: SMALL, text, grade: 'broken', advice };
  if (SHA1.test(text))
    return { algorithm: 'sha1', kind: 'sha1', memory: SMALL, text, grade: 'broken', advice: `it has no salt, and ${advice}` };
  return undefined;
}

function parseRest(text: string, { allowPlainText }: HashOptions): PasswordHash | HashProblem {
  const hint = 'make the entry with `sidegate hash-password`, or htpasswd -B';
  if (text === '') return { problem: 'there is no hash', hint };
  if (LIKE_A_HASH.test(text)) {
    return { problem: 'the hash is not complete, or of a form that is not read', hint: `${hint}; or -2 and -5 of htpasswd` };
  }
  if (!allowPlainText) return { problem: 'this is no hash; a password in plain text is not taken', hint };
  return { ...toPlainHash(text), grade: 'broken', advice: 'whoever reads the file has the password' };
}

/** A password that is stored as it is, in a place that only its readers need to be trusted with. */
export function toPlainHash(text: string): PasswordHash {
  return { algorithm: 'plain', kind: 'plain', memory: SMALL, text, grade: 'good' };
}
