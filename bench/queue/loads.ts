/** The loads of the queue's benchmark. */
import { randomBytes, randomUUID } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import { cpuUsage } from 'node:process';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Delivery, LaneState, NewEvent } from '../../src/provider/queue/delivery-queue.ts';
import type { OpenEngine } from '../provider/engines.ts';
import { toQuantile } from '../statistics.ts';

const BODY_BYTES = 1_024;
const ENDPOINTS = 200;
const TENANTS = 1_000;
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

const ENDPOINT_NAMES = Array.from({ length: ENDPOINTS }, (_, i) => `endpoint-${i}`);

const body = randomBytes(BODY_BYTES);
let count = 0;

function newEvent(): NewEvent {
  const endpoint = `endpoint-${count++ % ENDPOINTS}`;
  return {
    id: `msg_${randomUUID()}`,
    type: 'invoice.paid',
    tenant: `tenant-${count % TENANTS}`,
    createdAt: Date.now(),
    body,
    metadata: '{}',
    targets: [{ endpoint }],
  };
}

/** Measures `work`, which reports how long each step took in milliseconds. */
async function measure(
  { readServer }: OpenEngine,
  steps: number,
  work: (report: (ms: number) => void) => Promise<void>,
): Promise<Figures> {
  const times: number[] = [];
  const server = readServer().cpuMicroseconds;
  const before = cpuUsage();
  const start = performance.now();
  await work((ms) => times.push(ms));
  const seconds = (performance.now() - start) / 1_000;
  const { user, system } = cpuUsage(before);
  const cpu = user + system + readServer().cpuMicroseconds - server;
  return { perSecond: steps / seconds, cpuMicroseconds: cpu / steps, p50: toQuantile(times, 0.5), p99: toQuantile(times, 0.99) };
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

const READS = 200;
const LIST = { limit: 50 } as const;
/** Lists of the console and of commands, and the figures of the metrics. */
const READERS: Readonly<Record<string, (queue: OpenEngine['queue']) => Promise<unknown>>> = {
  'figures of the queue': (queue) => queue.stats(Date.now()),
  'figures of all endpoints': (queue) => queue.backlogs(ENDPOINT_NAMES, Date.now()),
  'deliveries, the newest': (queue) => queue.find({}, LIST),
  'deliveries that wait for an endpoint': (queue) => queue.find({ endpoint: 'endpoint-7', states: ['waiting'] }, LIST),
  'deliveries of a tenant': (queue) => queue.find({ tenant: 'tenant-7' }, LIST),
  'dead deliveries, of which there are none': (queue) => queue.find({ states: ['dead'] }, LIST),
  'deliveries of a type without any': (queue) => queue.find({ type: 'none' }, LIST),
  'events of a tenant': (queue) => queue.findEvents({ tenant: 'tenant-7' }, LIST),
  'events without an endpoint': (queue) => queue.findEvents({ isUnrouted: true }, LIST),
};

/** Measures lists and figures one after the other, by name. */
export async function measureReads(engine: OpenEngine): Promise<ReadonlyMap<string, Figures>> {
  const all = new Map<string, Figures>();
  for (const [name, read] of Object.entries(READERS))
    all.set(
      name,
      await measure(engine, READS, async (report) => {
        for (let i = 0; i < READS; i++) {
          const start = performance.now();
          await read(engine.queue);
          report(performance.now() - start);
        }
      }),
    );
  return all;
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
