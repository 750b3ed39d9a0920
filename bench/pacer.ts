/** The clock of the open-loop sender: a thread that sleeps precisely, which an event loop with millisecond timers cannot. */
import { parentPort, workerData } from 'node:worker_threads';

/** The input of the thread. */
export interface PacerOptions {
  /** The first tick, in nanoseconds of the monotonic clock. */
  readonly startAt: bigint;
  readonly everyNanoseconds: bigint;
  readonly beats: number;
}

const NANOSECONDS_IN_MILLISECOND = 1e6;

const { startAt, everyNanoseconds, beats } = workerData as PacerOptions;
const sleeper = new Int32Array(new SharedArrayBuffer(4));
for (let beat = 0; beat < beats; beat++) {
  const due = startAt + everyNanoseconds * BigInt(beat);
  const left = Number(due - process.hrtime.bigint()) / NANOSECONDS_IN_MILLISECOND;
  if (left > 0) Atomics.wait(sleeper, 0, 0, left);
  parentPort?.postMessage(due);
}
