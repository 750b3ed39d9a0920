/** Reads whole files and streams, at most to a maximum: a device has no end, and a pipe may have no writer. */
import { closeSync, constants, createReadStream, fstatSync, openSync, readSync, type Stats } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import type { Fault } from '../../core/problem.ts';
import { findBundleProblem } from '../../http/server/tls.ts';

const CHUNK = 64 * 1024;
// Without O_NONBLOCK, opening a pipe without a writer would block a thread forever.
const FLAGS = constants.O_RDONLY | constants.O_NONBLOCK;

/** Of a secret, a token or a password. */
export const MAX_SECRET_BYTES = 65_536;
/** Of certificates, keys, CAs and revocation lists. */
export const MAX_PEM_BYTES = 16 * 1024 * 1024;
/** Of a body, or a captured request. */
export const MAX_CONTENT_BYTES = 128 * 1024 * 1024;

/** Why the content of a file cannot be used. The message is the end of a sentence that starts with the path. */
export class UnusableFile extends Error {
  readonly path: string;
  readonly hint: string;
  /** It is a directory, a pipe or a device. */
  readonly isNoFile: boolean;
  constructor(path: string, message: string, hint: string, isNoFile = false) {
    super(message);
    this.path = path;
    this.hint = hint;
    this.isNoFile = isNoFile;
  }
}

/** Reads a file that is read again at each reload, so it must be a regular one, and not half of one that is being replaced. */
export async function readRegularFile(file: string, maxBytes: number): Promise<Buffer> {
  return withFile(file, async (handle) => {
    const before = await handle.stat();
    if (before.size > maxBytes) throw toTooLarge(file, maxBytes);
    const bytes = await readStream(file, readChunks(handle), maxBytes);
    const after = await handle.stat();
    if (after.size !== before.size || after.mtimeMs !== before.mtimeMs)
      throw new UnusableFile(file, 'changed while it was read', 'replace it at once: write another file, and rename that');
    return bytes;
  });
}

/** The same for a caller that cannot wait. */
export function readRegularFileSync(file: string, maxBytes: number): Buffer {
  const descriptor = openSync(file, FLAGS);
  try {
    requireRegular(file, fstatSync(descriptor));
    const chunks: Buffer[] = [];
    for (let length = 0, read = -1; read !== 0; length += read) {
      if (length > maxBytes) throw toTooLarge(file, maxBytes);
      const chunk = Buffer.allocUnsafe(CHUNK);
      read = readSync(descriptor, chunk);
      chunks.push(chunk.subarray(0, read));
    }
    return Buffer.concat(chunks);
  } finally {
    closeSync(descriptor);
  }
}

/** Reads a file that the command line names and that is read once: also a pipe, as `<(…)` is one in a shell. */
export async function readAnyFile(file: string, maxBytes: number): Promise<Buffer> {
  return readStream(file, createReadStream(file), maxBytes);
}

/** Reads certificates, keys or revocation lists that the config names. */
export async function readPem(file: string): Promise<Buffer | Fault> {
  try {
    return await readRegularFile(file, MAX_PEM_BYTES);
  } catch (thrown) {
    return toUnread(file, thrown);
  }
}

/** Reads CAs that the config names. OpenSSL ignores a certificate that it cannot read, and all that follow it, without an error. */
export async function readCas(file: string): Promise<Buffer | Fault> {
  const read = await readPem(file);
  return 'problem' in read ? read : requireCas(file, read);
}

/** The content of a file if it can be used as CAs. */
export function requireCas(file: string, bundle: Buffer): Buffer | Fault {
  const problem = findBundleProblem(bundle);
  return problem === undefined ? bundle : { problem: `${file} ${problem}`, hint: 'write the CAs in PEM' };
}

/** Reads a stream to its end. Rejects with UnusableFile, which names it `file`, or with the system's error. */
export async function readStream(file: string, stream: AsyncIterable<Uint8Array | string>, maxBytes: number): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of stream) {
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk) : chunk;
    chunks.push(bytes);
    length += bytes.length;
    if (length > maxBytes) throw toTooLarge(file, maxBytes);
  }
  return Buffer.concat(chunks);
}

function toTooLarge(file: string, maxBytes: number): UnusableFile {
  const hint = `check that this is the right file: sidegate reads at most ${maxBytes} bytes of it`;
  return new UnusableFile(file, `has more than ${maxBytes} bytes`, hint);
}

/** Opens a regular file. Rejects pipes and devices without waiting for them. */
export async function withFile<T>(file: string, use: (handle: FileHandle) => Promise<T>): Promise<T> {
  const handle = await open(file, FLAGS);
  try {
    requireRegular(file, await handle.stat());
    return await use(handle);
  } finally {
    await handle.close();
  }
}

function requireRegular(file: string, stats: Stats): void {
  if (stats.isDirectory()) throw new UnusableFile(file, 'is a directory', 'name a file in it', true);
  if (!stats.isFile())
    throw new UnusableFile(file, 'is not a regular file', 'use a regular file: sidegate reads it again at each reload', true);
}

/** The rest of a file, in chunks. */
export async function* readChunks(handle: FileHandle): AsyncGenerator<Buffer> {
  for (;;) {
    const { bytesRead, buffer } = await handle.read(Buffer.allocUnsafe(CHUNK), 0, CHUNK);
    if (bytesRead === 0) return;
    yield buffer.subarray(0, bytesRead);
  }
}

const UNREAD_HINT = 'create it, or mount the Secret there, readable by the user that runs sidegate';

const TEXTS: Readonly<Record<string, string>> = {
  ENOENT: 'does not exist',
  EISDIR: 'is a directory',
  ENOTDIR: 'is inside something that is not a directory',
  EACCES: 'cannot be read: permission denied',
};

/** Says why a file that the config names could not be read, and what to do. */
export function toUnread(file: string, thrown: unknown): Fault {
  if (thrown instanceof UnusableFile) return { problem: `${file} ${thrown.message}`, hint: thrown.hint };
  const code = (thrown as NodeJS.ErrnoException).code ?? 'unknown reason';
  return { problem: `${file} ${TEXTS[code] ?? `cannot be read (${code})`}`, hint: UNREAD_HINT };
}
