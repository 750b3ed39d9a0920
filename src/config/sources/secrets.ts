/** Reads secrets from files and environment variables; no text of theirs ever gets into a message. */
import { readFile } from 'node:fs/promises';
import { Secret } from '../../core/secret.ts';
import type { SecretSource } from '../schema/config.ts';
import { findFake } from './fake-sources.ts';

/** A secret's text, or why there is none. */
export type SecretRead =
  | { readonly secret: Secret; readonly warnings: readonly string[] }
  | { readonly problem: string; readonly hint: string };

const LARGEST_SECRET = 65_536;
const WHITESPACE = new Set([0x20, 0x09, 0x0a, 0x0d]);

/** Reads one secret; whitespace at a file's end is cut, as editors and `echo` put it there. */
export async function readSecret(source: SecretSource): Promise<SecretRead> {
  const fake = findFake(source);
  if (fake !== undefined) return toSecret(Buffer.from(fake), 'the text that stands in for it');
  return 'env' in source ? readVariable(source.env) : readSecretFile(source.file);
}

function readVariable(name: string): SecretRead {
  const text = process.env[name];
  if (text === undefined)
    return { problem: `the environment variable ${name} is not set`, hint: `set it, or use secret: { file: PATH }` };
  return toSecret(Buffer.from(text), `the environment variable ${name}`);
}

/** Reads a secret's file. */
export async function readSecretFile(file: string): Promise<SecretRead> {
  try {
    const bytes = await readFile(file);
    if (bytes.length > LARGEST_SECRET)
      return { problem: `${file} has ${bytes.length} bytes`, hint: 'a secret is one short line' };
    return toSecret(bytes, file);
  } catch (thrown) {
    return {
      problem: `${file} ${toReadProblem(thrown)}`,
      hint: 'mount the Secret there, readable for the user the gate runs as',
    };
  }
}

function toReadProblem(thrown: unknown): string {
  const code = (thrown as NodeJS.ErrnoException).code ?? 'unknown reason';
  const texts: Readonly<Record<string, string>> = {
    ENOENT: 'is not there',
    EISDIR: 'is a directory',
    EACCES: 'may not be read by this user',
  };
  return texts[code] ?? `cannot be read (${code})`;
}

function toSecret(bytes: Buffer, where: string): SecretRead {
  let end = bytes.length;
  while (end > 0 && WHITESPACE.has(bytes[end - 1] as number)) end--;
  if (end === 0) return { problem: `${where} is empty`, hint: 'an empty secret would let in whatever anybody signs' };
  const warnings = WHITESPACE.has(bytes[0] as number)
    ? [`the secret in ${where} begins with whitespace, which counts as part of it`]
    : [];
  return { secret: new Secret(bytes.subarray(0, end)), warnings };
}
