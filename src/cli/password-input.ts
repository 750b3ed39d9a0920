/** Reads a password from a terminal without echo, or from a pipe: an argument would be visible in the process list. */
import type { ReadStream } from 'node:tty';
import { MAX_SECRET_BYTES } from '../config/sources/bounded-read.ts';
import { usageError } from '../core/errors.ts';
import { offEvent, onEvent } from '../core/safe-events.ts';
import { readPiped } from './input.ts';
import type { Io } from './io.ts';

const ENTER = new Set(['\r', '\n', '\u0004']);
const BACKSPACE = new Set(['\u007f', '\b']);
const CANCEL = '\u0003';

/** Shows each prompt in turn on a terminal; returns what was typed. Echo is disabled first, so that nothing typed early is visible either. */
export async function promptForPasswords(prompts: readonly string[], io: Io): Promise<string[]> {
  const terminal = io.stdin as ReadStream;
  terminal.setRawMode(true);
  terminal.setEncoding('utf8');
  try {
    const typed: string[] = [];
    for (const text of prompts) typed.push(await prompt(text, io));
    return typed;
  } finally {
    terminal.setRawMode(false);
    terminal.pause();
  }
}

/** Reads the first line of standard input. */
export async function readPipedPassword(io: Io): Promise<string> {
  return (await readPiped(io, MAX_SECRET_BYTES)).toString().replace(/\r?\n[\s\S]*$/, '');
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
