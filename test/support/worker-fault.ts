/**
 * Loaded into each thread of a gate by `--import`. When the process gets SIGUSR2, its workers other than the first throw outside of all
 * guards, end their thread, or are busy for three seconds, as the environment says.
 */
import { isMainThread, workerData } from 'node:worker_threads';

const faults = new BroadcastChannel('worker-fault');
faults.unref();
const BLOCK_MS = 3_000;

if (isMainThread) process.on('SIGUSR2', () => faults.postMessage('now'));
else if ((workerData as { kind?: string } | null)?.kind === 'gate-worker') faults.onmessage = onFault;

function onFault(): void {
  const fault = process.env['WORKER_FAULT'];
  if (fault === 'exit') process.exit(3);
  if (fault === 'block') Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, BLOCK_MS);
  else
    setImmediate(() => {
      throw Object.assign(new TypeError('secret-in-an-exception'), { code: 'ERR_TEST' });
    });
}
