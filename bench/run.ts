/** The webhook benchmark: compares sidegate with other proxies, scenario by scenario, in turns. `node bench/run.ts --help` shows the options. */
import { join } from 'node:path';
import { type BenchEnvironment, openEnvironment } from './bench-environment.ts';
import { type BenchDefaults, type BenchOptions, pickNamed, runBench } from './command.ts';
import { HandledLog } from './handled.ts';
import { type Series, toReport } from './results.ts';
import { type Contestant, RIVALS, type RivalName, startRival } from './rivals.ts';
import { type Measurement, play, SCENARIOS, type Scenario } from './scenarios.ts';
import { checkSetUp } from './setup.ts';

const DEFAULTS: BenchDefaults = {
  names: [...SCENARIOS.map(({ name }) => name), ...RIVALS],
  seconds: 4,
  // About 100,000 deliveries, because V8 still compiles during the first ones, while a real gate runs for weeks.
  warmUpSeconds: 25,
  out: join(import.meta.dirname, 'RESULTS.md'),
};

interface Plan extends BenchOptions {
  readonly scenarios: readonly Scenario[];
  readonly rivals: readonly RivalName[];
}

/** Starts the rivals, warms them up, runs every scenario with each in turn, and stops them. */
async function playRound(environment: BenchEnvironment, plan: Plan, tell: (one: Series) => void): Promise<void> {
  const contestants: Contestant[] = [];
  try {
    for (const name of plan.rivals) contestants.push(await startRival(name, environment));
    const logs = new Map(contestants.map((contestant) => [contestant, new HandledLog(contestant)]));
    const enter = (contestant: Contestant, scenario: Scenario, seconds: number): Promise<Measurement> =>
      play(scenario, { environment, contestant, log: logs.get(contestant) as HandledLog, seconds });
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
  const environment = await openEnvironment();
  try {
    for (let round = 1; round <= plan.rounds; round++) {
      console.log(`round ${round} of ${plan.rounds}`);
      await playRound(environment, plan, (one) => {
        measured.push(one);
        console.log(`  ${toLine(one)}`);
      });
    }
  } finally {
    await environment.close();
  }
  return merge(measured);
}

/** One series per scenario and rival, in the order of the first run. */
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

await runBench({
  command: 'npm run bench --',
  defaults: DEFAULTS,
  prepare: checkSetUp,
  play: async (options) => {
    const scenarios = pickNamed(SCENARIOS, options.only, ({ name }) => name);
    const series = await playAll({ ...options, scenarios, rivals: pickNamed(RIVALS, options.only, (name) => name) });
    const isWrong = series.some(({ rounds }) => rounds.some(({ wrong }) => wrong.length > 0));
    return { isWrong, toReport: (facts) => toReport(series, facts) };
  },
});
