/** Reads the input of commands: a body, a secret, a scheme, durations. */

import type { ReadStream } from 'node:tty';
import { findNearest } from '../config/schema/did-you-mean.ts';
import { duration } from '../config/schema/scalars.ts';
import {
  MAX_CONTENT_BYTES,
  MAX_SECRET_BYTES,
  readAnyFile,
  readRegularFileSync,
  readStream,
  UnusableFile,
} from '../config/sources/bounded-read.ts';
import { readSecret, readSecretFile } from '../config/sources/secrets.ts';
import { type Milliseconds, systemClock, toInstant } from '../core/clock.ts';
import { toErrorText, usageError } from '../core/errors.ts';
import { offEvent, onEvent } from '../core/safe-events.ts';
import type { Secret } from '../core/secret.ts';
import { findPreset, PRESETS } from '../verify/presets/catalogue.ts';
import { findAlias } from '../verify/schemes/aliases.ts';
import { compileScheme } from '../verify/schemes/compile.ts';
import type { SecretEncoding, Tolerance } from '../verify/schemes/description.ts';
import type { Scheme } from '../verify/schemes/scheme.ts';
import type { Io } from './io.ts';

/** Options that name a secret. */
export interface SecretArguments {
  readonly secretEnv?: string;
  readonly secretFile?: string;
  readonly encoding?: string;
}

const ENCODINGS: readonly SecretEncoding[] = ['utf8', 'base64', 'hex'];

/** The body, byte for byte, from a file or standard input. */
export async function readBody(file: string | undefined, io: Io): Promise<Buffer> {
  return readInput(file ?? '-', io, 'body', MAX_CONTENT_BYTES);
}

/** Reads a file, or standard input for `-`. `what`: what it must contain. */
export async function readInput(file: string, io: Io, what: string, maxBytes: number): Promise<Buffer> {
  if (file !== '-') return readNamed(file, maxBytes);
  if (io.stdin.isTTY === true) throw usageError(`missing ${what}: name a file, or pipe it to standard input`);
  return readPiped(io, maxBytes);
}

/** Reads a file that the command line names. `option`: how. */
export async function readNamed(file: string, maxBytes: number, option = 'the file'): Promise<Buffer> {
  return readAnyFile(file, maxBytes).catch(failOf(`${option} ${file}`));
}

/** Reads standard input. */
async function readPiped({ stdin }: Io, maxBytes: number): Promise<Buffer> {
  return readStream('-', stdin as AsyncIterable<Buffer>, maxBytes).catch(failOf('standard input'));
}

/** Reads a regular file for a caller that cannot wait. */
export function readNamedSync(file: string, name = `the file ${file}`): Buffer {
  try {
    return readRegularFileSync(file, MAX_CONTENT_BYTES);
  } catch (thrown) {
    return failOf(name)(thrown);
  }
}

/** Throws the error of a command that could not read `name`. */
function failOf(name: string): (thrown: unknown) => never {
  return (thrown) => {
    if (thrown instanceof UnusableFile) throw usageError(`cannot read ${name}: it ${thrown.message}; ${thrown.hint}`);
    throw usageError(`cannot read ${name} (${(thrown as NodeJS.ErrnoException).code ?? 'unknown reason'})`);
  };
}

/** Reads a secret that an option names: from a variable, or a file. */
export async function readNamedSecret(env: string | undefined, file: string | undefined): Promise<Secret> {
  const read = await (env === undefined ? readSecretFile(file ?? '', readAnyFile) : readSecret({ env }));
  if ('problem' in read) throw usageError(read.problem);
  return read.secret;
}

/** Reads the secret; never from an argument, which every user of the machine could read. */
export async function readSecretOption(options: SecretArguments): Promise<Secret> {
  const { secretEnv, secretFile } = options;
  if ((secretEnv === undefined) === (secretFile === undefined)) {
    throw usageError(
      'missing secret: use either --secret-env NAME or --secret-file FILE (an argument would be visible in the process list)',
    );
  }
  return readNamedSecret(secretEnv, secretFile);
}

/** Returns the preset with this name. `option`: what the error starts with. */
export function toScheme(name: string, option = `--scheme ${name}`): Scheme {
  const preset = findPreset(name);
  if (preset !== undefined) return compileScheme(preset);
  const names = PRESETS.map((known) => known.name);
  const nearest = findAlias(name) ?? findNearest(name, names);
  const suggestion = nearest === undefined ? '' : ` Did you mean ${nearest}?`;
  throw usageError(`${option}: unknown scheme.${suggestion} \`sidegate scheme\` lists the presets`);
}

/** Returns the secret's encoding, if given. */
export function toEncoding(text: string | undefined): SecretEncoding | undefined {
  return text === undefined ? undefined : toChoice(text, ENCODINGS, '--encoding');
}

