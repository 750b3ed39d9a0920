/** `sidegate hash-password`: creates an entry for a users file. */
import { usageError } from '../core/errors.ts';
import { findPasswordProblem, type MadeHash, makeHash } from '../users/password-hash.ts';
import { promptForPasswords, readPipedPassword } from './input.ts';
import { EXIT, type Io } from './io.ts';

const MIN_COST = 10;
const MAX_COST = 16;

/** Reads a password (from a terminal: twice, without echo), and prints `user:hash`, or only the hash. */
export async function hashPassword(
  user: string | undefined,
  options: {
    readonly algorithm: string;
    readonly cost: string;
  },
  io: Io,
): Promise<number> {
  const made = toMade(options.algorithm, options.cost);
  if (user?.includes(':')) throw usageError('a user name cannot contain a colon (RFC 7617 §2)');
  const password = await readPassword(io);
  const problem = findPasswordProblem(password, made);
  if (problem !== undefined) throw usageError(`${problem.problem}: ${problem.hint}`);
  const hash = await makeHash(password, made);
  io.stdout(user === undefined ? `${hash}\n` : `${user.normalize('NFC')}:${hash}\n`);
  return EXIT.ok;
}

function toMade(algorithm: string, cost: string): MadeHash {
  if (algorithm === 'argon2id') return { algorithm };
  if (algorithm !== 'bcrypt') throw usageError(`--algorithm ${algorithm} is not one of bcrypt, argon2id`);
  const number = Number(cost);
  if (!/^\d\d$/.test(cost) || number < MIN_COST || number > MAX_COST)
    throw usageError(`--cost ${cost} is not an integer from ${MIN_COST} to ${MAX_COST}`);
  return { algorithm, cost: number };
}

/** Scripts pipe the password. */
async function readPassword(io: Io): Promise<string> {
  if (io.stdin.isTTY !== true) return readPipedPassword(io);
  const [first = '', second] = await promptForPasswords(['Password: ', 'Repeat password: '], io);
  if (first !== second) throw usageError('the passwords do not match');
  return first;
}
