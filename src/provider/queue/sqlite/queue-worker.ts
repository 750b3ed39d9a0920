/** The thread that has the file of the queue: a write waits for the disk, which would stop the event loop of the process. */
import { parentPort, workerData } from 'node:worker_threads';
import { SidegateError, toErrorText } from '../../../core/errors.ts';
import { onEvent, runDetached } from '../../../core/safe-events.ts';
import type { Batch, Opened, WorkerSettings } from '../messages.ts';
import { Store } from '../sql/store.ts';
import { executeBatch } from './batch.ts';
import { SqliteDatabase } from './sqlite-database.ts';

type Port = NonNullable<typeof parentPort>;

async function serve(port: Port): Promise<void> {
  const { path, bounds } = workerData as WorkerSettings;
  let database: SqliteDatabase;
  try {
    database = await SqliteDatabase.open(path);
  } catch (thrown) {
    const error = thrown instanceof SidegateError ? thrown : new SidegateError('system', 'queue_unusable', toErrorText(thrown));
    const { kind, code, message } = error;
    return port.postMessage({ isOpen: false, kind, code, message } satisfies Opened);
  }
  const store = new Store(database, bounds);
  port.postMessage({ isOpen: true, unreadCommits: database.unreadCommits } satisfies Opened);
  // The process sends one batch at a time.
  onEvent(port, 'message', (batch: Batch | 'close') => {
    if (batch !== 'close') return runDetached(answer(port, store, batch));
    database.close();
    // Without its port, the thread ends.
    port.close();
  });
}

async function answer(port: Port, store: Store, batch: Batch): Promise<void> {
  const reply = await executeBatch(store, batch);
  port.postMessage(reply, reply.bodies);
}

if (parentPort !== null) runDetached(serve(parentPort));
