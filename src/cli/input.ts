/** Reads what signing commands are given: a body, a secret, a time. */
import { readFile } from 'node:fs/promises';
import * as z from 'zod';
import { findPreset, PRESETS } from '../auth/schemes/catalogue.ts';
import { compileScheme } from '../auth/schemes/compile.ts';
import type { SecretEncoding, Tolerance } from '../auth/schemes/description.ts';
import type { Scheme } from '../auth/schemes/scheme.ts';
import { findNearest } from '../config/schema/did-you-mean.ts';
import { duration } from '../config/schema/scalars.ts';
import { readSecret } from '../config/sources/secrets.ts';
import type { Milliseconds } from '../core/clock.ts';
import { usageError } from '../core/errors.ts';
import type { Secret } from '../core/secret.ts';
import type { Io } from './io.ts';

/** Options that name a secret. */
export interface SecretOptions {
  readonly secretEnv?: string;
  readonly secretFile?: string;
  readonly encoding?: string;
}

const ENCODINGS: readonly string[] = ['utf8', 'base64', 'hex'];

/** The body, byte for byte, from a file or standard input. */
export async function readBody(file: string | undefined, io: Io): Promise<Buffer> {
  if (file !== undefined && file !== '-') {
    try {
      return await readFile(file);
    } catch (thrown) {
      throw usageError(`the file ${file} cannot be read (${(thrown as NodeJS.ErrnoException).code ?? 'unknown reason'})`);
    }
  }
  if (io.stdin.isTTY === true) throw usageError('which body? name a file, or pipe it in');
  const chunks: Buffer[] = [];
  for await (const chunk of io.stdin) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks);
}

/** The secret; never from an argument, which every user of the machine could read. */
export async function readSecretOption(options: SecretOptions): Promise<Secret> {
  const { secretEnv, secretFile } = options;
  if ((secretEnv === undefined) === (secretFile === undefined)) {
    throw usageError('which secret? give --secret-env NAME or --secret-file FILE (an argument would show in the process list)');
  }
  const read = await readSecret(secretEnv === undefined ? { file: secretFile ?? '' } : { env: secretEnv });
  if ('problem' in read) throw usageError(read.problem);
  return read.secret;
}

/** The scheme of a preset's name. */
export function toScheme(name: string): Scheme {
  const preset = findPreset(name);
  if (preset !== undefined) return compileScheme(preset);
  const names = PRESETS.map((known) => known.name);
  const nearest = findNearest(name, names);
  const suggestion = nearest === undefined ? '' : ` Did you mean ${nearest}?`;
  throw usageError(`--scheme ${name}: unknown scheme.${suggestion} Known: ${names.join(', ')}`);
}

/** The secret's encoding, if one is named. */
export function toEncoding(text: string | undefined): SecretEncoding | undefined {
  if (text !== undefined && !ENCODINGS.includes(text)) throw usageError(`--encoding ${text} is not one of utf8, base64, hex`);
  return text as SecretEncoding | undefined;
}

/** In milliseconds. */
export function toDuration(text: string, option: string): Milliseconds {
  const parsed = z.object({ value: duration() }).safeParse({ value: text });
  if (!parsed.success || parsed.data.value === 0) throw usageError(`${option} ${text} is no duration such as 5m`);
  return parsed.data.value;
}

const DAY_MS: Milliseconds = 86_400_000;

/** How long to wait for an answer; a number alone counts as seconds, as in older releases. */
export function toTimeout(text: string, command: string, io: Io): Milliseconds {
  const isBare = /^[0-9]{1,4}$/.test(text);
  const timeout = toDuration(isBare ? `${text}s` : text, '--timeout');
  // Timers of Node end at once beyond 24.8 days.
  if (timeout > DAY_MS) throw usageError(`--timeout ${text} is longer than 1d`);
  if (isBare) io.stderr(`sidegate ${command}: --timeout ${text} without a unit is deprecated; write --timeout ${text}s\n`);
  return timeout;
}

/** How far a timestamp may lie off: the same to either side where it is given, else what the scheme has. */
export function toTolerance(text: string | undefined, { description }: Scheme): Tolerance {
  if (text === undefined) return description.tolerance;
  const either = toDuration(text, '--tolerance');
  return { past: either, future: either };
}

/** Only what carries a signature can be signed or checked by a secret. */
export function requireSignature({ name, description }: Scheme): void {
  if (description.isSignedInContent === true) throw usageError(`${name} signs by a key that only its sender has`);
  if (description.signature === undefined) throw usageError(`${name} has no signature`);
}

/** Whole unix seconds. */
export function toSeconds(text: string, option: string): number {
  if (!/^[0-9]{1,12}$/.test(text)) throw usageError(`${option} ${text} is no unix time in whole seconds`);
  return Number(text);
}
