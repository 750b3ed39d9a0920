/** `sidegate hash-password`: makes an entry for a users file. */

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

const LOWEST_COST = 10;
const HIGHEST_COST = 16;
const ENTER = new Set(['\r', '\n', '\u0004']);
const BACKSPACE = new Set(['\u007f', '\b']);
const CANCEL = '\u0003';

/** Reads a password, from a terminal twice and unseen, and prints `user:hash`, or the hash alone. */
export async function hashPassword(user: string | undefined, options: HashPasswordOptions, io: Io): Promise<number> {
  const made = toMade(options);
  if (user?.includes(':')) throw usageError('a user name cannot have a colon (RFC 7617 §2)');
  const password = io.stdin.isTTY === true ? await askTwice(io) : await readLine(io);
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
  if (!/^\d\d$/.test(cost) || number < LOWEST_COST || number > HIGHEST_COST)
    throw usageError(`--cost ${cost} is not ${LOWEST_COST} to ${HIGHEST_COST}`);
  return { algorithm, cost: number };
}

/** The first line; a pipe is how scripts hand a password over, as an argument would show in the process list. */
async function readLine({ stdin }: Io): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stdin) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks)
    .toString()
    .replace(/\r?\n[\s\S]*$/, '');
}

/** The terminal is told not to echo before the question is shown: who types at once must not be seen either. */
async function askTwice(io: Io): Promise<string> {
  const terminal = io.stdin as ReadStream;
  terminal.setRawMode(true);
  terminal.setEncoding('utf8');
  try {
    const first = await ask('Password: ', io);
    const second = await ask('Again: ', io);
    if (first !== second) throw usageError('the two are not the same');
    return first;
  } finally {
    terminal.setRawMode(false);
    terminal.pause();
  }
}

/** Reads a line of a terminal that shows nothing of it. */
function ask(question: string, { stdin, stderr }: Io): Promise<string> {
  stderr(question);
  return new Promise((resolve, reject) => {
    let typed = '';
    const finish = (): void => {
      offEvent(stdin, 'data', added);
      stderr('\n');
    };
    const onData = (text: Buffer | string): void => {
      for (const character of String(text)) {
        if (ENTER.has(character)) {
          finish();
          return resolve(typed);
        }
        if (character === CANCEL) {
          finish();
          return reject(usageError('given up'));
        }
        typed = BACKSPACE.has(character) ? [...typed].slice(0, -1).join('') : typed + character;
      }
    };
    const added = onEvent(stdin, 'data', onData);
  });
}
