/** Reads files that other programs write: bounded, without blocking on a pipe, and never half of a file that is being replaced. */
import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';

const CHUNK = 64 * 1024;

/** Reads a whole file of at most `maxBytes`. Rejects with an Error whose message names the file, or with the system's error. */
export async function readRegularFile(file: string, maxBytes: number): Promise<Buffer> {
  return withFile(file, async (handle) => {
    const before = await handle.stat();
    if (before.size > maxBytes) throw new Error(`${file} has ${before.size} bytes; the maximum is ${maxBytes}`);
    const chunks: Buffer[] = [];
    let length = 0;
    for await (const chunk of readChunks(handle)) {
      chunks.push(chunk);
      length += chunk.length;
      if (length > maxBytes) throw new Error(`${file} has more than ${maxBytes} bytes, which is the maximum`);
    }
    const after = await handle.stat();
    if (after.size !== before.size || after.mtimeMs !== before.mtimeMs) throw new Error(`${file} changed while it was read`);
    return Buffer.concat(chunks, length);
  });
}

/** Opens a regular file. Rejects pipes and devices without waiting for them. */
export async function withFile<T>(file: string, use: (handle: FileHandle) => Promise<T>): Promise<T> {
  // Without O_NONBLOCK, opening a pipe without a writer would block a thread forever.
  const handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    if (!(await handle.stat()).isFile()) throw new Error(`${file} is not a regular file`);
    return await use(handle);
  } finally {
    await handle.close();
  }
}

/** The rest of a file, in chunks. */
export async function* readChunks(handle: FileHandle): AsyncGenerator<Buffer> {
  for (;;) {
    const { bytesRead, buffer } = await handle.read(Buffer.allocUnsafe(CHUNK), 0, CHUNK);
    if (bytesRead === 0) return;
    yield buffer.subarray(0, bytesRead);
  }
}
