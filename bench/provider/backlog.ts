/** Measures what a large queue costs a real sidecar: memory, idle CPU, and the rate at which its API accepts events; writes RESULTS-backlog.md. */
import { statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Pool } from 'undici';
import { toFixed, toPercent } from '../figures.ts';
import { BusyMeter, describeMachine, readRssMebibytes, readThreadMicroseconds } from '../machine.ts';
import { ENGINES, type EngineName } from './engines.ts';
import { nextMessage, startProcess, stopProcess } from './processes.ts';
import type { ReceiversReady } from './receivers.ts';
import { type BacklogSidecar, startBacklogSidecar } from './sidecar.ts';

const OUT = join(import.meta.dirname, '..', 'RESULTS-backlog.md');
const HELP = `Usage: npm run bench -- backlog [--events N] [--only ${ENGINES.join(',')}] [--out FILE]

  --events N   events that wait in the queue (default 1000000)
`;
const ENDPOINTS = 200;
const GOAL_ABOVE_IDLE_MIB = 128;
const GOAL_LIST_MS = 50;
const LIST_ROUNDS = 20;
/** Operators look at these lists while everything waits. */
const LISTS = [
  '/v1/deliveries',
  '/v1/deliveries?state=waiting',
  '/v1/deliveries?state=dead',
  '/v1/deliveries?endpoint=endpoint-7&state=waiting',
  '/v1/deliveries?type=bench.endpoint-7',
  '/v1/deliveries?event=msg_20000',
  '/v1/deliveries?from=2020-01-01T00:00:00Z&to=2020-01-02T00:00:00Z',
  '/v1/events',
  '/v1/events?type=bench.endpoint-7',
  '/v1/events?unrouted=true',
  '/v1/events/msg_20000',
  '/v1/endpoints/endpoint-7/stats',
  '/v1/endpoints',
] as const;
const WARM_UP = 5_000;
const SINGLE_EVENTS = 20_000;
const SINGLE_CONNECTIONS = 64;
const BATCH = 100;
const BATCH_CONNECTIONS = 8;
const IDLE_MS = 10_000;
const SAMPLE_MS = 100;
const TEXT = 'x'.repeat(880);

/** Rate, cost and latency of events that are posted one by one or as batches. */
interface AcceptFigures {
  readonly perSecond: number;
  /** Of the sidecar with all its threads. */
  readonly cpu: number;
  /** Of PostgreSQL. */
  readonly storeCpu: number;
  readonly p50: number;
  readonly p99: number;
}

interface BacklogFigures {
  readonly engine: EngineName;
  readonly single: AcceptFigures;
  readonly batch: AcceptFigures;
  /** Milliseconds for each list with all events queued: the first call, and the slowest of the others. */
  readonly lists: readonly { readonly path: string; readonly first: number; readonly worst: number }[];
  /** In MiB: with an empty queue, the highest while it fills, afterwards, and after a restart. */
  readonly rss: { readonly idle: number; readonly peak: number; readonly queued: number; readonly restarted: number };
  readonly idleCpuMsPerSecond: number;
  readonly queuedCpuMsPerSecond: number;
  readonly restartMs: number;
  readonly storeMebibytes: number;
}

let count = 0;
function toBody(): string {
  const index = count++;
  const type = `bench.endpoint-${index % ENDPOINTS}`;
  return JSON.stringify({ id: `msg_${index}`, type, data: { text: TEXT, index } });
}

/** Posts `requests` requests with `perRequest` events each. */
async function accept(
  { apiPort, pids, storePids }: BacklogSidecar,
  requests: number,
  perRequest: number,
): Promise<AcceptFigures> {
  const connections = perRequest === 1 ? SINGLE_CONNECTIONS : BATCH_CONNECTIONS;
  const pool = new Pool(`http://127.0.0.1:${apiPort}`, { connections });
  const path = perRequest === 1 ? '/v1/events' : '/v1/events:batch';
  const times: number[] = [];
  let left = requests;
  const postNext = async (): Promise<void> => {
    while (left-- > 0) {
      const events = Array.from({ length: perRequest }, toBody);
      const body = perRequest === 1 ? (events[0] ?? '') : `{"events":[${events.join(',')}]}`;
      const began = performance.now();
      const response = await pool.request({ path, method: 'POST', headers: { 'content-type': 'application/json' }, body });
      const text = await response.body.text();
      if (response.statusCode !== 202) throw new Error(`${response.statusCode}: ${text.slice(0, 500)}`);
      times.push(performance.now() - began);
    }
  };
  const [before, storeBefore, began] = [readThreadMicroseconds(pids()), readThreadMicroseconds(storePids()), performance.now()];
  await Promise.all(Array.from({ length: connections }, postNext));
  const seconds = (performance.now() - began) / 1_000;
  await pool.close();
  times.sort((a, b) => a - b);
  const events = requests * perRequest;
  return {
    perSecond: events / seconds,
    cpu: (readThreadMicroseconds(pids()) - before) / events,
    storeCpu: (readThreadMicroseconds(storePids()) - storeBefore) / events,
    p50: times[Math.floor(times.length / 2)] ?? 0,
    p99: times[Math.floor(times.length * 0.99)] ?? 0,
  };
}

