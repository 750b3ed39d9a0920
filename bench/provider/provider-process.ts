/** The measured process: a queue, its lanes and a sender, with a backlog for dead endpoints and a steady load for healthy ones. */
import { setTimeout as pause } from 'node:timers/promises';
import { systemClock } from '../../src/core/clock.ts';
import { createLaneRunner, toLaneCount } from '../../src/provider/lanes/lane-runner.ts';
import type { DeliveryQueue } from '../../src/provider/queue/delivery-queue.ts';
import { type EngineName, openEngine } from './engines.ts';
import { createLocalSender, IGNORE, LANE_SETTINGS, toEvent, toLocalEndpoint, toRegistry } from './parts.ts';

/** What to do. */
export interface FairnessTask {
  readonly engine: EngineName;
  /** Of the receivers. */
  readonly port: number;
  readonly dead: number;
  readonly healthy: number;
  /** Events waiting for each dead endpoint. */
  readonly backlog: number;
  /** Healthy events per second. */
  readonly rate: number;
  readonly seconds: number;
}

/** The measurements while the load ran. */
export interface FairnessFigures {
  readonly kind: 'done';
  readonly appended: number;
  readonly cpuMsPerSecond: number;
  readonly serverCpuMsPerSecond: number;
  /** In MiB. */
  readonly rss: number;
  readonly serverRss: number;
  /** How much later than planned an event was created, at most. */
  readonly lateMs: number;
}

/** The messages of this process, in this order. */
export type ProviderMessage = { readonly kind: 'loaded'; readonly seconds: number } | FairnessFigures;

/** Deliveries that are appended at once. */
const LOAD_BATCH = 5_000;
/** After the load, the last deliveries need a moment. */
const REST_MS = 2_000;

/** Each event waits for all dead endpoints. */
async function loadBacklog(queue: DeliveryQueue, dead: readonly string[], backlog: number): Promise<void> {
  const targets = dead.map((endpoint) => ({ endpoint }));
  const batch = Math.max(1, Math.floor(LOAD_BATCH / dead.length));
  for (let count = 0; dead.length > 0 && count < backlog; count += batch)
    await queue.append(Array.from({ length: Math.min(batch, backlog - count) }, () => toEvent(targets)));
}

/** At times that are fixed beforehand; a late event is created late, and what the delay of the creation was is returned. */
async function load(queue: DeliveryQueue, healthy: readonly string[], { rate, seconds }: FairnessTask) {
  const pending: Promise<unknown>[] = [];
  let lateMs = 0;
  const begin = performance.now();
  const count = rate * seconds;
  for (let index = 0; index < count; index++) {
    const due = begin + (index * 1_000) / rate;
    const left = due - performance.now();
    if (left > 0) await pause(left);
    lateMs = Math.max(lateMs, performance.now() - due);
    pending.push(queue.append([toEvent([{ endpoint: healthy[index % healthy.length] ?? '' }])]));
  }
  await Promise.all(pending);
  return { appended: count, lateMs };
}

async function play(task: FairnessTask): Promise<void> {
  const name = (kind: string, count: number) => Array.from({ length: count }, (_, index) => `${kind}-${index}`);
  const [dead, healthy] = [name('dead', task.dead), name('healthy', task.healthy)];
  const endpoints = [
    ...dead.map((id) => toLocalEndpoint(id, task.port, `/dead/${id}`)),
    ...healthy.map((id) => toLocalEndpoint(id, task.port, `/healthy/${id}`)),
  ];
  const { queue, readServer, remove } = await openEngine(task.engine);
  const began = performance.now();
  await loadBacklog(queue, dead, task.backlog);
  process.send?.({ kind: 'loaded', seconds: (performance.now() - began) / 1_000 } satisfies ProviderMessage);
  const sender = createLocalSender();
  const runner = createLaneRunner({
    clock: systemClock,
    queue,
    registry: toRegistry(endpoints),
    sender,
    hooks: IGNORE,
    settings: LANE_SETTINGS,
  });
  const server = readServer();
  const cpu = process.cpuUsage();
  const from = performance.now();
  const serving = queue.serve(toLaneCount(LANE_SETTINGS), runner.run);
  const { appended, lateMs } = await load(queue, healthy, task);
  const { user, system } = process.cpuUsage(cpu);
  const after = readServer();
  const elapsed = performance.now() - from;
  const cpuMsPerSecond = (user + system) / elapsed;
  const serverCpuMsPerSecond = (after.cpuMicroseconds - server.cpuMicroseconds) / elapsed;
  const rss = process.memoryUsage.rss() / 2 ** 20;
  await pause(REST_MS);
  process.send?.({
    kind: 'done',
    appended,
    cpuMsPerSecond,
    serverCpuMsPerSecond,
    rss,
    serverRss: after.rssMebibytes,
    lateMs,
  } satisfies ProviderMessage);
  await serving.stop();
  sender.close();
  await remove();
  process.exit();
}

process.on('disconnect', () => process.exit());
process.on('message', (task: FairnessTask) => {
  play(task).catch((error: unknown) => {
    console.error(error);
    process.exit(1);
  });
});
