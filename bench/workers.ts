/**
 * `npm run bench -- workers`: how many accepted deliveries per second a gate handles with one worker and with two. Each worker may use half a core, so
 * that two of them and the load need less than two cores: otherwise the load, and not the gate, would be the limit.
 */
import { join } from 'node:path';
import { type BenchEnvironment, openEnvironment } from './bench-environment.ts';
import { BOTH_CORES, end, findFreePort, launch, untilListening } from './children.ts';
import { type Played, runBench } from './command.ts';
import { makeCpuQuota } from './cpu-quota.ts';
import { describeNoise, type RunFacts, toPercent, toSpread } from './figures.ts';
import { describeMachine, readCpuMicroseconds } from './machine.ts';
import type { BenchDefaults, BenchOptions } from './options.ts';
import { toSidegate, writeSidegateConfig } from './rivals.ts';
import { checkSetUp, WEBHOOK_TOOLS } from './setup.ts';
import { writeDeliveries } from './sign.ts';
import { pairedRatio } from './statistics.ts';
import { replay } from './wrk.ts';

const DEFAULTS: BenchDefaults = {
  names: [],
  seconds: 8,
  warmUpSeconds: 25,
  out: join(import.meta.dirname, 'RESULTS-workers.md'),
};
const WORKERS = [1, 2] as const;
const CORES_PER_WORKER = 0.5;
const CONNECTIONS_PER_WORKER = 32;
const MOST_PER_SECOND = 30_000;
const BODY_BYTES = 1_024;
const GOAL = 1.7;
/** A gate that uses less of its CPU time was not the limit. */
const LEAST_USED = 0.9;

/** One load. */
interface Figures {
  readonly perSecond: number;
  readonly cpuMicroseconds: number;
  /** Share of its CPU time that the gate used. */
  readonly used: number;
}

async function load(environment: BenchEnvironment, port: number, workers: number, seconds: number): Promise<number> {
  const { folder, secret } = environment;
  const count = MOST_PER_SECOND * seconds;
  const deliveries = writeDeliveries({ folder, name: 'workers', count, bodyBytes: BODY_BYTES }, secret);
  const connections = CONNECTIONS_PER_WORKER * workers;
  const { requests, statuses } = await replay({ port, deliveries, seconds, connections, order: 'once' });
  if (statuses['200'] !== requests) throw new Error(`other responses than 200: ${JSON.stringify(statuses)}`);
  return requests;
}

async function measure(environment: BenchEnvironment, workers: number, options: BenchOptions): Promise<Figures> {
  const { seconds, warmUpSeconds } = options;
  const port = await findFreePort();
  const config = writeSidegateConfig(environment, port, await findFreePort(), workers);
  const cores = CORES_PER_WORKER * workers;
  const quota = makeCpuQuota(cores);
  const gate = toSidegate(config, { env: { BENCH_SECRET: environment.secret } });
  const child = launch({ ...gate, core: BOTH_CORES, command: '/bin/sh', args: quota.toShell(gate.command, gate.args) });
  try {
    await untilListening(child, port);
    await load(environment, port, workers, warmUpSeconds);
    const pids = [child.pid ?? 0];
    const before = readCpuMicroseconds(pids);
    const requests = await load(environment, port, workers, seconds);
    const cpu = readCpuMicroseconds(pids) - before;
    return { perSecond: requests / seconds, cpuMicroseconds: cpu / requests, used: cpu / (seconds * 1e6 * cores) };
  } finally {
    await end(child);
    quota.remove();
  }
}

function toReport(rounds: readonly (readonly Figures[])[], facts: RunFacts): string {
  const list = (index: number, key: keyof Figures): number[] => rounds.map((round) => round[index]?.[key] ?? Number.NaN);
  const scale = pairedRatio(list(1, 'perSecond'), list(0, 'perSecond'));
  const cost = pairedRatio(list(1, 'cpuMicroseconds'), list(0, 'cpuMicroseconds'));
  return [
    '# Workers',
    '',
    'Written by `npm run bench -- workers`; do not edit.',
    '',
    `${facts.date}; ${describeMachine().join('; ')}. ${facts.rounds} rounds with fresh processes, each with a load of ${facts.seconds} s after ${facts.warmUpSeconds} s of`,
    `warm-up. ${describeNoise(facts)}`,
    '',
    `Accepted deliveries of 1 KiB, Redis, ${CONNECTIONS_PER_WORKER} connections for each worker. Each worker may use ${CORES_PER_WORKER} of a core, so that the machine has`,
    'enough for the load, Redis and the app. Medians over the rounds, the lowest and highest round in brackets.',
    '',
    '| workers | deliveries/s | CPU µs per delivery | of its CPU time used |',
    '|---|---|---|---|',
    ...WORKERS.map((workers, index) => {
      const used = toPercent(Math.min(...list(index, 'used')));
      return `| ${workers} | ${toSpread(list(index, 'perSecond'), 0)} | ${toSpread(list(index, 'cpuMicroseconds'))} | ${used} |`;
    }),
    '',
    `Two workers handle ${scale.toFixed(2)} times as many deliveries as one (goal: at least ${GOAL}; ${scale >= GOAL ? 'met' : 'missed'}), and each delivery costs ${cost.toFixed(2)} times as much`,
    'CPU. These are medians of the ratios within each round.',
    '',
  ].join('\n');
}

async function play(options: BenchOptions): Promise<Played> {
  const rounds: Figures[][] = [];
  const environment = await openEnvironment();
  try {
    for (let round = 0; round < options.rounds; round++) {
      const figures: Figures[] = [];
      for (const workers of round % 2 === 0 ? WORKERS : WORKERS.toReversed()) {
        const found = await measure(environment, workers, options);
        figures[workers - 1] = found;
        console.log(
          `${workers} workers: ${found.perSecond.toFixed(0)}/s, ${found.cpuMicroseconds.toFixed(1)} µs, ${toPercent(found.used)} used`,
        );
        if (found.used < LEAST_USED) console.log('the gate was not the limit: repeat on a quiet machine');
      }
      rounds.push(figures);
    }
  } finally {
    await environment.close();
  }
  return { isWrong: false, toReport: (facts) => toReport(rounds, facts) };
}

await runBench({ command: 'npm run bench -- workers', defaults: DEFAULTS, prepare: () => checkSetUp(WEBHOOK_TOOLS), play });
