/** The benchmark: sidegate beside its rivals, scenario by scenario, in turns. `node bench/run.ts --help` tells the options. */
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { HandledLog } from './handled.ts';
import { BusyMeter } from './machine.ts';
import { type RunFacts, type Series, toReport } from './results.ts';
import { type Contestant, RIVALS, type RivalName, startRival } from './rivals.ts';
import { type Measurement, play, SCENARIOS, type Scenario } from './scenarios.ts';
import { findMissingPackages } from './setup.ts';
import { openStage, type Stage } from './stage.ts';

const HELP = `Usage: npm run bench -- [options]

  --rounds N      rounds, each with fresh processes (default 5)
  --seconds N     length of each load (default 4)
  --quick         one round of 2 s, for a first look; RESULTS.md stays as it is
  --only LIST     scenarios and rivals to take part, with commas between:
                  ${[...SCENARIOS.map(({ name }) => name), ...RIVALS].join(', ')}
  --out FILE      where the report goes (default bench/RESULTS.md, for a whole run only)
`;
const ROOT = join(import.meta.dirname, '..');
/** Some 100,000 deliveries: a gate serves for weeks, and V8 is still compiling during the first ones. */
const WARM_UP_SECONDS = 25;
const QUICK_WARM_UP_SECONDS = 3;
const LOOK_AROUND_MS = 1_000;

interface Plan {
  readonly rounds: number;
  readonly seconds: number;
  readonly warmUpSeconds: number;
  readonly scenarios: readonly Scenario[];
  readonly rivals: readonly RivalName[];
  /** Undefined: shown only. */
  readonly out: string | undefined;
}

function readPlan(): Plan | undefined {
  const { values } = parseArgs({
    options: {
      rounds: { type: 'string' },
      seconds: { type: 'string' },
      quick: { type: 'boolean', default: false },
      only: { type: 'string', default: '' },
      out: { type: 'string' },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) return undefined;
  const only = values.only.split(',').filter(Boolean);
  const known: readonly string[] = [...SCENARIOS.map(({ name }) => name), ...RIVALS];
  const unknown = only.filter((name) => !known.includes(name));
  if (unknown.length > 0) throw new Error(`--only knows ${known.join(', ')}; not ${unknown.join(', ')}`);
  const pick = <T>(all: readonly T[], nameOf: (item: T) => string): readonly T[] => {
    const picked = all.filter((item) => only.includes(nameOf(item)));
    return picked.length === 0 ? all : picked;
  };
  const isWhole = !values.quick && only.length === 0;
  return {
    rounds: readCount('--rounds', values.rounds ?? (values.quick ? '1' : '5')),
    seconds: readCount('--seconds', values.seconds ?? (values.quick ? '2' : '4')),
    warmUpSeconds: values.quick ? QUICK_WARM_UP_SECONDS : WARM_UP_SECONDS,
    scenarios: pick(SCENARIOS, ({ name }) => name),
    rivals: pick(RIVALS, (name) => name),
    out: values.out ?? (isWhole ? join(import.meta.dirname, 'RESULTS.md') : undefined),
  };
}

function readCount(option: string, text: string): number {
  const count = Number(text);
  if (!Number.isInteger(count) || count < 1 || count > 100) throw new Error(`${option} takes a whole number from 1 to 100`);
  return count;
}

/** The tools and the bundle, or an error that tells what to do. */
function checkSetUp(): void {
  const missing = findMissingPackages();
  if (missing.length > 0) throw new Error(`install first: apt-get install ${missing.join(' ')}`);
  if (!existsSync(join(ROOT, 'dist', 'sidegate.mjs'))) throw new Error('build first: npm run build');
}

/** Starts the rivals, warms them up, plays every scenario with each in turn, and ends them. */
async function playRound(stage: Stage, plan: Plan, tell: (one: Series) => void): Promise<void> {
  const contestants: Contestant[] = [];
  try {
    for (const name of plan.rivals) contestants.push(await startRival(name, stage));
    const logs = new Map(contestants.map((contestant) => [contestant, new HandledLog(contestant)]));
    const enter = (contestant: Contestant, scenario: Scenario, seconds: number): Promise<Measurement> =>
      play(scenario, { stage, contestant, log: logs.get(contestant) as HandledLog, seconds });
    for (const contestant of contestants) await enter(contestant, SCENARIOS[0] as Scenario, plan.warmUpSeconds);
    for (const scenario of plan.scenarios) {
      for (const contestant of contestants) {
        tell({ scenario, rival: contestant.name, rounds: [await enter(contestant, scenario, plan.seconds)] });
      }
    }
  } finally {
    await Promise.all(contestants.map((contestant) => contestant.stop()));
  }
}

async function playAll(plan: Plan): Promise<Series[]> {
  const measured: Series[] = [];
  const stage = await openStage();
  try {
    for (let round = 1; round <= plan.rounds; round++) {
      console.log(`round ${round} of ${plan.rounds}`);
      await playRound(stage, plan, (one) => {
        measured.push(one);
        console.log(`  ${toLine(one)}`);
      });
    }
  } finally {
    await stage.close();
  }
  return merge(measured);
}

/** One series for each scenario and rival, in the order they were first played. */
function merge(measured: readonly Series[]): Series[] {
  const merged = new Map<string, Series>();
  for (const { scenario, rival, rounds } of measured) {
    const key = `${scenario.name} ${rival}`;
    merged.set(key, { scenario, rival, rounds: [...(merged.get(key)?.rounds ?? []), ...rounds] });
  }
  return [...merged.values()];
}

function toLine({ scenario, rival, rounds }: Series): string {
  const [one] = rounds as [Measurement];
  const figures = [
    `${one.cpuMicroseconds.toFixed(1)} µs`,
    `${one.requestsPerSecond.toFixed(0)}/s`,
    `${one.rssMebibytes.toFixed(0)} MiB`,
  ];
  if (one.paced !== undefined) figures.push(`p50 ${one.paced.p50.toFixed(2)} ms`, `p99 ${one.paced.p99.toFixed(2)} ms`);
  return [scenario.title.padEnd(26), rival.padEnd(10), ...figures, ...one.wrong].join('  ');
}

async function main(): Promise<void> {
  const plan = readPlan();
  if (plan === undefined) {
    console.log(HELP);
    return;
  }
  checkSetUp();
  const meter = new BusyMeter();
  await pause(LOOK_AROUND_MS);
  const busyBefore = meter.lap();
  const series = await playAll(plan);
  const facts: RunFacts = { ...plan, busyBefore, date: new Date().toISOString().slice(0, 10) };
  const report = toReport(series, facts);
  if (plan.out === undefined) console.log(`\n${report}`);
  else writeFileSync(plan.out, report);
  if (series.some(({ rounds }) => rounds.some(({ wrong }) => wrong.length > 0))) process.exitCode = 1;
}

try {
  await main();
} catch (thrown) {
  console.error(thrown instanceof Error ? thrown.message : thrown);
  process.exitCode = 1;
}
