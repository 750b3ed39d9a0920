/** `npm run bench -- queue`: what accepting and delivering an event costs in each engine of the queue. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { BusyMeter, describeMachine } from '../machine.ts';
import { ENGINES, type EngineName, type OpenEngine, openEngine } from '../provider/engines.ts';
import { median } from '../statistics.ts';
import { type Figures, fill, measureAccept, measureDelivery, measureReads } from './loads.ts';

const REPORT = join(import.meta.dirname, '..', 'RESULTS-queue.md');
const HELP = `Usage: npm run bench -- queue [options]

  --rounds N    rounds of each load, each with an empty store (default 3)
  --events N    events of each load (default 10000)
  --waiting N   events that wait while lists and figures are read (default 1000000)
  --only NAME   one engine: ${ENGINES.join(', ')}
  --out FILE    where the report goes (default bench/RESULTS-queue.md, if all engines are measured)
`;
const CONCURRENCIES = [1, 8, 64];
const WARM_UP = 3_000;
/** With one append at a time, the disk is waited for each time. */
const SINGLE_SHARE = 5;
/** The 99th percentile of lists and figures. */
const GOAL_READ_MS = 50;

interface Plan {
  readonly rounds: number;
  readonly events: number;
  readonly waiting: number;
}

interface Row {
  readonly engine: string;
  readonly load: string;
  readonly rounds: Figures[];
}

/** Runs `use` on an empty store. */
async function withEngine<T>(engine: EngineName, use: (open: OpenEngine) => Promise<T>): Promise<T> {
  const open = await openEngine(engine);
  try {
    return await use(open);
  } finally {
    await open.remove();
  }
}

async function playLoads(engine: EngineName, { rounds, events }: Plan): Promise<Row[]> {
  const rows = [...CONCURRENCIES.map((n) => `accept, ${n} at a time`), 'take and settle'].map(
    (load): Row => ({ engine, load, rounds: [] }),
  );
  for (let round = 0; round < rounds; round++) {
    const figures = await withEngine(engine, async (open) => {
      await measureAccept(open, WARM_UP, 64);
      await measureDelivery(open, WARM_UP);
      const accepted: Figures[] = [];
      for (const n of CONCURRENCIES)
        accepted.push(await measureAccept(open, n === 1 ? Math.ceil(events / SINGLE_SHARE) : events, n));
      const waiting = (await open.queue.stats(Date.now())).waiting;
      if (waiting < events) await fill(open, events - waiting);
      return [...accepted, await measureDelivery(open, Math.max(waiting, events))];
    });
    for (const [i, row] of rows.entries()) {
      const each = figures[i];
      if (each === undefined) continue;
      row.rounds.push(each);
      console.log(`${row.engine}, ${row.load}: ${toCells(each).join(', ')}`);
    }
  }
  return rows;
}

/** Lists and figures of a large queue. */
function playReads(engine: EngineName, { waiting }: Plan): Promise<Row[]> {
  return withEngine(engine, async (open) => {
    await fill(open, waiting);
    await measureReads(open);
    return [...(await measureReads(open))].map(([load, figures]) => ({ engine, load, rounds: [figures] }));
  });
}

function toReadReport(rows: readonly Row[], waiting: number): string[] {
  const slowest = Math.max(...rows.flatMap(({ rounds }) => rounds.map(({ p99 }) => p99)));
  const verdict = slowest < GOAL_READ_MS ? 'reached' : 'missed';
  return [
    '',
    `Lists of 50 and figures while ${waiting} events wait. Goal: a 99th percentile below ${GOAL_READ_MS} ms. The slowest has ${slowest.toFixed(1)} ms: ${verdict}.`,
    '',
    '| engine | read | CPU µs each | p50 ms | p99 ms |',
    '|---|---|---|---|---|',
    ...rows.map(({ engine, load, rounds }) => `| ${[engine, load, ...toCells(toMedian(rounds)).slice(1)].join(' | ')} |`),
  ];
}

function toCells({ perSecond, cpuMicroseconds, p50, p99 }: Figures): string[] {
  return [perSecond.toFixed(0), cpuMicroseconds.toFixed(0), p50.toFixed(1), p99.toFixed(1)];
}

function toMedian(rounds: readonly Figures[]): Figures {
  const of = (key: keyof Figures): number => median(rounds.map((figures) => figures[key]));
  return { perSecond: of('perSecond'), cpuMicroseconds: of('cpuMicroseconds'), p50: of('p50'), p99: of('p99') };
}

function toReport(rows: readonly Row[], reads: readonly Row[], { rounds, events, waiting }: Plan, busy: number): string {
  return [
    '# Cost of the queue',
    '',
    'Written by `npm run bench -- queue`; do not edit.',
    '',
    `${new Date().toISOString().slice(0, 10)}; ${describeMachine().join('; ')}; Node ${process.version}.`,
    `Other work kept ${(busy * 100).toFixed(0)} % of the machine busy before the start: with more than 10 %, rates and latencies are too bad; CPU times hold.`,
    '',
    `Events of 1 KiB for 200 endpoints, ${rounds} rounds of ${events} events, medians. CPU is user and system time of the whole process with its`,
    'threads, and of the server where there is one. An accepted event is durable. Take and settle is the queue’s part of a delivery without the',
    'HTTP request: 64 lanes with 4 deliveries each, every delivery settled on its own; its latency is that of a settlement.',
    '',
    '| engine | load | per second | CPU µs each | p50 ms | p99 ms |',
    '|---|---|---|---|---|---|',
    ...rows.map(({ engine, load, rounds: figures }) => `| ${[engine, load, ...toCells(toMedian(figures))].join(' | ')} |`),
    ...toReadReport(reads, waiting),
    '',
  ].join('\n');
}

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '3' },
    events: { type: 'string', default: '10000' },
    waiting: { type: 'string', default: '1000000' },
    only: { type: 'string' },
    out: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) console.log(HELP);
else {
  const plan = { rounds: Number(values.rounds), events: Number(values.events), waiting: Number(values.waiting) };
  const meter = new BusyMeter();
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  const busy = meter.lap();
  const [rows, reads]: [Row[], Row[]] = [[], []];
  for (const engine of ENGINES.filter((name) => name === (values.only ?? name))) {
    rows.push(...(await playLoads(engine, plan)));
    reads.push(...(await playReads(engine, plan)));
  }
  const report = toReport(rows, reads, plan, busy);
  const out = values.out ?? (values.only === undefined ? REPORT : undefined);
  if (out === undefined) console.log(`\n${report}`);
  else writeFileSync(out, report);
}
