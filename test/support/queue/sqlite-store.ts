/** A SQLite queue under test, in a file of its own. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Clock, systemClock } from '../../../src/core/clock.ts';
import type { DeliveryQueue } from '../../../src/provider/queue/delivery-queue.ts';
import { createSqliteQueue, type SqliteQueueOptions } from '../../../src/provider/queue/sqlite/sqlite-queue.ts';
import { FakeClock } from '../fake-clock.ts';
import type { QueueStore } from './store.ts';

/** Fails the test for whatever a queue reports. */
export const NO_HOOKS: SqliteQueueOptions['hooks'] = {
  onFatal: (error) => {
    throw error;
  },
  onUnavailable: (reason) => {
    throw new Error(reason);
  },
  onAvailable: () => undefined,
  onRunError: () => undefined,
};

/** Options for a file in a temporary folder, which may be on any file system. */
export function toOptions(path: string, over: Partial<SqliteQueueOptions> = {}): SqliteQueueOptions {
  return { path, allowVolatile: true, maxEvents: 1_000_000, maxBytes: 2 ** 32, clock: systemClock, hooks: NO_HOOKS, ...over };
}

/** Opens a queue. */
export async function openSqliteQueue(path: string, over: Partial<SqliteQueueOptions> = {}): Promise<DeliveryQueue> {
  const queue = createSqliteQueue(toOptions(path, over));
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
    open: (bounds) => openSqliteQueue(path, { clock, ...bounds }),
    isShared: false,
    child: { module: join(import.meta.dirname, 'sqlite-child.ts'), argument: path },
    remove: async () => remove(),
  };
}
