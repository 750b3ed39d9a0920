/** Measures what the queue costs for each event in each database. */
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../../src/core/clock.ts';
import { createQueue, type QueueParts, type QueuePlace } from '../../src/provider/queue/sql-queue.ts';
import { readCpuMicroseconds } from '../machine.ts';
import { type OpenEngine, readPostgres, startDurablePostgres, toPostgresPlace } from '../provider/engines.ts';
import { type Figures, measureAccept, measureDelivery } from '../queue/loads.ts';
import { median } from '../statistics.ts';
import type { QueueCost } from './results.ts';

const EVENTS = 10_000;
const WARM_UP = 2_000;
const CONCURRENCY = 64;
const BOUNDS: QueueParts['bounds'] = { maxEvents: 10_000_000, maxBytes: 2 ** 40, endpointShare: 1, tenantShare: 1 };
const rethrow = (error: unknown): never => {
  throw error;
};
const HOOKS: QueueParts['hooks'] = {
  onFatal: rethrow,
  onUnavailable: rethrow,
  onAvailable: () => undefined,
  onLost: rethrow,
  onRunError: (_endpoint, error) => rethrow(error),
  onNoMemory: rethrow,
};

/** How the server or file of an engine is measured. */
interface Storage {
  readonly readBytes: () => number;
  /** CPU time of the server so far. */
  readonly readCpu: () => number;
}

async function open(place: QueuePlace): Promise<OpenEngine> {
  const queue = createQueue(place, { bounds: BOUNDS, clock: systemClock, hooks: HOOKS, maxStoreBytes: 8 * 1024 * 1024 });
  await queue.open();
  // The server is measured separately.
  const readServer = (): ReturnType<OpenEngine['readServer']> => ({ cpuMicroseconds: 0, rssMebibytes: 0 });
  return { queue, readServer, remove: () => queue.close() };
}

async function measure(engine: QueueCost['engine'], opened: OpenEngine, { readBytes, readCpu }: Storage): Promise<QueueCost> {
  await measureAccept(opened, WARM_UP, CONCURRENCY);
  await measureDelivery(opened, WARM_UP);
  const [empty, before] = [readBytes(), readCpu()];
  const accept: Figures = await measureAccept(opened, EVENTS, CONCURRENCY);
  const [waiting, between] = [readBytes(), readCpu()];
  const deliver = await measureDelivery(opened, EVENTS);
  const [kept, after] = [readBytes(), readCpu()];
  return {
    engine,
    acceptPerSecond: Math.round(accept.perSecond),
    deliverPerSecond: Math.round(deliver.perSecond),
    acceptMicroseconds: round(accept.cpuMicroseconds),
    deliverMicroseconds: round(deliver.cpuMicroseconds),
    acceptServerMicroseconds: round((between - before) / EVENTS),
    deliverServerMicroseconds: round((after - between) / EVENTS),
    bytesWaiting: Math.round((waiting - empty) / EVENTS),
    bytesDelivered: Math.round((kept - empty) / EVENTS),
  };
}

const round = (value: number): number => Math.round(value * 10) / 10;

async function measurePostgres(): Promise<QueueCost> {
  const server = await startDurablePostgres();
  const opened = await open(toPostgresPlace(server));
  const cost = await measure('postgres', opened, {
    readBytes: () => Number(server.sql('SELECT pg_database_size(current_database())')),
    readCpu: () => readPostgres(server, readCpuMicroseconds),
  });
  await opened.remove();
  await server.stop();
  return cost;
}

async function measureSqlite(): Promise<QueueCost> {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-scale-'));
  const opened = await open({ kind: 'sqlite', path: join(folder, 'queue.db'), allowVolatile: true });
  const cost = await measure('sqlite', opened, {
    // Without the write-ahead log, which does not grow with the events.
    readBytes: () => statSync(join(folder, 'queue.db')).size,
    readCpu: () => 0,
  });
  await opened.remove();
  rmSync(folder, { recursive: true, force: true });
  return cost;
}

/** Measures the queue in both databases in rounds. */
export async function measureQueues(rounds: number): Promise<QueueCost[]> {
  const found: QueueCost[][] = [];
  for (let i = 0; i < rounds; i++) found.push([await measureSqlite(), await measurePostgres()]);
  return (found[0] ?? []).map((first, engine) => {
    const keys = Object.keys(first).filter((key) => key !== 'engine') as Exclude<keyof QueueCost, 'engine'>[];
    const medians = keys.map((key) => [key, median(found.map((costs) => costs[engine]?.[key] ?? Number.NaN))]);
    const cost = { ...first, ...(Object.fromEntries(medians) as Partial<QueueCost>) };
    console.log(JSON.stringify(cost));
    return cost;
  });
}
