/** Reads secrets, TLS files and sources of users, from files and environment variables. Messages never contain any part of a secret. */

import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../core/clock.ts';
import { type Fault, type Path, type Problem, under, unwrap, warning } from '../../core/problem.ts';
import { Secret, type SecretRead, toSecret } from '../../core/secret.ts';
import { findTlsProblems, type TlsSettings } from '../../http/server/tls.ts';
import type { ListenTlsConfig, SecretSource, UserSourceConfig } from '../schema/config.ts';
import { MAX_SECRET_BYTES, readPem, readRegularFile, requireCas, toUnread, UnusableFile } from './bounded-read.ts';
import { findFake, listFakes } from './fake-sources.ts';

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

// Reads TLS files: certificates, keys, CAs, revocation lists.

type TlsFiles = Pick<TlsSettings, 'pairs' | 'clientCa' | 'clientCrl'>;

/** Reads all files of a `tls` section that can be read. */
async function readTlsFiles(config: ListenTlsConfig, unread: Problem[], unusable: Problem[]): Promise<TlsFiles> {
  const read = async (file: string | undefined, path: Path): Promise<Buffer | undefined> =>
    file === undefined ? undefined : unwrap(await readPem(file), path, unread);
  const pairs = [];
  for (const [index, { certFile, keyFile }] of [config, ...config.additionalCertificates].entries()) {
    const at: Path = index === 0 ? [] : ['additionalCertificates', index - 1];
    const cert = await read(certFile, [...at, 'certFile']);
    const key = await read(keyFile, [...at, 'keyFile']);
    if (cert !== undefined && key !== undefined) pairs.push({ at, certFile, cert, key: new Secret(key) });
  }
  const bundle = await read(config.clientCaFile, ['clientCaFile']);
  const clientCa = bundle && unwrap(requireCas(config.clientCaFile ?? '', bundle), ['clientCaFile'], unusable);
  return { pairs, clientCa, clientCrl: await read(config.clientCrlFile, ['clientCrlFile']) };
}

/** The files to watch. */
export function toTlsFiles(config: ListenTlsConfig | undefined): string[] {
  if (config === undefined) return [];
  const pairs = [config, ...config.additionalCertificates].flatMap(({ certFile, keyFile }) => [certFile, keyFile]);
  return [...pairs, config.clientCaFile, config.clientCrlFile].filter((file) => file !== undefined);
}

/** The settings and the problems found; do not use the settings if there is an error. */
export interface TlsRead {
  readonly settings: TlsSettings;
  readonly problems: readonly Problem[];
  /** False if a file could not be read, maybe only now. */
  readonly isComplete: boolean;
}

/** Returns undefined if the section is omitted. `section`: its config path. */
export async function readTls(config: ListenTlsConfig | undefined, section: Path, clock: Clock): Promise<TlsRead | undefined> {
  if (config === undefined) return undefined;
  const unread: Problem[] = [];
  const unusable: Problem[] = [];
  const files = await readTlsFiles(config, unread, unusable);
  const { clientCertificate, minVersion } = config;
  const settings = { ...files, clientCertificate, minVersion, http2: config.http2 ?? false };
  const problems = under(section, [...unread, ...unusable, ...findTlsProblems(settings, clock.now())]);
  return { settings, problems, isComplete: unread.length === 0 };
}

// Reads user sources as text; users/ parses it.

/** The text of a source. */
export type UserText =
  | { readonly kind: 'htpasswd'; readonly where: string; readonly text: string }
  /** One user with a plain-text password. */
  | { readonly kind: 'pair'; readonly where: string; readonly user: string; readonly password: string }
  /** One hash per user. */
  | { readonly kind: 'map'; readonly where: string; readonly hashes: ReadonlyMap<string, string> };

/** The text of a source, or why it could not be read. */
type UserTextRead = UserText | Fault;

const MAX_FILE_BYTES = 16 * 1024 * 1024;

/** Reads one source. */
export async function readUserSource(source: UserSourceConfig): Promise<UserTextRead> {
  try {
    if ('file' in source) {
      const text = await readText(source.file, findFake(source, source.file), MAX_FILE_BYTES);
      return { kind: 'htpasswd', where: source.file, text };
    }
    const read = (file: string): Promise<string> => readText(file, findFake(source, file), MAX_SECRET_BYTES);
    if ('secretDir' in source) return await readSecretDir(source.secretDir, read);
    const names = listFakes(source, source.mapDir) ?? (await readdir(source.mapDir));
    return await readMapDir(source.mapDir, names, read);
  } catch (thrown) {
    return toUnread((thrown as NodeJS.ErrnoException).path ?? 'a file', thrown);
  }
}

/** The paths to watch; a directory ends with a slash. */
export function toUserFiles(source: UserSourceConfig): string[] {
  if ('file' in source) return [source.file];
  if ('secretDir' in source) return [join(source.secretDir, 'username'), join(source.secretDir, 'password')];
  return [join(source.mapDir, '/')];
}

async function readText(file: string, fake: string | undefined, maxBytes: number): Promise<string> {
  if (fake !== undefined) return fake;
  const bytes = await readRegularFile(file, maxBytes);
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw new UnusableFile(file, 'is not UTF-8', 'save it as UTF-8');
  }
}

type Read = (file: string) => Promise<string>;

async function readSecretDir(folder: string, read: Read): Promise<UserTextRead> {
  const [user, password] = await Promise.all([read(join(folder, 'username')), read(join(folder, 'password'))]);
  // As with other secrets, trailing line breaks come from the editor.
  return { kind: 'pair', where: folder, user: user.replace(/[\r\n]+$/, ''), password: password.replace(/[\r\n]+$/, '') };
}

async function readMapDir(folder: string, names: readonly string[], read: Read): Promise<UserTextRead> {
  const hashes = new Map<string, string>();
  for (const name of [...names].sort()) {
    // The kubelet's symlinks start with two dots, the files of editors with one.
    if (name.startsWith('.')) continue;
    try {
      hashes.set(name, (await read(join(folder, name))).trim());
    } catch (thrown) {
      // Such as lost+found. One that cannot be read could be a user, who must not lose the password without a word.
      if (!(thrown instanceof UnusableFile && thrown.isNoFile)) throw thrown;
    }
  }
  return { kind: 'map', where: folder, hashes };
}
