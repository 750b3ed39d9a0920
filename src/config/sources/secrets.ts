/** Reads secrets from files and environment variables. Messages never contain any part of a secret. */
import { type Path, type Problem, unwrap, warning } from '../../core/problem.ts';
import { type Secret, type SecretRead, toSecret } from '../../core/secret.ts';
import type { SecretSource } from '../schema/config.ts';
import { MAX_SECRET_BYTES, readRegularFile, toUnread } from './bounded-read.ts';
import { findFake } from './fake-sources.ts';

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

/** The secret, after its warnings have been added to the problems; undefined after its fault has been. */
export function unwrapSecret(read: SecretRead, path: Path, problems: Problem[]): Secret | undefined {
  const found = unwrap(read, path, problems);
  for (const message of found?.warnings ?? []) problems.push(warning(path, message));
  return found?.secret;
}

function readVariable(name: string): SecretRead {
  const text = process.env[name];
  if (text === undefined)
    return { problem: `the environment variable ${name} is not set`, hint: `set it, or use secret: { file: PATH }` };
  return toSecret(Buffer.from(text), `the environment variable ${name}`);
}

/** Reads a secret's file. `read`: which files it accepts. */
export async function readSecretFile(file: string, read = readRegularFile): Promise<SecretRead> {
  try {
    return toSecret(await read(file, MAX_SECRET_BYTES), file);
  } catch (thrown) {
    return toUnread(file, thrown);
  }
}
