/** Shows where sidegate's CPU time goes: runs it under load with the sampling profiler and prints the most expensive functions. */
import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { type BasicEnvironment, openBasicEnvironment } from './basic/basic-environment.ts';
import { startGate } from './basic/rivals.ts';
import { sendSteadily } from './basic/steady.ts';
import { transfer } from './basic/streaming.ts';
import { openEnvironment } from './bench-environment.ts';
import { readCpuMicroseconds } from './machine.ts';
import { type Origins, type Profile, readOrigins, sumUp, type Times } from './profile-sums.ts';
import { startRival } from './rivals.ts';
import { checkSetUp, WEBHOOK_TOOLS } from './setup.ts';
import { writeDeliveries } from './sign.ts';
import { replay } from './wrk.ts';

const BUNDLE = join(import.meta.dirname, '..', 'dist', 'sidegate.cjs');
const CONNECTIONS = 32;
const WARM_UP_SECONDS = 3;
const MOST_PER_SECOND = 25_000;
const SAMPLE_EVERY_MICROSECONDS = 500;
/** Profiles of other threads end with another number. */
const MAIN_THREAD = /\.0\.\d+\.cpuprofile$/;

/** A gate under load. */
interface Subject {
  readonly pids: readonly number[];
  /** The unit that the load counts. */
  readonly unit: string;
  readonly load: (seconds: number) => Promise<number>;
  readonly stop: () => Promise<void>;
}

/** A profiled load: creates the gate in a separate environment, with flags for Node. */
type Starter = (bodyBytes: number) => Promise<{
  readonly folder: string;
  readonly start: (flags: readonly string[]) => Promise<Subject>;
  readonly close: () => Promise<void>;
}>;

const STARTERS: Readonly<Record<string, Starter>> = {
  webhook: onWebhook(false),
  forged: onWebhook(true),
  basic: onBasic('request', (environment, seconds, gate) =>
    countRequests(sendSteadily({ environment, seconds }, { area: 'steady' }, gate)),
  ),
  open: onBasic('request', (environment, seconds, gate) =>
    countRequests(sendSteadily({ environment, seconds }, { area: 'open' }, gate)),
  ),
  down: onBasic('MiB', (environment, _, gate) => countMebibytes(transfer(environment, gate, 'steady', 'down'))),
  up: onBasic('MiB', (environment, _, gate) => countMebibytes(transfer(environment, gate, 'steady', 'up'))),
};

function onWebhook(isForged: boolean): Starter {
  return async (bodyBytes) => {
    const environment = await openEnvironment();
    const start = async (flags: readonly string[]): Promise<Subject> => {
      const gate = await startRival('sidegate', environment, flags);
      const load = async (seconds: number): Promise<number> => {
        const options = { folder: environment.folder, name: 'profile', count: MOST_PER_SECOND * seconds, bodyBytes, isForged };
        const deliveries = writeDeliveries(options, environment.secret);
        const { requests } = await replay({ port: gate.port, deliveries, seconds, connections: CONNECTIONS, order: 'once' });
        return requests;
      };
      return { ...gate, unit: 'request', load };
    };
    return { ...environment, start };
  };
}

type BasicGate = NonNullable<Awaited<ReturnType<typeof startGate>>>;

function onBasic(
  unit: string,
  load: (environment: BasicEnvironment, seconds: number, gate: BasicGate) => Promise<number>,
): Starter {
  return async () => {
    const environment = await openBasicEnvironment();
    const start = async (flags: readonly string[]): Promise<Subject> => {
      const gate = (await startGate('sidegate', environment, flags)) as BasicGate;
      return { ...gate, unit, load: (seconds) => load(environment, seconds, gate) };
    };
    return { ...environment, start };
  };
}

async function countRequests(load: Promise<{ requests: number }>): Promise<number> {
  return (await load).requests;
}

async function countMebibytes(load: ReturnType<typeof transfer>): Promise<number> {
  return (await load).mebibytes;
}

/** Runs the load and returns the profile with the number of units; the CPU time is that after the warm-up. */
async function record(
  folder: string,
  seconds: number,
  start: (flags: readonly string[]) => Promise<Subject>,
): Promise<{ profile: Profile; cpu: number; all: number; unit: string }> {
  const profiles = join(folder, 'profile');
  mkdirSync(profiles);
  const flags = ['--cpu-prof', `--cpu-prof-dir=${profiles}`, `--cpu-prof-interval=${SAMPLE_EVERY_MICROSECONDS}`];
  const subject = await start(flags);
  let all = 0;
  const load = async (duration: number): Promise<number> => {
    const before = readCpuMicroseconds(subject.pids);
    const count = await subject.load(duration);
    all += count;
    return (readCpuMicroseconds(subject.pids) - before) / count;
  };
  let cpu: number;
  try {
    await load(WARM_UP_SECONDS);
    cpu = await load(seconds);
  } finally {
    await subject.stop();
  }
  const file = readdirSync(profiles).find((name) => MAIN_THREAD.test(name));
  if (file === undefined) throw new Error('Node wrote no profile');
  return { profile: JSON.parse(readFileSync(join(profiles, file), 'utf8')) as Profile, cpu, all, unit: subject.unit };
}

function print(title: string, times: Times, count: number, most: number): void {
  console.log(`\n${title} (microseconds of each)`);
  const sorted = [...times].toSorted(([, a], [, b]) => b - a).slice(0, most);
  for (const [label, microseconds] of sorted) console.log(`${(microseconds / count).toFixed(2).padStart(8)}  ${label}`);
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      load: { type: 'string', default: 'webhook' },
      seconds: { type: 'string', default: '6' },
      body: { type: 'string', default: '1024' },
      top: { type: 'string', default: '45' },
    },
  });
  const starter = STARTERS[values.load];
  if (starter === undefined) throw new Error(`--load knows ${Object.keys(STARTERS).join(', ')}; not ${values.load}`);
  checkSetUp(WEBHOOK_TOOLS);
  const environment = await starter(Number(values.body));
  try {
    const { profile, cpu, all, unit } = await record(environment.folder, Number(values.seconds), environment.start);
    console.log(`${Math.round(all)} × ${unit} (${values.load}), ${cpu.toFixed(1)} µs of CPU for each with the profiler on`);
    const origins: Origins = readOrigins(readFileSync(BUNDLE, 'utf8'));
    if (new Set(origins).size === 1) throw new Error('build first: node scripts/build.ts --readable');
    const { own, total, byOrigin } = sumUp(profile, origins);
    print('By where it was written, what it has the system do included', byOrigin, all, Number(values.top));
    print('Time in the function itself', own, all, Number(values.top));
    print('Time with all it calls', total, all, Number(values.top));
  } finally {
    await environment.close();
  }
}

await main();
