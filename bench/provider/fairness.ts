/** Measures how long healthy endpoints wait for their events beside dead ones with large backlogs, and writes RESULTS-fairness.md. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { toPercent } from '../figures.ts';
import { BusyMeter, describeMachine } from '../machine.ts';
import { toQuantile } from '../statistics.ts';
import { ENGINES, type EngineName } from './engines.ts';
import { nextMessage, startProcess, stopProcess } from './processes.ts';
import type { FairnessFigures, FairnessTask, ProviderMessage } from './provider-process.ts';
import type { ReceivedFigures, ReceiverCommand, ReceiversReady } from './receivers.ts';

const OUT = join(import.meta.dirname, '..', 'RESULTS-fairness.md');
const HELP = `Usage: npm run bench -- fairness [--seconds N] [--backlog N] [--only ${ENGINES.join(',')}] [--out FILE]

  --seconds N   length of each load (default 30)
  --backlog N   events that wait for each dead endpoint (default 50000)
`;
const GOAL_P99_MS = 250;
/** Of the machine, by others. */
const QUIET_SHARE = 0.1;
const HEALTHY = 200;
const RATE = 100;
/** The second is what the goal is about. The third has a tenth of the backlog, as loading it takes minutes. */
const DEAD: readonly { readonly count: number; readonly share: number }[] = [
  { count: 0, share: 0 },
  { count: 50, share: 1 },
  { count: 200, share: 0.1 },
];

interface Row {
  readonly task: FairnessTask;
  readonly loadSeconds: number;
  readonly done: FairnessFigures;
  readonly received: ReceivedFigures;
  /** Of the machine, by others, just before. */
  readonly busy: number;
}

async function play(task: Omit<FairnessTask, 'port'>): Promise<Row> {
  const meter = new BusyMeter();
  await pause(1_000);
  const busy = meter.lap();
  const receivers = startProcess('receivers.ts');
  const provider = startProcess('provider-process.ts');
  try {
    const { port } = await nextMessage<ReceiversReady>(receivers);
    const full = { ...task, port };
    provider.send(full);
    const { seconds: loadSeconds } = await nextMessage<Extract<ProviderMessage, { kind: 'loaded' }>>(provider);
    const done = await nextMessage<FairnessFigures>(provider);
    const figures = nextMessage<ReceivedFigures>(receivers);
    receivers.send('figures' satisfies ReceiverCommand);
    return { task: full, loadSeconds, done, received: await figures, busy };
  } finally {
    await Promise.all([provider, receivers].map(stopProcess));
  }
}

function toLine({ task, done, received, busy, loadSeconds }: Row): string {
  const { delays, duplicates, dead } = received;
  const cells = [
    task.engine,
    String(task.dead),
    String(task.backlog),
    `${delays.length} of ${done.appended}${duplicates > 0 ? ` and ${duplicates} repeated` : ''}`,
    ...[0.5, 0.99, 1].map((share) => toQuantile(delays, share).toFixed(0)),
    toSum(done.cpuMsPerSecond, done.serverCpuMsPerSecond),
    toSum(done.rss, done.serverRss),
    String(dead),
    loadSeconds.toFixed(0),
    done.lateMs.toFixed(0),
    toPercent(busy),
  ];
  return `| ${cells.join(' | ')} |`;
}

/** Of the provider, and of the server if there is one. */
function toSum(own: number, server: number): string {
  return server === 0 ? own.toFixed(0) : `${own.toFixed(0)} + ${server.toFixed(0)}`;
}

function describeNoise(rows: readonly Row[]): string[] {
  if (rows.every(({ busy }) => busy <= QUIET_SHARE)) return [];
  return [
    '**The machine was not quiet: compare with the row without dead endpoints, and measure again on a quiet machine.**',
    '',
  ];
}

function toReport(rows: readonly Row[], seconds: number): string {
  const judged = rows.filter(({ task }) => task.dead === 50);
  return [
    '# Fairness: healthy endpoints beside dead ones',
    '',
    'Written by `npm run bench -- fairness`; do not edit.',
    '',
    `${new Date().toISOString().slice(0, 10)}; ${[...describeMachine(), `Node ${process.version}`].join('; ')}.`,
    `${RATE} events per second for ${HEALTHY} healthy endpoints in turns, for ${seconds} s. Events wait for dead endpoints, which accept`,
    'connections and never respond. Deliveries start when the load starts: no endpoint has had a success, so this includes the cold start.',
    'The default limits hold: 64 fast attempts, 512 attempts, 4 for each endpoint, a timeout of 15 s. The receivers are in another process.',
    '',
    `Goal: with 50 dead endpoints, the p99 of healthy deliveries is below ${GOAL_P99_MS} ms.`,
    ...judged.map(({ task, received, done }) => {
      const p99 = toQuantile(received.delays, 0.99);
      const isReached = p99 < GOAL_P99_MS && received.delays.length === done.appended;
      return `**${task.engine}: ${p99.toFixed(0)} ms, ${isReached ? 'reached' : 'missed'}.**`;
    }),
    '',
    ...describeNoise(rows),
    'Delays are from the creation of an event, before it is stored, to its receipt. CPU and memory are of the provider with all its threads,',
    'which creates and accepts the events, too, and of PostgreSQL after the plus sign. "Load late" is by how much an event was created later than',
    'planned at most, because the process had no CPU. "Busy" is the share of the machine that other work took just before.',
    '',
    '| engine | dead endpoints | events waiting for each | healthy events delivered | p50 ms | p99 ms | worst ms | CPU ms/s | RSS MiB | attempts to dead ones | s to load the backlog | load late ms | busy |',
    '|---|---|---|---|---|---|---|---|---|---|---|---|---|',
    ...rows.map(toLine),
    '',
  ].join('\n');
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      seconds: { type: 'string', default: '30' },
      backlog: { type: 'string', default: '50000' },
      only: { type: 'string', default: ENGINES.join(',') },
      out: { type: 'string', default: OUT },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) return console.log(HELP);
  const [seconds, backlog] = [Number(values.seconds), Number(values.backlog)];
  const rows: Row[] = [];
  for (const engine of values.only.split(',') as EngineName[]) {
    for (const { count, share } of DEAD) {
      const row = await play({ engine, dead: count, healthy: HEALTHY, backlog: share * backlog, rate: RATE, seconds });
      rows.push(row);
      console.log(toLine(row));
    }
  }
  writeFileSync(values.out, toReport(rows, seconds));
}

await main();
