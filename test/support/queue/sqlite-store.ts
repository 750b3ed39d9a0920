/** A SQLite queue under test, in a file of its own. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { type Clock, systemClock } from '../../../src/core/clock.ts';
import type { DeliveryQueue } from '../../../src/provider/queue/delivery-queue.ts';
import { createQueue, type QueueParts } from '../../../src/provider/queue/sql-queue.ts';
import type { QueueHooks } from '../../../src/provider/queue/store-client.ts';
import { FakeClock } from '../fake-clock.ts';
import type { QueueBounds, QueueStore } from './store.ts';

/** Fails the test for whatever a queue reports. */
export const NO_HOOKS: QueueHooks = {
  onFatal: (error) => {
    throw error;
  },
  onUnavailable: (reason) => {
    throw new Error(reason);
  },
  onAvailable: () => undefined,
  onLost: (hint) => {
    throw new Error(hint);
  },
  onRunError: () => undefined,
  onNoMemory: (endpoint) => {
    throw new Error(endpoint);
  },
};

/** Bounds that no test reaches unless it sets others. */
export const WIDE_BOUNDS: QueueBounds = { maxEvents: 1_000_000, maxBytes: 2 ** 32, endpointShare: 1, tenantShare: 1 };

const MAX_STORE_BYTES = 8 * 1024 * 1024;

/** What a queue under test gets. */
export type QueueOptions = Partial<QueueBounds & Pick<QueueParts, 'clock' | 'hooks' | 'maxStoreBytes' | 'memory'>> & {
  readonly allowVolatile?: boolean;
};

/** Parts of a queue under test. */
export function toParts({
  clock = systemClock,
  hooks = NO_HOOKS,
  maxStoreBytes = MAX_STORE_BYTES,
  memory,
  ...bounds
}: QueueOptions = {}): QueueParts {
  return { clock, hooks, bounds: { ...WIDE_BOUNDS, ...bounds }, maxStoreBytes, memory };
}

/** Creates a queue in a file, which may be on any file system. */
export function createSqliteQueue(path: string, { allowVolatile = true, ...over }: QueueOptions = {}): DeliveryQueue {
  return createQueue({ kind: 'sqlite', path, allowVolatile }, toParts(over));
}

/** Opens a queue. */
export async function openSqliteQueue(path: string, over: QueueOptions = {}): Promise<DeliveryQueue> {
  const queue = createSqliteQueue(path, over);
  await queue.open();
  return queue;
}

/** A folder for the file of a queue. */
export function makeQueueFolder(): { readonly path: string; readonly remove: () => void } {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-queue-'));
  return { path: join(folder, 'queue.db'), remove: () => rmSync(folder, { recursive: true, force: true }) };
}

/** An empty store for the contract suite. */
export async function createSqliteStore(): Promise<QueueStore> {
  const { path, remove } = makeQueueFolder();
  const clock = new FakeClock();
  return {
    clock: clock satisfies Clock,
    pass: (duration) => clock.advance(duration),
    open: (over) => openSqliteQueue(path, { clock, ...over }),
    isShared: false,
    child: { module: join(import.meta.dirname, 'sqlite-child.ts'), argument: path },
    damage: (statement) => {
      const file = new DatabaseSync(path);
      file.exec(statement);
      file.close();
    },
    remove: async () => remove(),
  };
}
