/** The worker thread that checks passwords. */
import { getPriority, setPriority } from 'node:os';
import { platform } from 'node:process';
import { parentPort } from 'node:worker_threads';
import { onEvent } from '../core/safe-events.ts';
import type { HashJob } from './hash-pool.ts';
import { verifyPassword } from './password-verify.ts';

/** Gives the thread a tenth of the event loop's share of a contended core: guesses do not slow down requests, and logins still proceed. */
const NICE = 10;
const MAX_NICE = 19;

// Linux has a priority per thread, and 0 means the calling thread; elsewhere it would mean the whole process.
if (platform === 'linux') setPriority(0, Math.min(getPriority(0) + NICE, MAX_NICE));

if (parentPort !== null)
  onEvent(parentPort, 'message', ({ hashes, decoys, password }: HashJob) => {
    // A Buffer arrives as a plain Uint8Array.
    const bytes = Buffer.from(password);
    const match = hashes.findIndex((hash) => verifyPassword(hash, bytes));
    if (match === -1) for (const decoy of decoys) verifyPassword(decoy, bytes);
    parentPort?.postMessage(match);
  });
