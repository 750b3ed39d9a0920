/** Measures what the parts of a call cost Redis in CPU time, and what an ID costs in memory. */
import { setTimeout as pause } from 'node:timers/promises';
import type { SeenIds } from '../../src/state/seen-ids.ts';
import { startRedis } from '../../test/support/redis.ts';
import { startCluster } from '../../test/support/redis-topologies.ts';
import { waitForQuiet } from '../machine.ts';
import { median } from '../statistics.ts';
import { REDIS_CORE } from './cores.ts';
import { fitTimes } from './fit.ts';
import { addUsage, RedisMeter } from './redis-meter.ts';
import { type Calibration, OPERATIONS_PER_EVENT, type ScaleRun } from './results.ts';
import { claimAtRate, handleAll, openStore, toServer } from './store-load.ts';

type Calibrated = Pick<ScaleRun, 'calibrations' | 'service' | 'client' | 'surcharges'>;

const IDS = 100_000;
/** Just above a power of two: the tables of Redis have doubled, and are half empty. */
const IDS_AT_WORST = 133_000;
const MANY_IDS = 300_000;
const QUIET_WITHIN_MS = 3_000;
const EXPIRING_MS = 8_000;
const WARM_UP = 5_000;
const SPARSE_MS = 4_000;

/** The shape of a load. */
interface Shape {
  readonly title: string;
  readonly connections: number;
  readonly concurrency: number;
  readonly events: number;
}

const SHAPES: readonly Shape[] = [
  { title: '1 connection, 1 event at a time', connections: 1, concurrency: 1, events: 10_000 },
  { title: '1 connection, 4 events at a time', connections: 1, concurrency: 4, events: 20_000 },
  { title: '1 connection, 64 events at a time', connections: 1, concurrency: 64, events: 60_000 },
  { title: '8 connections, 1 event each', connections: 8, concurrency: 8, events: 20_000 },
  { title: '64 connections, 1 event each', connections: 64, concurrency: 64, events: 30_000 },
  { title: '64 connections, 4 events each', connections: 64, concurrency: 256, events: 40_000 },
];
/** Pipelined: several calls in one read. */
const CLUSTER_SHAPES: readonly Shape[] = [
  { title: 'Cluster of 3, 64 events at a time', connections: 1, concurrency: 64, events: 30_000 },
  { title: 'Cluster of 3, 256 events at a time', connections: 1, concurrency: 256, events: 60_000 },
];

async function measureShape(stores: readonly SeenIds[], meters: readonly RedisMeter[], shape: Shape): Promise<Calibration> {
  const used = stores.slice(0, shape.connections);
  await handleAll(used, Math.min(WARM_UP, shape.events), shape.concurrency, 1_000);
  for (const meter of meters) await meter.lap();
  const before = process.cpuUsage();
  await handleAll(used, shape.events, shape.concurrency);
  const { user, system } = process.cpuUsage(before);
  const usage = addUsage(await Promise.all(meters.map((meter) => meter.lap())));
  return {
    title: shape.title,
    operations: shape.events * OPERATIONS_PER_EVENT,
    calls: usage.commands['evalsha'] ?? 0,
    reads: usage.reads,
    wakeups: usage.wakeups,
    coldWakeups: 0,
    cpuMicroseconds: usage.cpuMicroseconds,
    clientMicroseconds: user + system,
  };
}

/** Calls that are a millisecond apart: Redis sleeps between them, and then its caches are cold. */
async function measureSparse(store: SeenIds, meter: RedisMeter): Promise<Calibration> {
  await meter.lap();
  const before = process.cpuUsage();
  const operations = await claimAtRate(store, SPARSE_MS);
  const { user, system } = process.cpuUsage(before);
  const usage = await meter.lap();
  return {
    title: '1 connection, 1 claim a millisecond',
    operations,
    calls: usage.commands['evalsha'] ?? 0,
    reads: usage.reads,
    wakeups: 0,
    coldWakeups: usage.wakeups,
    cpuMicroseconds: usage.cpuMicroseconds,
    clientMicroseconds: user + system,
  };
}

async function openMany(port: number, count: number): Promise<SeenIds[]> {
  return Promise.all(Array.from({ length: count }, () => openStore(toServer(port))));
}

async function closeAll(stores: readonly SeenIds[]): Promise<void> {
  for (const store of stores) await store.close();
}

async function measureServer(config: readonly string[], shapes: readonly Shape[], idsBefore = 0): Promise<Calibration[]> {
  const server = await startRedis({ config: [...config, ...REDIS_CORE] });
  const meter = await RedisMeter.open(server.port);
  const stores = await openMany(server.port, Math.max(...shapes.map(({ connections }) => connections)));
  if (idsBefore > 0) await handleAll(stores.slice(0, 1), idsBefore, 256);
  const found: Calibration[] = [];
  await waitForQuiet(QUIET_WITHIN_MS);
  for (const shape of shapes) found.push(await measureShape(stores, [meter], shape));
  if (shapes.length > 1) found.push(await measureSparse(stores[0] as SeenIds, meter));
  await closeAll(stores);
  meter.close();
  await server.stop();
  return found;
}

