/** Measures what the engines of the queue cost for each event. */
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { QueueChoice } from '../../src/config/schema/queue-choice.ts';
import { systemClock } from '../../src/core/clock.ts';
import { createQueue, type QueueParts } from '../../src/provider/queue/create-queue.ts';
import type { RedisStoreOptions } from '../../src/state/redis/options.ts';
import { startRedis } from '../../test/support/redis.ts';
import type { OpenEngine } from '../provider/engines.ts';
import { type Figures, measureAccept, measureDelivery } from '../queue/loads.ts';
import { median } from '../statistics.ts';
import { countCommands, RedisMeter } from './redis-meter.ts';
import type { QueueCost } from './results.ts';
import { toServer } from './store-load.ts';

const EVENTS = 10_000;
const WARM_UP = 2_000;
const CONCURRENCY = 64;
const BOUNDS = { maxEvents: 10_000_000, maxBytes: 2 ** 40 };
const rethrow = (error: unknown): never => {
  throw error;
};
const HOOKS: QueueParts['hooks'] = {
  onFatal: rethrow,
  onUnavailable: rethrow,
  onAvailable: () => undefined,
  onRunError: (_endpoint, error) => rethrow(error),
};

/** How the server or file of an engine is measured. */
interface Storage {
  readonly readBytes: () => Promise<number>;
  /** CPU time of the server and the commands since the last call. */
  readonly lap: () => Promise<{ readonly cpuMicroseconds: number; readonly commands: number }>;
}

async function open(choice: QueueChoice<RedisStoreOptions>): Promise<OpenEngine> {
  const queue = createQueue(choice, { ...BOUNDS, clock: systemClock, hooks: HOOKS });
  await queue.open();
  // The server is measured separately.
  const readServer = (): ReturnType<OpenEngine['readServer']> => ({ cpuMicroseconds: 0, rssMebibytes: 0 });
  return { queue, readServer, remove: () => queue.close() };
}

async function measure(engine: QueueCost['engine'], opened: OpenEngine, storage: Storage): Promise<QueueCost> {
  await measureAccept(opened, WARM_UP, CONCURRENCY);
  await measureDelivery(opened, WARM_UP);
  const empty = await storage.readBytes();
  await storage.lap();
  const accept: Figures = await measureAccept(opened, EVENTS, CONCURRENCY);
  const accepted = await storage.lap();
  const waiting = await storage.readBytes();
  await storage.lap();
  const deliver = await measureDelivery(opened, EVENTS);
  const delivered = await storage.lap();
  const kept = await storage.readBytes();
  return {
    engine,
    acceptPerSecond: Math.round(accept.perSecond),
    deliverPerSecond: Math.round(deliver.perSecond),
    acceptMicroseconds: round(accept.cpuMicroseconds),
    deliverMicroseconds: round(deliver.cpuMicroseconds),
    acceptRedisMicroseconds: round(accepted.cpuMicroseconds / EVENTS),
    deliverRedisMicroseconds: round(delivered.cpuMicroseconds / EVENTS),
    acceptCommands: round(accepted.commands / EVENTS),
    deliverCommands: round(delivered.commands / EVENTS),
    bytesWaiting: Math.round((waiting - empty) / EVENTS),
    bytesDelivered: Math.round((kept - empty) / EVENTS),
  };
}

const round = (value: number): number => Math.round(value * 10) / 10;

async function measureRedis(): Promise<QueueCost> {
  const server = await startRedis({ config: ['appendonly yes', 'appendfsync everysec'] });
  const meter = await RedisMeter.open(server.port);
  const redis = { topology: toServer(server.port), keyPrefix: 'bench:', connectTimeout: 5_000, commandTimeout: 5_000 };
  const opened = await open({ kind: 'redis', redis, shards: 1, durability: 'local', allowVolatile: true });
  const cost = await measure('redis', opened, {
    // Redis returns the buffers of a busy connection after some seconds.
    readBytes: async () => {
      await pause(3_000);
      return meter.usedMemory();
    },
    lap: async () => {
      const usage = await meter.lap();
      return { cpuMicroseconds: usage.cpuMicroseconds, commands: countCommands(usage) };
    },
  });
  await opened.remove();
  meter.close();
  await server.stop();
  return cost;
}

async function measureSqlite(): Promise<QueueCost> {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-scale-'));
  const opened = await open({ kind: 'sqlite', path: join(folder, 'queue.db'), allowVolatile: true });
  const cost = await measure('sqlite', opened, {
    // Without the write-ahead log, which does not grow with the events.
    readBytes: async () =>
      readdirSync(folder)
        .filter((name) => name === 'queue.db')
        .reduce((sum, name) => sum + statSync(join(folder, name)).size, 0),
    lap: async () => ({ cpuMicroseconds: 0, commands: 0 }),
  });
  await opened.remove();
  rmSync(folder, { recursive: true, force: true });
  return cost;
}

/** Measures both engines in rounds. */
export async function measureQueues(rounds: number): Promise<QueueCost[]> {
  const found: QueueCost[][] = [];
  for (let i = 0; i < rounds; i++) found.push([await measureSqlite(), await measureRedis()]);
  return (found[0] ?? []).map((first, engine) => {
    const keys = Object.keys(first).filter((key) => key !== 'engine') as Exclude<keyof QueueCost, 'engine'>[];
    const medians = keys.map((key) => [key, median(found.map((costs) => costs[engine]?.[key] ?? Number.NaN))]);
    const cost = { ...first, ...(Object.fromEntries(medians) as Partial<QueueCost>) };
    console.log(JSON.stringify(cost));
    return cost;
  });
}
