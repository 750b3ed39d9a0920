/** The engines of the delivery queue, as the benchmark starts them. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../../src/core/clock.ts';
import type { DeliveryQueue } from '../../src/provider/queue/delivery-queue.ts';
import { createSqliteQueue } from '../../src/provider/queue/sqlite/sqlite-queue.ts';

/** An engine with an empty store. */
export interface OpenEngine {
  readonly queue: DeliveryQueue;
  /** Server processes, whose CPU time counts. */
  readonly pids: readonly number[];
  /** Closes the queue and removes the store. */
  readonly close: () => Promise<void>;
}

/** An engine that can be measured. */
export interface Engine {
  readonly name: string;
  readonly open: () => Promise<OpenEngine>;
}

const BOUNDS = { maxEvents: 10_000_000, maxBytes: 2 ** 40 };

function fail(problem: unknown): never {
  throw problem instanceof Error ? problem : new Error(String(problem));
}

async function openSqlite(): Promise<OpenEngine> {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-bench-queue-'));
  const hooks = {
    onFatal: fail,
    onUnavailable: fail,
    onAvailable: () => undefined,
    onRunError: (_: string, error: unknown) => fail(error),
  };
  const queue = createSqliteQueue({ path: join(folder, 'queue.db'), allowVolatile: true, ...BOUNDS, clock: systemClock, hooks });
  await queue.open();
  return {
    queue,
    pids: [],
    close: async () => {
      await queue.close();
      rmSync(folder, { recursive: true });
    },
  };
}

/** All engines. */
export const ENGINES: readonly Engine[] = [{ name: 'sqlite', open: openSqlite }];
