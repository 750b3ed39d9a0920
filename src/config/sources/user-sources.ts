/** Reads user sources as text; users/ parses it. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Fault } from '../../core/problem.ts';
import type { UserSourceConfig } from '../schema/config.ts';
import { MAX_SECRET_BYTES, readRegularFile, toUnread, UnusableFile } from './bounded-read.ts';
import { findFake, listFakes } from './fake-sources.ts';

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
    // The kubelet's symlinks start with two dots.
    if (!name.startsWith('..')) hashes.set(name, (await read(join(folder, name))).trim());
  }
  return { kind: 'map', where: folder, hashes };
}
