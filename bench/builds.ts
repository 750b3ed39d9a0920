/** Compares builds of sidegate: CPU per accepted delivery, in short loads in turns, so that the conditions are the same for all. */
import { existsSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { type BenchEnvironment, openEnvironment } from './bench-environment.ts';
import { BusyMeter, readThreadMicroseconds } from './machine.ts';
import { startBundle } from './rivals.ts';
import { checkSetUp } from './setup.ts';
import { writeDeliveries } from './sign.ts';
import { median, pairedRatio } from './statistics.ts';
import { replay } from './wrk.ts';

const HELP = `Usage: npm run bench -- builds [--rounds N] [--turns N] [--body BYTES] BASE.cjs OTHER.cjs [...]

Each bundle is one argument; password-worker.cjs must lie beside it. The first is what the others are compared with.
Name the base twice to see how much of a difference is noise.

  --rounds N     rounds, each with fresh processes (default 5)
  --turns N      loads of a second for each build and round (default 12)
  --body BYTES   size of each delivery (default 1024)
`;
const CONNECTIONS = 32;
const WARM_UP_SECONDS = 8;
const MOST_PER_SECOND = 40_000;

interface Build {
  readonly title: string;
  readonly port: number;
  readonly pids: readonly number[];
  readonly stop: () => Promise<void>;
}

interface Plan {
  readonly environment: BenchEnvironment;
  readonly bundles: readonly string[];
  readonly turns: number;
  readonly bodyBytes: number;
}

/** CPU time per delivery of one load, in microseconds. */
async function measure(
  environment: BenchEnvironment,
  { port, pids, title }: Build,
  seconds: number,
  bodyBytes: number,
): Promise<number> {
  const deliveries = writeDeliveries(
    { folder: environment.folder, name: 'builds', count: MOST_PER_SECOND * seconds, bodyBytes },
    environment.secret,
  );
  const before = readThreadMicroseconds(pids);
  const { requests, statuses } = await replay({ port, deliveries, seconds, connections: CONNECTIONS, order: 'once' });
  if (statuses['200'] !== requests) throw new Error(`${title} gave other answers than 200: ${JSON.stringify(statuses)}`);
  return (readThreadMicroseconds(pids) - before) / requests;
}

/** The cost of each build's turns. The order changes with every round and turn, because the first build to start costs less. */
async function playRound({ environment, bundles, turns, bodyBytes }: Plan, round: number): Promise<number[][]> {
  const rotate = (by: number): number[] => bundles.map((_, i) => (i + by) % bundles.length);
  const builds = new Map<number, Build>();
  try {
    for (const i of rotate(round)) {
      const title = bundles[i] as string;
      builds.set(i, { title, ...(await startBundle(title, environment)) });
    }
    for (const build of builds.values()) await measure(environment, build, WARM_UP_SECONDS, bodyBytes);
    const figures = bundles.map((): number[] => []);
    for (let turn = 0; turn < turns; turn++) {
      for (const i of rotate(round + turn)) figures[i]?.push(await measure(environment, builds.get(i) as Build, 1, bodyBytes));
    }
    return figures;
  } finally {
    await Promise.all([...builds.values()].map((build) => build.stop()));
  }
}

async function run(): Promise<void> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      rounds: { type: 'string', default: '5' },
      turns: { type: 'string', default: '12' },
      body: { type: 'string', default: '1024' },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help || positionals.length < 2) {
    console.log(HELP);
    return;
  }
  const missing = positionals.find((bundle) => !existsSync(bundle));
  if (missing !== undefined) throw new Error(`no such bundle: ${missing}`);
  checkSetUp();
  const busy = new BusyMeter();
  const environment = await openEnvironment();
  const plan = { environment, bundles: positionals, turns: Number(values.turns), bodyBytes: Number(values.body) };
  const rounds: number[][][] = [];
  try {
    for (let round = 0; round < Number(values.rounds); round++) {
      const figures = await playRound(plan, round);
      rounds.push(figures);
      console.log(`round ${round + 1}: ${figures.map((turns) => `${median(turns).toFixed(1)} µs`).join('  ')}`);
    }
  } finally {
    await environment.close();
  }
  for (const [i, bundle] of positionals.entries()) {
    const figures = rounds.flatMap((round) => round[i] as number[]);
    // Each round has new processes, which V8 can compile differently, so there is one ratio per round.
    const ratios = rounds.map((round) => pairedRatio(round[i] as number[], round[0] as number[]));
    const spread = `${Math.min(...ratios).toFixed(3)} to ${Math.max(...ratios).toFixed(3)}`;
    console.log(`${bundle}: ${median(figures).toFixed(1)} µs, ${median(ratios).toFixed(3)} x the first (${spread} in a round)`);
  }
  console.log(`all cores busy: ${(busy.lap() * 100).toFixed(0)} %`);
}

await run();
