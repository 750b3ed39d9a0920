/** Shows where sidegate's CPU time goes: runs it under load with the sampling profiler and prints the dearest functions. */
import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { readCpuMicroseconds } from './machine.ts';
import { type Origins, type Profile, readOrigins, sumUp, type Times } from './profile-sums.ts';
import { startRival } from './rivals.ts';
import { findMissingPackages } from './setup.ts';
import { writeDeliveries } from './sign.ts';
import { openStage, type Stage } from './stage.ts';
import { runWrk } from './wrk.ts';

const BUNDLE = join(import.meta.dirname, '..', 'dist', 'sidegate.mjs');
const CONNECTIONS = 32;
const WARM_UP_SECONDS = 3;
const MOST_PER_SECOND = 25_000;
const SAMPLE_EVERY_MICROSECONDS = 500;

/** Runs the load and gives the profile of the part after the warm-up, with the requests it covers. */
async function record(stage: Stage, seconds: number, bodyBytes: number): Promise<{ profile: Profile; cpu: number; all: number }> {
  const folder = join(stage.folder, 'profile');
  mkdirSync(folder);
  const flags = ['--cpu-prof', `--cpu-prof-dir=${folder}`, `--cpu-prof-interval=${SAMPLE_EVERY_MICROSECONDS}`];
  const gate = await startRival('sidegate', stage, flags);
  let all = 0;
  const load = async (duration: number): Promise<number> => {
    const options = { folder: stage.folder, name: 'profile', count: MOST_PER_SECOND * duration, bodyBytes };
    const deliveries = writeDeliveries(options, stage.secret);
    const before = readCpuMicroseconds(gate.pids);
    const result = await runWrk({ port: gate.port, deliveries, seconds: duration, connections: CONNECTIONS, order: 'once' });
    all += result.requests;
    return (readCpuMicroseconds(gate.pids) - before) / result.requests;
  };
  let cpu: number;
  try {
    await load(WARM_UP_SECONDS);
    cpu = await load(seconds);
  } finally {
    await gate.stop();
  }
  const file = readdirSync(folder).find((name) => name.endsWith('.cpuprofile'));
  if (file === undefined) throw new Error('Node wrote no profile');
  return { profile: JSON.parse(readFileSync(join(folder, file), 'utf8')) as Profile, cpu, all };
}

function print(title: string, times: Times, requests: number, most: number): void {
  console.log(`\n${title} (microseconds of each request)`);
  const sorted = [...times].toSorted(([, a], [, b]) => b - a).slice(0, most);
  for (const [label, microseconds] of sorted) console.log(`${(microseconds / requests).toFixed(2).padStart(8)}  ${label}`);
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      seconds: { type: 'string', default: '6' },
      body: { type: 'string', default: '1024' },
      top: { type: 'string', default: '45' },
    },
  });
  const missing = findMissingPackages();
  if (missing.length > 0) throw new Error(`install first: ${missing.join(' ')}`);
  const stage = await openStage();
  try {
    const { profile, cpu, all } = await record(stage, Number(values.seconds), Number(values.body));
    console.log(`${all} accepted deliveries, ${cpu.toFixed(1)} µs of CPU for each with the profiler on`);
    const origins: Origins = readOrigins(readFileSync(BUNDLE, 'utf8'));
    const { own, total, byOrigin } = sumUp(profile, origins);
    print('By where it was written, what it has the system do included', byOrigin, all, Number(values.top));
    print('Time in the function itself', own, all, Number(values.top));
    print('Time with all it calls', total, all, Number(values.top));
  } finally {
    await stage.close();
  }
}

await main();