/** Reads each list again and again, one request at a time, while attempts to the endpoints go on. */
async function readLists({ apiPort }: BacklogSidecar): Promise<BacklogFigures['lists']> {
  const read = async (path: string): Promise<number> => {
    const began = performance.now();
    const response = await fetch(`http://127.0.0.1:${apiPort}${path}`);
    const text = await response.text();
    if (response.status !== 200) throw new Error(`${path}: ${response.status} ${text.slice(0, 500)}`);
    return performance.now() - began;
  };
  const lists = [];
  for (const path of LISTS) {
    const first = await read(path);
    let worst = 0;
    for (let round = 0; round < LIST_ROUNDS; round++) worst = Math.max(worst, await read(path));
    lists.push({ path, first, worst });
  }
  return lists;
}

/** Of the sidecar and its store, for each second, while nothing is posted. */
async function measureIdleCpu({ pids, storePids }: BacklogSidecar): Promise<number> {
  const all = [...pids(), ...storePids()];
  const before = readThreadMicroseconds(all);
  await pause(IDLE_MS);
  return (readThreadMicroseconds(all) - before) / IDLE_MS;
}

/** Samples the memory of the sidecar until the returned function is called, which returns the peak. */
function watchRss({ pids }: BacklogSidecar): () => number {
  let peak = 0;
  const sample = (): void => {
    peak = Math.max(peak, readRssMebibytes(pids()));
  };
  const timer = setInterval(sample, SAMPLE_MS);
  return () => {
    clearInterval(timer);
    sample();
    return peak;
  };
}

function readStoreMebibytes({ file, storeBytes }: BacklogSidecar): number {
  return (file === undefined ? storeBytes() : statSync(file).size) / 2 ** 20;
}

async function measure(engine: EngineName, events: number): Promise<BacklogFigures> {
  const receivers = startProcess('receivers.ts');
  try {
    const { port } = await nextMessage<ReceiversReady>(receivers);
    const sidecar = await startBacklogSidecar(engine, port, ENDPOINTS);
    try {
      await pause(IDLE_MS);
      const idleCpuMsPerSecond = await measureIdleCpu(sidecar);
      const idle = readRssMebibytes(sidecar.pids());
      const readPeak = watchRss(sidecar);
      await accept(sidecar, WARM_UP, 1);
      const single = await accept(sidecar, SINGLE_EVENTS, 1);
      const batch = await accept(sidecar, Math.ceil((events - WARM_UP - SINGLE_EVENTS) / BATCH), BATCH);
      await pause(IDLE_MS);
      const queuedCpuMsPerSecond = await measureIdleCpu(sidecar);
      const [peak, queued] = [readPeak(), readRssMebibytes(sidecar.pids())];
      const lists = await readLists(sidecar);
      const storeMebibytes = readStoreMebibytes(sidecar);
      const restartMs = await sidecar.restart();
      await pause(IDLE_MS);
      const rss = { idle, peak, queued, restarted: readRssMebibytes(sidecar.pids()) };
      return { engine, single, batch, lists, rss, idleCpuMsPerSecond, queuedCpuMsPerSecond, restartMs, storeMebibytes };
    } finally {
      await sidecar.close();
    }
  } finally {
    await stopProcess(receivers);
  }
}

