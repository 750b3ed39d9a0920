/** Opens the delivery queue in each database, with an empty store, for benchmarks. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../../src/core/clock.ts';
import type { DeliveryQueue } from '../../src/provider/queue/delivery-queue.ts';
import { createQueue, type QueueParts, type QueuePlace } from '../../src/provider/queue/sql-queue.ts';
import { type PostgresServer, startPostgres } from '../../test/support/postgres.ts';
import { toTarget } from '../../test/support/queue/postgres-store.ts';
import { listFamily, readCpuMicroseconds, readRssMebibytes } from '../machine.ts';

export const ENGINES = ['sqlite', 'postgres'] as const;
export type EngineName = (typeof ENGINES)[number];

/** The resources that the servers of an engine used so far. */
export interface ServerFigures {
  readonly cpuMicroseconds: number;
  readonly rssMebibytes: number;
}

/** An open queue, and how to remove it. */
export interface OpenEngine {
  readonly queue: DeliveryQueue;
  readonly readServer: () => ServerFigures;
  readonly remove: () => Promise<void>;
}

const HOOKS: QueueParts['hooks'] = {
  onFatal: (error) => {
    throw error;
  },
  onUnavailable: (reason) => console.error(reason),
  onAvailable: () => undefined,
  onLost: (hint) => console.error(hint),
  onRunError: (endpoint, error) => console.error(endpoint, error),
  onNoMemory: (endpoint, bytes) => console.error(endpoint, bytes),
};
const MAX_READS = 100;
/** Large enough for any benchmark. */
const BOUNDS: QueueParts['bounds'] = { maxEvents: 10_000_000, maxBytes: 2 ** 40, endpointShare: 1, tenantShare: 1 };

export function openEngine(name: EngineName): Promise<OpenEngine> {
  return name === 'postgres' ? openPostgres() : openSqlite();
}

async function openAt(place: QueuePlace): Promise<DeliveryQueue> {
  const queue = createQueue(place, { bounds: BOUNDS, clock: systemClock, hooks: HOOKS, maxStoreBytes: 8 * 1024 * 1024 });
  await queue.open();
  return queue;
}

async function openSqlite(): Promise<OpenEngine> {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-bench-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  const queue = await openAt({ kind: 'sqlite', path: join(folder, 'queue.db'), allowVolatile: true });
  return {
    queue,
    readServer: () => ({ cpuMicroseconds: 0, rssMebibytes: 0 }),
    remove: async () => {
      await queue.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Starts a server that waits for its disk, as operators have it. */
export function startDurablePostgres(config: readonly string[] = []): Promise<PostgresServer> {
  return startPostgres({ config: ['fsync = on', 'full_page_writes = on', 'shared_buffers = 128MB', ...config] });
}

/** The settings of a queue on this server. */
export function toPostgresPlace(server: PostgresServer): QueuePlace {
  return { kind: 'postgres', target: toTarget(server.url()), schema: 'bench', maxConnections: 8, statementTimeout: 30_000 };
}

/** The process of a server and those of its connections. Connections may end while they are read: it is repeated. */
export function readPostgres<Figures>({ folder }: PostgresServer, read: (pids: readonly number[]) => Figures): Figures {
  const pid = Number(readFileSync(join(folder, 'data', 'postmaster.pid'), 'utf8').split('\n')[0]);
  for (let tries = 1; ; tries++) {
    try {
      return read(listFamily(pid));
    } catch (thrown) {
      if (tries === MAX_READS) throw thrown;
    }
  }
}

async function openPostgres(): Promise<OpenEngine> {
  const server = await startDurablePostgres();
  const queue = await openAt(toPostgresPlace(server));
  return {
    queue,
    readServer: () =>
      readPostgres(server, (pids) => ({ cpuMicroseconds: readCpuMicroseconds(pids), rssMebibytes: readRssMebibytes(pids) })),
    remove: async () => {
      await queue.close();
      await server.stop();
    },
  };
}
