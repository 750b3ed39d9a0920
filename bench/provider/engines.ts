/** Opens the engines of the delivery queue, each with an empty store, for benchmarks. */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../../src/core/clock.ts';
import { createQueue, type QueueParts } from '../../src/provider/queue/create-queue.ts';
import type { DeliveryQueue } from '../../src/provider/queue/delivery-queue.ts';
import { findFreePort, untilListening } from '../children.ts';
import { readCpuMicroseconds, readRssMebibytes } from '../machine.ts';

export const ENGINES = ['sqlite', 'redis'] as const;
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
  onRunError: (endpoint, error) => console.error(endpoint, error),
};
/** Large enough for any benchmark. */
const BOUNDS = { maxEvents: 10_000_000, maxBytes: 2 ** 40, retention: 86_400_000, deadRetention: 86_400_000 };

export async function openEngine(name: EngineName): Promise<OpenEngine> {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-bench-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  const engine = name === 'redis' ? await openRedis(folder) : await openSqlite(folder);
  return {
    ...engine,
    remove: async () => {
      await engine.remove();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function openSqlite(folder: string): Promise<OpenEngine> {
  const sqlite = { path: join(folder, 'queue.db'), allowVolatile: true };
  const queue = createQueue({ ...BOUNDS, sqlite }, { clock: systemClock, redis: undefined, hooks: HOOKS });
  await queue.open();
  return { queue, readServer: () => toFigures([]), remove: () => queue.close() };
}

/** With a log that is synced each second, as operators mostly have it. */
async function openRedis(folder: string): Promise<OpenEngine> {
  const port = await findFreePort();
  const args = ['--port', String(port), '--bind', '127.0.0.1', '--dir', folder, '--save', '', '--appendonly', 'yes'];
  const server = spawn('redis-server', args, { stdio: 'ignore' });
  process.once('exit', () => server.kill('SIGKILL'));
  await untilListening(server, port);
  const topology = { kind: 'standalone', node: { host: '127.0.0.1', port } } as const;
  const redis = { topology, keyPrefix: 'bench:', connectTimeout: 5_000, commandTimeout: 5_000 };
  const config = { ...BOUNDS, redis: { shards: 1, durability: 'local', allowVolatile: true } } as const;
  const queue = createQueue(config, { clock: systemClock, redis, hooks: HOOKS });
  await queue.open();
  return {
    queue,
    readServer: () => toFigures([server.pid ?? 0]),
    remove: async () => {
      await queue.close();
      server.kill('SIGKILL');
    },
  };
}

function toFigures(pids: readonly number[]): ServerFigures {
  return { cpuMicroseconds: readCpuMicroseconds(pids), rssMebibytes: readRssMebibytes(pids) };
}
