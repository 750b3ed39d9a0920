/** The thread that checks passwords. */
import { getPriority, setPriority } from 'node:os';
import { platform } from 'node:process';
import { parentPort } from 'node:worker_threads';
import { onEvent } from '../../core/safe-events.ts';
import type { HashJob } from './hash-pool.ts';
import { verifyPassword } from './password-verify.ts';

/** A tenth of the event loop's share of a core that both want: guesses wait for everyone else, and logins still get on. */
const NICE = 10;
const NICEST = 19;

// Linux has a priority for each thread, and 0 is the one that asks; elsewhere it would be the whole process.
if (platform === 'linux') setPriority(0, Math.min(getPriority(0) + NICE, NICEST));

if (parentPort !== null)
  onEvent(parentPort, 'message', ({ hashes, decoys, password }: HashJob) => {
    // A Buffer arrives as a plain Uint8Array.
    const bytes = Buffer.from(password);
    const fit = hashes.findIndex((hash) => verifyPassword(hash, bytes));
    if (fit === -1) for (const decoy of decoys) verifyPassword(decoy, bytes);
    parentPort?.postMessage(fit);
  });
