/** Measures what Redis needs for each delivery, and simulates fleets: `npm run bench -- scale --help`. */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { BusyMeter, describeMachine } from '../machine.ts';
import { type CalibrationRound, calibrate, combineCalibrations, measureIds } from './calibrate.ts';
import { withoutRedisCore } from './cores.ts';
import { fitTimes } from './fit.ts';
import { measureGate } from './gate-costs.ts';
import { combineComparisons, compareSmall } from './measure-small.ts';
import { RESULTS_FILE, readScaleRun, renderScalePage } from './page.ts';
import { measureQueues } from './queue-costs.ts';
import { type Comparison, compareLoads, type FleetResult, findObstacle, type ScaleRun, TOLERANCE } from './results.ts';
import { type FleetCase, simulateFleet } from './simulate.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const HELP = `Usage: npm run bench -- scale [--rounds N] [--counts | --simulate]

  --rounds N   rounds of each load (default 3)
  --counts     only counts commands and bytes again, and keeps the rest of the last run
  --simulate   only simulates the fleets again, with the service times of the last run

A run takes about 10 minutes and writes bench/RESULTS-scale.json and docs/scale.md. It fails if the simulation differs from
what was measured by more than ${TOLERANCE * 100} %.
`;
/** Fewer loads prove little. */
const MIN_COMPARED = 3;
const LOAD_SECONDS = 4;
/** Deliveries that a simulation has about. */
const SIMULATED = 60_000;
const MAX_SECONDS = 20;
const SENDERS = 10_000;
/** Gates, shards, events per second. */
const FLEETS: readonly (readonly [number, number, number])[] = [
  [10, 1, 10_000],
  [1_000, 1, 1_000],
  [1_000, 1, 10_000],
  [1_000, 1, 20_000],
  [1_000, 1, 40_000],
  [1_000, 1, 60_000],
  [1_000, 10, 100_000],
  [1_000, 100, 1_000_000],
  [10_000, 1, 10_000],
  [10_000, 100, 1_000_000],
];

function simulateAll(times: Pick<ScaleRun, 'service' | 'client' | 'gateMicroseconds'>): FleetResult[] {
  return FLEETS.map(([gates, shards, eventsPerSecond]) => {
    const seconds = Math.min(SIMULATED / eventsPerSecond, MAX_SECONDS);
    const fleetCase: FleetCase = { gates, senders: SENDERS, shards, eventsPerSecond, seconds };
    const result = simulateFleet(times, fleetCase);
    console.log(JSON.stringify(result));
    return result;
  });
}

/** The CPU times of a row of a report, which start the cells that follow its title. */
function readRow(file: string, section: string, title: string): number[] {
  const report = readFileSync(join(ROOT, 'bench', file), 'utf8');
  const text = report.slice(Math.max(report.indexOf(section), 0));
  const row = text.split('\n').find((line) => line.startsWith(`| ${title} |`));
  if (row === undefined) throw new Error(`bench/${file} has no row "${title}"`);
  return row.split('|').slice(2).map(Number.parseFloat);
}

/** Figures of other benchmarks: CPU times per delivery. */
function readOtherReports(): Pick<ScaleRun, 'gateMicroseconds' | 'providers'> {
  const [gateMicroseconds = 0] = readRow('RESULTS.md', '### accepted, 1 KiB\n', 'sidegate');
  const toProvider = (title: string): ScaleRun['providers']['postgres'] => {
    const [deliver = 0, , , accept = 0] = readRow('RESULTS-delivery.md', '# CPU', title);
    return { deliver, accept };
  };
  return {
    gateMicroseconds,
    providers: {
      sqlite: toProvider('the provider on SQLite: taken from the queue, sent, settled'),
      postgres: toProvider('the provider on PostgreSQL, with the CPU of PostgreSQL'),
    },
  };
}

interface Round {
  readonly calibrated: CalibrationRound;
  readonly comparisons: readonly Comparison[];
}

/** A shared machine is as fast in one round as in another only by chance, so each round simulates with its own service times. */
async function playRound(): Promise<Round> {
  return withoutRedisCore(async () => {
    const calibrated = await calibrate();
    return { calibrated, comparisons: await compareSmall(fitTimes(calibrated.calibrations), LOAD_SECONDS) };
  });
}

async function measureAll(rounds: number): Promise<ScaleRun> {
  const commit = execFileSync('git', ['rev-parse', '--short=12', 'HEAD'], { encoding: 'utf8' }).trim();
  const redis = /v=(\S+)/.exec(execFileSync('redis-server', ['--version'], { encoding: 'utf8' }))?.[1];
  const other = new BusyMeter();
  await new Promise((resolve) => setTimeout(resolve, 2_000));
  const busy = other.lap();
  const id = await measureIds();
  const all: Round[] = [];
  for (let i = 0; i < rounds; i++) all.push(await playRound());
  const calibrated = combineCalibrations(all.map(({ calibrated: each }) => each));
  const comparisons = combineComparisons(all.map(({ comparisons: each }) => each));
  const queues = await measureQueues(rounds);

  const gate = await measureGate();
  const times = { id, ...calibrated, ...readOtherReports() };
  return {
    date: new Date().toISOString().slice(0, 10),
    commit,
    machine: [...describeMachine(), `Node ${process.version}`, `Redis ${redis}`].join('; '),
    otherWork: busy,
    rounds: { calibrations: rounds, comparisons: rounds },
    ...gate,
    ...times,
    comparisons,
    fleets: simulateAll(times),
    queues,
  };
}

/** The differences that are too large. */
function checkAgreement({ comparisons }: ScaleRun): string[] {
  const compared = comparisons.filter((one) => findObstacle(one) === undefined);
  if (compared.length < MIN_COMPARED) return [`only ${compared.length} loads can be compared: the machine is too busy`];
  return compared.flatMap((one) =>
    Object.entries(compareLoads(one))
      .filter(([, difference]) => difference > TOLERANCE)
      .map(([name, difference]) => `${one.eventsPerSecond} events/s: ${name} differs by ${(difference * 100).toFixed(0)} %`),
  );
}

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '3' },
    counts: { type: 'boolean', default: false },
    simulate: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) console.log(HELP);
else {
  const run = await runParts(values);
  writeFileSync(RESULTS_FILE, `${JSON.stringify(run, roundNumbers, 2)}\n`);
  // From the file, as "npm run docs" does: its figures are rounded.
  writeFileSync(join(ROOT, 'docs', 'scale.md'), renderScalePage(readScaleRun()));
  const problems = checkAgreement(run);
  for (const problem of problems) console.error(problem);
  process.exit(problems.length === 0 ? 0 : 1);
}

async function runParts(parts: { counts: boolean; simulate: boolean; rounds: string }): Promise<ScaleRun> {
  if (!parts.counts && !parts.simulate) return measureAll(Number(parts.rounds));
  const last = { ...readScaleRun(), ...readOtherReports() };
  if (parts.counts) return { ...last, ...(await measureGate()) };
  return { ...last, fleets: simulateAll(last) };
}

function roundNumbers(_key: string, value: unknown): unknown {
  return typeof value === 'number' ? Number(value.toPrecision(4)) : value;
}