/** In milliseconds. */
export function toDuration(text: string, option: string): Milliseconds {
  const parsed = parsePositive(text);
  if (parsed === undefined) throw usageError(`${option} ${text} is not a duration such as 5m`);
  return parsed;
}

function parsePositive(text: string): Milliseconds | undefined {
  const parsed = duration().safeParse(text);
  return parsed.success && parsed.data > 0 ? parsed.data : undefined;
}

/** An instant as RFC 3339; a duration is the time before now. */
export function toTime(text: string | undefined, option: string): string | undefined {
  if (text === undefined || text.includes('T')) return text;
  const before = parsePositive(text);
  if (before === undefined)
    throw usageError(`${option} ${text} is neither a time such as 2026-12-31T00:00:00Z nor a duration such as 5m`);
  return toInstant(systemClock.now() - before);
}

const MAX_COUNT = 1_000_000;

/** A number of entries. */
export function toCount(text: string, option: string): number {
  if (!/^[1-9]\d{0,6}$/.test(text) || Number(text) > MAX_COUNT)
    throw usageError(`${option} ${text} is not a number from 1 to ${MAX_COUNT}`);
  return Number(text);
}

const DAY_MS: Milliseconds = 86_400_000;

/** Parses a timeout. */
export function toTimeout(text: string): Milliseconds {
  const timeout = toDuration(text, '--timeout');
  // Node's timers fire immediately beyond 24.8 days.
  if (timeout > DAY_MS) throw usageError(`--timeout ${text} is longer than 1d`);
  return timeout;
}

/** The tolerance of timestamps: the given one in both directions, or that of the scheme. */
export function toTolerance(text: string | undefined, { description }: Scheme): Tolerance {
  if (text === undefined) return description.tolerance;
  const tolerance = toDuration(text, '--tolerance');
  return { past: tolerance, future: tolerance };
}

/** Throws if a secret cannot sign or verify deliveries of the scheme. */
export function requireSignature({ name, description }: Scheme): void {
  if (description.isSignedInContent === true) throw usageError(`${name} signs with a key that only the sender has`);
  if (description.signature === undefined) throw usageError(`${name} has no signature`);
}

/** Parses a Unix timestamp in whole seconds. */
export function toSeconds(text: string, option: string): number {
  if (!/^[0-9]{1,12}$/.test(text)) throw usageError(`${option} ${text} is not a Unix timestamp in seconds`);
  return Number(text);
}

// Checks of arguments.

/** One of the values that an option can have. */
export function toChoice<T extends string>(text: string, choices: readonly T[], option: string): T {
  const found = choices.find((choice) => choice === text);
  if (found !== undefined) return found;
  const nearest = findNearest(text, choices);
  const suggestion = nearest === undefined ? '' : `. Did you mean ${nearest}?`;
  throw usageError(`${option} ${text} is not one of ${choices.join(', ')}${suggestion}`);
}

/** Describes an error of `parseArgs`, for the commands that do without commander. `names`: the options of the command. */
export function describeArgument(thrown: unknown, names: readonly string[]): string {
  const { code, message = '' } = thrown as NodeJS.ErrnoException;
  if (code === 'ERR_PARSE_ARGS_UNEXPECTED_POSITIONAL') return 'name the config with --config FILE';
  const [, option] = code === 'ERR_PARSE_ARGS_UNKNOWN_OPTION' ? (/'(.*?)'/.exec(message) ?? []) : [];
  if (option === undefined) return toErrorText(thrown);
  const nearest = findNearest(option.replace(/^-+/, ''), names);
  return `unknown option '${option}'${nearest === undefined ? '' : `. Did you mean --${nearest}?`}`;
}

// Asks on a terminal; a password without echo, or from a pipe: an argument would be visible in the process list.

/** Asks on a terminal. Throws if standard input is none, as nobody can answer. */
export async function confirm(text: string, { stdin, stderr }: Io): Promise<boolean> {
  if (stdin.isTTY !== true) throw usageError(`${text}: add --yes to confirm it`);
  stderr(`${text}. Continue? [y/N] `);
  const isConfirmed = /^y(?:es)?\s*$/i.test(await readLine(stdin));
  if (!isConfirmed) stderr('Nothing was changed.\n');
  return isConfirmed;
}

/** Reads one line from a terminal. */
async function readLine(stdin: Io['stdin']): Promise<string> {
  for await (const line of stdin) return String(line);
  return '';
}

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

/** Reads the first line of standard input, without a byte order mark. Other bytes than UTF-8 would become a password that nobody can type. */
export async function readPipedPassword(io: Io): Promise<string> {
  const bytes = await readPiped(io, MAX_SECRET_BYTES);
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes).replace(/\r?\n[\s\S]*$/, '');
  } catch {
    throw usageError('standard input is not UTF-8');
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
