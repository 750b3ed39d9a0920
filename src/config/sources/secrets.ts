/** Reads secrets from files and environment variables. Messages never contain any part of a secret. */
import { readFile } from 'node:fs/promises';
import { type SecretRead, toSecret } from '../../core/secret.ts';
import type { SecretSource } from '../schema/config.ts';
import { findFake } from './fake-sources.ts';
import { toReadProblem, UNREAD_HINT } from './read-problem.ts';

const MAX_SECRET_BYTES = 65_536;
/** The text between `//` and `@` of a URL (RFC 3986 §3.2.1); with other characters it would be another URL. */
const USERINFO = /^[A-Za-z0-9._~!$&'()*+,;=:%-]{1,512}$/;
/** Reads one secret. */
export async function readSecret(source: SecretSource): Promise<SecretRead> {
  const fake = findFake(source);
  if (fake !== undefined) return toSecret(Buffer.from(fake), 'the fake text in the fixtures');
  return 'env' in source ? readVariable(source.env) : readSecretFile(source.file);
}

/** Reads the user and password of a URL, which must be the text that the sender has in it. */
export async function readUrlCredentials(source: SecretSource): Promise<SecretRead> {
  const read = await readSecret(source);
  if ('problem' in read || USERINFO.test(read.secret.expose().toString('latin1'))) return read;
  return {
    problem: 'the text cannot be the user and password of a URL',
    hint: 'write user:password exactly as in the URL at the sender, with special characters percent-encoded if it has them so',
  };
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
    if (bytes.length > MAX_SECRET_BYTES)
      return { problem: `${file} has ${bytes.length} bytes`, hint: `a secret has at most ${MAX_SECRET_BYTES} bytes` };
    return toSecret(bytes, file);
  } catch (thrown) {
    return {
      problem: `${file} ${toReadProblem(thrown)}`,
      hint: UNREAD_HINT,
    };
  }
}
