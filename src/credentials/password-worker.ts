/** The thread that checks passwords. */
import { parentPort } from 'node:worker_threads';
import type { HashJob } from './hash-pool.ts';
import { verifyPassword } from './password-verify.ts';

parentPort?.on('message', ({ hashes, decoys, password }: HashJob) => {
  // A Buffer arrives as a plain Uint8Array.
  const bytes = Buffer.from(password);
  const fit = hashes.findIndex((hash) => verifyPassword(hash, bytes));
  if (fit === -1) for (const decoy of decoys) verifyPassword(decoy, bytes);
  parentPort?.postMessage(fit);
});
