/** Shows where sidegate's CPU time goes: runs it under load with the sampling profiler and prints the dearest functions. */
import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { readCpuMicroseconds } from './machine.ts';
import { startRival } from './rivals.ts';
import { findMissingPackages } from './setup.ts';
import { writeDeliveries } from './sign.ts';
import { openStage, type Stage } from './stage.ts';
import { runWrk } from './wrk.ts';

const CONNECTIONS = 32;
const WARM_UP_SECONDS = 3;
const MOST_PER_SECOND = 25_000;
const SAMPLE_EVERY_MICROSECONDS = 500;

interface ProfileNode {
  readonly id: number;
  readonly callFrame: { readonly functionName: string; readonly url: string; readonly lineNumber: number };
  readonly children?: readonly number[];
}

interface Profile {
  readonly nodes: readonly ProfileNode[];
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

/** Time by function: in itself, and with all it calls. */
interface Cost {
  self: number;
  total: number;
}

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

/** Microseconds by function name and place; a recursive call counts once. */
function sumUp(profile: Profile): Map<string, Cost> {
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]));
  const parents = new Map<number, number>();
  for (const node of profile.nodes) for (const child of node.children ?? []) parents.set(child, node.id);
  const selfOf = new Map<number, number>();
  profile.samples.forEach((id, index) => {
    selfOf.set(id, (selfOf.get(id) ?? 0) + (profile.timeDeltas[index] ?? 0));
  });
  const costs = new Map<string, Cost>();
  for (const [id, self] of selfOf) {
    const seen = new Set<string>();
    for (let at: number | undefined = id; at !== undefined; at = parents.get(at)) {
      const label = toLabel(nodes.get(at) as ProfileNode);
      const cost = costs.get(label) ?? { self: 0, total: 0 };
      if (at === id) cost.self += self;
      if (!seen.has(label)) cost.total += self;
      seen.add(label);
      costs.set(label, cost);
    }
  }
  return costs;
}

function toLabel({ callFrame }: ProfileNode): string {
  const file = callFrame.url.split('/').at(-1) ?? '';
  return `${callFrame.functionName || '(anonymous)'} ${file === '' ? '' : `${file}:${callFrame.lineNumber + 1}`}`.trim();
}

function print(costs: ReadonlyMap<string, Cost>, requests: number, most: number): void {
  const rows = [...costs].filter(([label]) => !['(idle)', '(root)'].includes(label));
  const show = (title: string, by: keyof Cost): void => {
    console.log(`\n${title} (microseconds of each request)`);
    const sorted = rows.toSorted(([, a], [, b]) => b[by] - a[by]).slice(0, most);
    for (const [label, cost] of sorted) console.log(`${(cost[by] / requests).toFixed(2).padStart(8)}  ${label}`);
  };
  show('Time in the function itself', 'self');
  show('Time with all it calls', 'total');
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
    print(sumUp(profile), all, Number(values.top));
  } finally {
    await stage.close();
  }
}

await main();
