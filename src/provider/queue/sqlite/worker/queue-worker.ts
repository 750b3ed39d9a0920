/** The thread that has the database of the queue: a write waits for the disk, which would stop the event loop of the process. */
import { parentPort, workerData } from 'node:worker_threads';
import { SidegateError, toErrorText } from '../../../../core/errors.ts';
import { onEvent } from '../../../../core/safe-events.ts';
import { packBytes } from '../byte-pack.ts';
import type { Batch, BatchReply, Failure, Opened, Operation, WorkerSettings } from '../messages.ts';
import { Store } from './store.ts';

function open(settings: WorkerSettings): Store | Failure {
  try {
    return new Store(settings);
  } catch (thrown) {
    if (thrown instanceof SidegateError) return { kind: thrown.kind, code: thrown.code, message: thrown.message };
    return { kind: 'system', code: 'queue_unusable', message: toErrorText(thrown) };
  }
}

function serve(port: NonNullable<typeof parentPort>): void {
  const store = open(workerData as WorkerSettings);
  if (!(store instanceof Store)) {
    port.postMessage({ isOpen: false, ...store } satisfies Opened);
    return;
  }
  port.postMessage({ isOpen: true, lanes: store.describeLanes() } satisfies Opened);
  onEvent(port, 'message', (batch: Batch) => {
    const operations = JSON.parse(batch.operations) as Operation[];
    const { replies, bodies } = store.run(operations, batch.bodies);
    const packed = packBytes(bodies);
    port.postMessage({ replies: JSON.stringify(replies), bodies: packed } satisfies BatchReply, [packed]);
    // Without its port, the thread ends.
    if (operations.some(({ kind }) => kind === 'close')) port.close();
  });
}

if (parentPort !== null) serve(parentPort);
