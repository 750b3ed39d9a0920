/** The loads of the queue's benchmark. */
import { randomBytes, randomUUID } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import { cpuUsage, memoryUsage } from 'node:process';
import { setImmediate as nextTurn, setTimeout as pause } from 'node:timers/promises';
import type { Delivery, DeliveryQueue, LaneState, NewEvent } from '../../src/provider/queue/delivery-queue.ts';
import { readCpuMicroseconds } from '../machine.ts';
import type { OpenEngine } from './engines.ts';

const BODY_BYTES = 1_024;
const ENDPOINTS = 200;
/** Events of one append when a store is filled. */
const BULK = 500;
const LANES = 64;
const CONCURRENCY = 4;
const STATE: LaneState = { failures: 0, isProven: true, since: 0 };

/** Rate, cost and latency of a load. */
export interface Figures {
  readonly perSecond: number;
  /** User and system time of the process with all its threads, and of the server. */
  readonly cpuMicroseconds: number;
  readonly p50: number;
  readonly p99: number;
}

const body = randomBytes(BODY_BYTES);
let count = 0;

function newEvent(): NewEvent {
  const endpoint = `endpoint-${count++ % ENDPOINTS}`;
  return {
    id: `msg_${randomUUID()}`,
    type: 'invoice.paid',
    createdAt: Date.now(),
    body,
    metadata: '{}',
    targets: [{ endpoint }],
  };
}

/** Measures `work`, which reports how long each step took in milliseconds. */
async function measure(
  { pids }: OpenEngine,
  steps: number,
  work: (report: (ms: number) => void) => Promise<void>,
): Promise<Figures> {
  const times: number[] = [];
  const server = readCpuMicroseconds(pids);
  const before = cpuUsage();
  const start = performance.now();
  await work((ms) => times.push(ms));
  const seconds = (performance.now() - start) / 1_000;
  const { user, system } = cpuUsage(before);
  times.sort((a, b) => a - b);
  const cpu = user + system + readCpuMicroseconds(pids) - server;
  const at = (share: number): number => times[Math.floor(times.length * share)] ?? 0;
  return { perSecond: steps / seconds, cpuMicroseconds: cpu / steps, p50: at(0.5), p99: at(0.99) };
}

/** Appends `events` one by one, `concurrency` at a time. */
export function measureAccept(engine: OpenEngine, events: number, concurrency: number): Promise<Figures> {
  return measure(engine, events, async (report) => {
    let left = events;
    const appendNext = async (): Promise<void> => {
      while (left-- > 0) {
        const start = performance.now();
        await engine.queue.append([newEvent()]);
        report(performance.now() - start);
      }
    };
    await Promise.all(Array.from({ length: concurrency }, appendNext));
  });
}

/** Fills the store. */
export async function fill({ queue }: OpenEngine, events: number): Promise<void> {
  for (let i = 0; i < events; i += BULK) await queue.append(Array.from({ length: Math.min(BULK, events - i) }, newEvent));
}

/** Takes and settles `deliveries` that are due, each on its own, as a lane does; nothing is sent. */
export function measureDelivery(engine: OpenEngine, deliveries: number): Promise<Figures> {
  return measure(engine, deliveries, async (report) => {
    let left = deliveries;
    let onDone = (): void => undefined;
    const done = new Promise<void>((resolve) => {
      onDone = resolve;
    });
    const serving = engine.queue.serve(LANES, async (lane) => {
      const send = async ({ event, attempt }: Delivery): Promise<void> => {
        // The request is on its way.
        await nextTurn();
        const at = Date.now();
        const start = performance.now();
        const record = { at, duration: 1, status: 200, outcome: 'delivered' };
        await lane.settle([{ event, attempt, at, settlement: { kind: 'delivered' }, record }], STATE);
        report(performance.now() - start);
        if (--left === 0) onDone();
      };
      for (
        let taken = await lane.take(CONCURRENCY, Date.now());
        taken.length > 0;
        taken = await lane.take(CONCURRENCY, Date.now())
      )
        await Promise.all(taken.map(send));
      return {};
    });
    await done;
    await serving.stop();
  });
}

/** Figures of a store with many events that wait for their retry. */
export interface BacklogFigures {
  readonly rssMebibytes: number;
  readonly idleCpuMsPerSecond: number;
  readonly statsMs: number;
  readonly acceptMs: number;
  readonly takeMs: number;
}

const LATER_MS = 86_400_000;

/** Delays all that is due by a day. */
async function delayAll({ queue }: OpenEngine): Promise<void> {
  const serving = queue.serve(LANES, async (lane) => {
    const taken = await lane.take(BULK, Date.now());
    const at = Date.now();
    const settlement = { kind: 'retry', due: at + LATER_MS } as const;
    await lane.settle(
      taken.map(({ event, attempt }) => ({ event, attempt, at, settlement })),
      STATE,
    );
    return {};
  });
  while ((await queue.stats(Date.now())).oldestDue !== undefined) await pause(20);
  await serving.stop();
}

async function time(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

/** Fills the store with `events` that are due tomorrow, and measures what they cost. */
export async function measureBacklog(engine: OpenEngine, events: number): Promise<BacklogFigures> {
  const step = 50_000;
  for (let i = 0; i < events; i += step) {
    await fill(engine, Math.min(step, events - i));
    await delayAll(engine);
  }
  const { queue } = engine;
  const statsMs = await time(() => queue.stats(Date.now()));
  const acceptMs = await time(() => queue.append([newEvent()]));
  const takeMs = await measureTake(queue);
  const serving = queue.serve(LANES, () => Promise.resolve({ notBefore: Date.now() + LATER_MS }));
  await pause(500);
  const server = readCpuMicroseconds(engine.pids);
  const before = cpuUsage();
  const seconds = 5;
  await pause(1_000 * seconds);
  const { user, system } = cpuUsage(before);
  const idleCpuMsPerSecond = (user + system + readCpuMicroseconds(engine.pids) - server) / 1_000 / seconds;
  await serving.stop();
  return { rssMebibytes: memoryUsage.rss() / 2 ** 20, idleCpuMsPerSecond, statsMs, acceptMs, takeMs };
}

async function measureTake(queue: DeliveryQueue): Promise<number> {
  let takeMs = 0;
  let onTaken = (): void => undefined;
  const taken = new Promise<void>((resolve) => {
    onTaken = resolve;
  });
  const serving = queue.serve(1, async (lane) => {
    takeMs = await time(() => lane.take(CONCURRENCY, Date.now()));
    onTaken();
    return { notBefore: Date.now() + LATER_MS };
  });
  await taken;
  await serving.stop();
  return takeMs;
}