async function measureCluster(): Promise<Calibration[]> {
  const cluster = await startCluster(0, REDIS_CORE);
  const meters = await Promise.all(cluster.nodes.map(({ port }) => RedisMeter.open(port)));
  const stores = [await openStore(cluster.topology)];
  const found: Calibration[] = [];
  await waitForQuiet(QUIET_WITHIN_MS);
  for (const shape of CLUSTER_SHAPES) found.push(await measureShape(stores, meters, shape));
  await closeAll(stores);
  for (const meter of meters) meter.close();
  await cluster.stop();
  return found;
}

/** The median of each figure over the rounds. */
function toMedians(rounds: readonly (readonly Calibration[])[]): Calibration[] {
  return (rounds[0] ?? []).map(({ title, operations }, row) => {
    const of = (key: Exclude<keyof Calibration, 'title'>): number =>
      Math.round(median(rounds.map((round) => round[row]?.[key] ?? Number.NaN)));
    return {
      title,
      operations,
      calls: of('calls'),
      reads: of('reads'),
      wakeups: of('wakeups'),
      coldWakeups: of('coldWakeups'),
      cpuMicroseconds: of('cpuMicroseconds'),
      clientMicroseconds: of('clientMicroseconds'),
    };
  });
}

/** Measures the memory of an ID, and the CPU time of its end. */
export async function measureIds(): Promise<ScaleRun['id']> {
  const server = await startRedis();
  const meter = await RedisMeter.open(server.port);
  const stores = await openMany(server.port, 1);
  const empty = await meter.usedMemory();
  await handleAll(stores, IDS, 256);
  // Redis returns the buffers of a busy connection after some seconds.
  await pause(3_000);
  const bytes = ((await meter.usedMemory()) - empty) / IDS;
  await handleAll(stores, IDS_AT_WORST - IDS, 256);
  await pause(3_000);
  const bytesAtWorst = ((await meter.usedMemory()) - empty) / IDS_AT_WORST;
  await meter.client.flushall();
  const expiryMicroseconds = await measureExpiry(stores, meter);
  await closeAll(stores);
  meter.close();
  await server.stop();
  return {
    count: IDS,
    bytes: Math.round(bytes),
    bytesAtWorst: Math.round(bytesAtWorst),
    expiryMicroseconds: Math.round(expiryMicroseconds * 100) / 100,
  };
}

/** Redis deletes expired keys in the background. */
async function measureExpiry(stores: readonly SeenIds[], meter: RedisMeter): Promise<number> {
  await meter.lap();
  await pause(EXPIRING_MS);
  const idle = (await meter.lap()).cpuMicroseconds;
  await handleAll(stores, IDS, 256, EXPIRING_MS);
  const stored = await meter.client.dbsize();
  await meter.lap();
  const start = performance.now();
  do await pause(500);
  while ((await meter.client.dbsize()) > 0);
  const { cpuMicroseconds } = await meter.lap();
  return (cpuMicroseconds - (idle * (performance.now() - start)) / EXPIRING_MS) / stored;
}

/** One round: the loads, and what more IDs and a log cost, in relation to the first load of the round. */
export interface CalibrationRound {
  readonly calibrations: readonly Calibration[];
  readonly many: number;
  readonly log: number;
}

export async function calibrate(): Promise<CalibrationRound> {
  const [single] = SHAPES as [Shape];
  const plain = await measureServer([], SHAPES);
  const cluster = await measureCluster();
  // Right before and after each other: the speed of a shared machine changes.
  const [base] = await measureServer([], [single]);
  const [log] = await measureServer(['appendonly yes', 'appendfsync everysec'], [single]);
  const [many] = await measureServer([], [single], MANY_IDS);
  const toRatio = (one: Calibration | undefined): number => (one?.cpuMicroseconds ?? Number.NaN) / (base?.cpuMicroseconds ?? 1);
  const round = { calibrations: [...plain, ...cluster], many: toRatio(many), log: toRatio(log) };
  console.log(JSON.stringify({ ...fitTimes(round.calibrations), ...round }));
  return round;
}

/** Medians over the rounds, and the service times that follow from them. */
export function combineCalibrations(rounds: readonly CalibrationRound[]): Calibrated {
  const calibrations = toMedians(rounds.map((round) => round.calibrations));
  const toFactor = (values: readonly number[]): number => Math.max(1, Math.round(median(values) * 100) / 100);
  return {
    calibrations,
    ...fitTimes(calibrations),
    surcharges: [
      { title: `with ${MANY_IDS.toLocaleString('en')} IDs in Redis`, factor: toFactor(rounds.map(({ many }) => many)) },
      {
        title: 'with a log (`appendonly yes`, `appendfsync everysec`)',
        factor: toFactor(rounds.map(({ log }) => log)),
      },
    ],
  };
}
