/** Measures a small fleet: processes with the real store share one real Redis. The simulation must agree with it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { execPath } from 'node:process';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import { startRedis } from '../../test/support/redis.ts';
import { waitForQuiet } from '../machine.ts';
import { median } from '../statistics.ts';
import { REDIS_CORE } from './cores.ts';
import { RedisMeter } from './redis-meter.ts';
import { type Comparison, type LoadFigures, OPERATIONS_PER_EVENT, type ScaleRun } from './results.ts';
import { simulateSmall, toQuantileMs } from './simulate.ts';

const CLIENT = join(import.meta.dirname, 'store-client.ts');
const PROCESSES = 4;
const RATES = [1_000, 2_000, 3_000, 4_000];
const WARM_UP_SECONDS = 1;
const QUIET_WITHIN_MS = 3_000;
const MAX_ATTEMPTS = 3;
/** Share of the offered operations. */
const MIN_OFFERED = 0.95;

interface Client {
  readonly child: ChildProcess;
  readonly ready: Promise<unknown>;
  readonly result: Promise<ClientResult>;
}

interface ClientResult {
  /** Microseconds between the times at which it looked which events are due: more than a millisecond if the cores are busy. */
  readonly gaps: readonly number[];
  /** How long each claim took, in microseconds. */
  readonly claims: readonly number[];
}

interface Measured extends LoadFigures {
  readonly gaps: readonly (readonly number[])[];
}

function startClient(port: number, perSecond: number, seconds: number): Client {
  const child = spawn(
    execPath,
    ['--disable-warning=ExperimentalWarning', CLIENT, String(port), String(perSecond), String(seconds)],
    {
      stdio: ['pipe', 'pipe', 'inherit'],
      timeout: (seconds + 60) * 1_000,
    },
  );
  const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream });
  const ready = once(lines, 'line');
  const result = ready.then(() => once(lines, 'line')).then(([line]) => JSON.parse(String(line)) as ClientResult);
  return { child, ready, result };
}

/** The counters are read while all processes are under load. */
async function measureOnce(eventsPerSecond: number, seconds: number): Promise<Measured> {
  const server = await startRedis({ config: REDIS_CORE });
  const meter = await RedisMeter.open(server.port);
  const total = seconds + 2 * WARM_UP_SECONDS;
  const clients = Array.from({ length: PROCESSES }, () => startClient(server.port, eventsPerSecond / PROCESSES, total));
  await Promise.all(clients.map(({ ready }) => ready));
  for (const { child } of clients) child.stdin?.write('go\n');
  await pause(WARM_UP_SECONDS * 1_000);
  await meter.lap();
  const start = performance.now();
  await pause(seconds * 1_000);
  const usage = await meter.lap();
  const elapsed = (performance.now() - start) / 1_000;
  const results = await Promise.all(clients.map(({ result }) => result));
  const claims = results.flatMap((result) => result.claims);
  meter.close();
  await server.stop();
  return {
    gaps: results.map(({ gaps }) => gaps),
    operations: (usage.commands['set'] ?? 0) / elapsed,
    calls: (usage.commands['evalsha'] ?? 0) / elapsed,
    wakeups: usage.wakeups / elapsed,
    utilization: usage.cpuMicroseconds / (elapsed * 1e6),
    p50: toQuantileMs(claims, 0.5),
    p99: toQuantileMs(claims, 0.99),
  };
}

/** Repeats a load in which the processes did not get enough CPU time to offer it: the model has no other work on the machine. */
async function measureUndisturbed(eventsPerSecond: number, seconds: number): Promise<Measured & { readonly otherWork: number }> {
  for (let attempt = 1; ; attempt++) {
    const otherWork = await waitForQuiet(QUIET_WITHIN_MS);
    const measured = await measureOnce(eventsPerSecond, seconds);
    const isOffered = measured.operations >= MIN_OFFERED * OPERATIONS_PER_EVENT * eventsPerSecond;
    if (isOffered || attempt === MAX_ATTEMPTS) return { ...measured, otherWork };
  }
}

/** Measures each load, and simulates it with the service times of the same round. */
export async function compareSmall(times: Pick<ScaleRun, 'service' | 'client'>, seconds: number): Promise<Comparison[]> {
  const found: Comparison[] = [];
  for (const eventsPerSecond of RATES) {
    const { otherWork, gaps, ...measured } = await measureUndisturbed(eventsPerSecond, seconds);
    const ticksPerSecond = gaps.reduce((sum, each) => sum + each.length, 0) / PROCESSES / (seconds + 2 * WARM_UP_SECONDS);
    const load = { processes: PROCESSES, eventsPerSecond, ticksPerSecond };
    const simulated = simulateSmall(times, { eventsPerSecond, gaps, seconds });
    found.push({ ...load, otherWork, measured, simulated, ratio: divide(simulated, measured) });
    console.log(JSON.stringify(found.at(-1)));
  }
  return found;
}

function divide(one: LoadFigures, by: LoadFigures): LoadFigures {
  return mapFigures((key) => one[key] / by[key]);
}

function mapFigures(toValue: (key: keyof LoadFigures) => number): LoadFigures {
  return {
    operations: toValue('operations'),
    calls: toValue('calls'),
    wakeups: toValue('wakeups'),
    utilization: toValue('utilization'),
    p50: toValue('p50'),
    p99: toValue('p99'),
  };
}

/** Medians over the rounds; also of the ratios within each round. */
export function combineComparisons(rounds: readonly (readonly Comparison[])[]): Comparison[] {
  return (rounds[0] ?? []).map((first, load) => {
    const each = rounds.flatMap((round) => round[load] ?? []);
    const toMedian = (part: 'measured' | 'simulated' | 'ratio'): LoadFigures =>
      mapFigures((key) => median(each.map((one) => one[part][key])));
    return {
      ...first,
      ticksPerSecond: median(each.map((one) => one.ticksPerSecond)),
      otherWork: median(each.map((one) => one.otherWork)),
      measured: toMedian('measured'),
      simulated: toMedian('simulated'),
      ratio: toMedian('ratio'),
    };
  });
}
