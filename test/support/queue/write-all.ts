/** Writes to standard output before anything else happens, also if the parent is slow to read. */
import { writeSync } from 'node:fs';

const RETRY_MS = 2;

/** Returns when the whole text is written. */
export function writeAll(text: string): void {
  for (let left = Buffer.from(text); left.length > 0; )
    try {
      left = left.subarray(writeSync(1, left));
    } catch (thrown) {
      // The pipe is full.
      if ((thrown as NodeJS.ErrnoException).code !== 'EAGAIN') throw thrown;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, RETRY_MS);
    }
}