function toAcceptRow(engine: EngineName, kind: string, { perSecond, cpu, storeCpu, p50, p99 }: AcceptFigures): string {
  return `| ${engine}, ${kind} | ${[perSecond, cpu, storeCpu].map((value) => toFixed(value, 0)).join(' | ')} | ${toFixed(p50, 1)} | ${toFixed(p99, 1)} |`;
}

function toListCells(list: BacklogFigures['lists'][number] | undefined): string {
  return list === undefined ? ' | ' : `${toFixed(list.first, 1)} | ${toFixed(list.worst, 1)}`;
}

function toMemoryRow({
  engine,
  rss,
  idleCpuMsPerSecond,
  queuedCpuMsPerSecond,
  restartMs,
  storeMebibytes,
}: BacklogFigures): string {
  const memory = [rss.idle, rss.peak, rss.queued, rss.restarted].map((value) => toFixed(value, 0));
  const cpu = [idleCpuMsPerSecond, queuedCpuMsPerSecond].map((value) => toFixed(value, 1));
  return `| ${[engine, ...memory, ...cpu, toFixed(restartMs, 0), toFixed(storeMebibytes, 0)].join(' | ')} |`;
}

function toReport(figures: readonly BacklogFigures[], events: number, busy: number): string {
  return [
    '# A large queue',
    '',
    'Written by `npm run bench -- backlog`; do not edit.',
    '',
    `${new Date().toISOString().slice(0, 10)}; ${describeMachine().join('; ')}; other work took ${toPercent(busy)} of the machine just before.`,
    `A real sidecar (the bundle, on the Node of the image, on one core) gets ${events} events of 1 KiB by its API, for ${ENDPOINTS} endpoints that accept`,
    'connections and never respond. Its limits are the defaults, except for the size of the queue; its heap has 128 MiB, as in a container of',
    '256 MiB. PostgreSQL waits for its disk.',
    '',
    `Goal: at most ${GOAL_ABOVE_IDLE_MIB} MiB of resident memory above idle.`,
    ...figures.map(({ engine, rss }) => {
      const above = rss.peak - rss.idle;
      return `**${engine}: ${toFixed(above, 0)} MiB at the peak, ${above < GOAL_ABOVE_IDLE_MIB ? 'reached' : 'missed'}.**`;
    }),
    '',
    `Accepting: one event in a request on ${SINGLE_CONNECTIONS} connections, or ${BATCH} on ${BATCH_CONNECTIONS}; CPU per event, latency per request.`,
    '',
    '| | events/s | CPU µs of the sidecar | CPU µs of PostgreSQL | p50 ms | p99 ms |',
    '|---|---|---|---|---|---|',
    ...figures.flatMap(({ engine, single, batch }) => [
      toAcceptRow(engine, 'single', single),
      toAcceptRow(engine, 'batches', batch),
    ]),
    '',
    'Memory of the sidecar in MiB; CPU in ms per second of the sidecar and PostgreSQL while nothing is posted: with an empty queue, and with all events',
    'queued while attempts to the endpoints go on. The store is the file of SQLite, or the database of PostgreSQL.',
    '',
    '| engine | idle | peak | all queued | after a restart | idle CPU | CPU, all queued | ms until a restarted one listens | store MiB |',
    '|---|---|---|---|---|---|---|---|---|',
    ...figures.map(toMemoryRow),
    '',
    `The lists of the API with all events queued, in ms, one request at a time: the first call, and the slowest of ${LIST_ROUNDS} more. Goal: below ${GOAL_LIST_MS} ms.`,
    '',
    `| | ${figures.map(({ engine }) => `${engine}, first | ${engine}, slowest`).join(' | ')} |`,
    `|---|${'---|---|'.repeat(figures.length)}`,
    ...LISTS.map((path, i) => `| \`${path}\` | ${figures.map(({ lists }) => toListCells(lists[i])).join(' | ')} |`),
    '',
  ].join('\n');
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      events: { type: 'string', default: '1000000' },
      only: { type: 'string', default: ENGINES.join(',') },
      out: { type: 'string', default: OUT },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) return console.log(HELP);
  const meter = new BusyMeter();
  await pause(1_000);
  const busy = meter.lap();
  const figures: BacklogFigures[] = [];
  for (const engine of values.only.split(',') as EngineName[]) {
    figures.push(await measure(engine, Number(values.events)));
    console.log(JSON.stringify(figures.at(-1)));
  }
  writeFileSync(values.out, toReport(figures, Number(values.events), busy));
}

await main();
