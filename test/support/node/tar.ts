/** Tar archives (POSIX ustar), enough for the layers of container images. */
import { lstatSync, readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs';
import { join } from 'node:path';

const BLOCK = 512;
const MODES = { file: 0o644, folder: 0o755 } as const;

/** One member of an archive. All of them belong to root and have the same time, so that the same files give the same bytes. */
export type Entry =
  | { readonly kind: 'folder'; readonly path: string; readonly mode?: number }
  | { readonly kind: 'link'; readonly path: string; readonly target: string }
  | { readonly kind: 'file'; readonly path: string; readonly mode?: number; readonly bytes: Uint8Array };

/** An archive of these members, as pieces that follow one another. */
export function toTar(entries: readonly Entry[]): Uint8Array[] {
  return [...entries.flatMap(toMember), new Uint8Array(2 * BLOCK)];
}

/** The members for all that is in a folder of this machine, below another path. */
export function readTree(folder: string, path: string): Entry[] {
  const entries: Entry[] = [{ kind: 'folder', path }];
  for (const name of readdirSync(folder).sort()) {
    const [from, to] = [join(folder, name), join(path, name)];
    const found = lstatSync(from);
    if (found.isDirectory()) entries.push(...readTree(from, to));
    else if (found.isSymbolicLink()) entries.push({ kind: 'link', path: to, target: readlinkSync(from) });
    else entries.push(readFile(from, to));
  }
  return entries;
}

/** The member for one file of this machine; links are followed. */
export function readFile(file: string, path: string): Entry {
  return { kind: 'file', path, mode: statSync(file).mode & 0o777, bytes: readFileSync(file) };
}

function toMember(entry: Entry): Uint8Array[] {
  if (entry.kind === 'link') return [toHeader(entry.path, { type: '2', mode: 0o777, target: entry.target })];
  if (entry.kind === 'folder') return [toHeader(`${entry.path}/`, { type: '5', mode: entry.mode ?? MODES.folder })];
  const { bytes } = entry;
  const header = toHeader(entry.path, { type: '0', mode: entry.mode ?? MODES.file, size: bytes.length });
  return [header, bytes, new Uint8Array(-bytes.length & (BLOCK - 1))];
}

interface Fields {
  readonly type: '0' | '2' | '5';
  readonly mode: number;
  readonly size?: number;
  readonly target?: string;
}

/** POSIX.1-1988: the numbers are octal; the checksum counts its own field as spaces. */
function toHeader(path: string, { type, mode, size = 0, target = '' }: Fields): Uint8Array {
  const header = Buffer.alloc(BLOCK);
  const [prefix, name] = splitPath(path);
  const octal = (value: number, length: number): string => `${value.toString(8).padStart(length - 1, '0')}\0`;
  const fields: readonly [at: number, text: string][] = [
    [0, name],
    [100, octal(mode, 8)],
    [108, octal(0, 8)],
    [116, octal(0, 8)],
    [124, octal(size, 12)],
    [136, octal(0, 12)],
    [148, ' '.repeat(8)],
    [156, type],
    [157, target],
    [257, 'ustar\0'],
    [263, '00'],
    [345, prefix],
  ];
  for (const [at, text] of fields) header.write(text, at, 'utf8');
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'utf8');
  return header;
}

/** A name of more than 100 bytes continues in the prefix, which ends at a slash. */
function splitPath(path: string): [prefix: string, name: string] {
  if (Buffer.byteLength(path) <= 100) return ['', path];
  for (let at = path.indexOf('/'); at !== -1; at = path.indexOf('/', at + 1))
    if (at <= 155 && Buffer.byteLength(path) - at - 1 <= 100) return [path.slice(0, at), path.slice(at + 1)];
  throw new Error(`${path} is too long for a tar archive`);
}
