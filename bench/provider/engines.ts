/** Opens the engines of the delivery queue, each with an empty store, for benchmarks. */
import { type ChildProcess, spawn } from 'node:child_process';
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
const BOUNDS = { maxEvents: 10_000_000, maxBytes: 2 ** 40 };

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
  const path = join(folder, 'queue.db');
  const queue = createQueue({ kind: 'sqlite', path, allowVolatile: true }, { ...BOUNDS, clock: systemClock, hooks: HOOKS });
  await queue.open();
  return { queue, readServer: () => readServerFigures(), remove: () => queue.close() };
}

/** The arguments of a Redis with a log that is synced each second, as operators mostly have it. */
export function toRedisArgs(port: number, folder: string): string[] {
  return ['--port', String(port), '--bind', '127.0.0.1', '--dir', folder, '--save', '', '--appendonly', 'yes'];
}

/** Starts a Redis that ends with this process. */
export async function startRedis(folder: string): Promise<{ readonly server: ChildProcess; readonly port: number }> {
  const port = await findFreePort();
  const server = spawn('redis-server', toRedisArgs(port, folder), { stdio: 'ignore' });
  process.once('exit', () => server.kill('SIGKILL'));
  await untilListening(server, port);
  return { server, port };
}

async function openRedis(folder: string): Promise<OpenEngine> {
  const { server, port } = await startRedis(folder);
  const topology = { kind: 'standalone', node: { host: '127.0.0.1', port } } as const;
  const redis = { topology, keyPrefix: 'bench:', connectTimeout: 5_000, commandTimeout: 5_000 };
  const choice = { kind: 'redis', redis, shards: 1, durability: 'local', allowVolatile: true } as const;
  const queue = createQueue(choice, { ...BOUNDS, clock: systemClock, hooks: HOOKS });
  await queue.open();
  return {
    queue,
    readServer: () => readServerFigures(server),
    remove: async () => {
      await queue.close();
      server.kill('SIGKILL');
    },
  };
}

/** Zeros without a server. */
export function readServerFigures(server?: ChildProcess): ServerFigures {
  const pids = server?.pid === undefined ? [] : [server.pid];
  return { cpuMicroseconds: readCpuMicroseconds(pids), rssMebibytes: readRssMebibytes(pids) };
}
