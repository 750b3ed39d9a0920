/** `sidegate hash-password`: creates an entry for a users file. */

import type { ReadStream } from 'node:tty';
import { findPasswordProblem, type MadeHash, makeHash } from '../auth/passwords/password-make.ts';
import { usageError } from '../core/errors.ts';
import { offEvent, onEvent } from '../core/safe-events.ts';
import { EXIT, type Io } from './io.ts';

/** Options of the command. */
export interface HashPasswordOptions {
  readonly algorithm: string;
  readonly cost: string;
}

const MIN_COST = 10;
const MAX_COST = 16;
const ENTER = new Set(['\r', '\n', '\u0004']);
const BACKSPACE = new Set(['\u007f', '\b']);
const CANCEL = '\u0003';

/** Reads a password (from a terminal: twice, without echo), and prints `user:hash`, or only the hash. */
export async function hashPassword(user: string | undefined, options: HashPasswordOptions, io: Io): Promise<number> {
  const made = toMade(options);
  if (user?.includes(':')) throw usageError('a user name cannot contain a colon (RFC 7617 §2)');
  const password = io.stdin.isTTY === true ? await promptTwice(io) : await readLine(io);
  const problem = findPasswordProblem(password, made);
  if (problem !== undefined) throw usageError(`${problem.problem}: ${problem.hint}`);
  const hash = await makeHash(password, made);
  io.stdout(user === undefined ? `${hash}\n` : `${user.normalize('NFC')}:${hash}\n`);
  return EXIT.ok;
}

function toMade({ algorithm, cost }: HashPasswordOptions): MadeHash {
  if (algorithm === 'argon2id') return { algorithm };
  if (algorithm !== 'bcrypt') throw usageError(`--algorithm ${algorithm} is not one of bcrypt, argon2id`);
  const number = Number(cost);
  if (!/^\d\d$/.test(cost) || number < MIN_COST || number > MAX_COST)
    throw usageError(`--cost ${cost} is not an integer from ${MIN_COST} to ${MAX_COST}`);
  return { algorithm, cost: number };
}

/** Reads the first line of standard input. Scripts pipe the password, because an argument would be visible in the process list. */
async function readLine({ stdin }: Io): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stdin) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks)
    .toString()
    .replace(/\r?\n[\s\S]*$/, '');
}

/** Disables echo before showing the prompt, so that nothing typed early is visible either. */
async function promptTwice(io: Io): Promise<string> {
  const terminal = io.stdin as ReadStream;
  terminal.setRawMode(true);
  terminal.setEncoding('utf8');
  try {
    const first = await prompt('Password: ', io);
    const second = await prompt('Repeat password: ', io);
    if (first !== second) throw usageError('the passwords do not match');
    return first;
  } finally {
    terminal.setRawMode(false);
    terminal.pause();
  }
}

/** Reads a line from a terminal without echo. */
function prompt(text: string, { stdin, stderr }: Io): Promise<string> {
  stderr(text);
  return new Promise((resolve, reject) => {
    let typed = '';
    const finish = (): void => {
      offEvent(stdin, 'data', added);
      stderr('\n');
    };
    const onData = (data: Buffer | string): void => {
      for (const character of String(data)) {
        if (ENTER.has(character)) {
          finish();
          return resolve(typed);
        }
        if (character === CANCEL) {
          finish();
          return reject(usageError('canceled'));
        }
        typed = BACKSPACE.has(character) ? [...typed].slice(0, -1).join('') : typed + character;
      }
    };
    const added = onEvent(stdin, 'data', onData);
  });
}
