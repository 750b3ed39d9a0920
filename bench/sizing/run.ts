/** Measures the memory of the gate under each load and limit: `npm run bench -- sizing --help`. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { installImageNode } from '../../test/prepare/image-node.ts';
import { type Authority, makeAuthority } from '../../test/support/certificates.ts';
import { toRoute } from '../../test/support/gate.ts';
import { type CgroupGate, NO_CGROUPS, startGateInCgroup } from '../../test/support/memory-cgroup.ts';
import { type BenchEnvironment, openEnvironment } from '../bench-environment.ts';
import { describeMachine } from '../machine.ts';
import { type Deliveries, writeDeliveries } from '../sign.ts';
import { LOADS, type Load } from './loads.ts';
import { RESULTS_FILE, renderSizingPage } from './page.ts';
import { LIMITS, type Measurement, type SizingRun } from './results.ts';
import { readMetrics, watchMemory } from './watch.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const PAGE = join(ROOT, 'docs', 'sizing.md');
const DEFAULT_SECONDS = 6;
const SMALL_COUNT = 250_000;
const LARGE_COUNT = 3_000;
/** Deliveries are signed once for the whole run. */
const TOLERANCE = '30m';

const HELP = `Usage: npm run bench -- sizing [--seconds N] [--only LIST] [--limits LIST]

  --seconds N     length of each load (default ${DEFAULT_SECONDS})
  --only LIST     loads to run, with commas between: ${LOADS.map(({ name }) => name).join(', ')}
  --limits LIST   memory limits in MiB (default ${LIMITS.join(',')})

A whole run takes less than 10 minutes and writes bench/RESULTS-sizing.json and docs/sizing.md. A run of some loads or limits only prints its figures.
`;

interface Setup {
  readonly stage: BenchEnvironment;
  readonly node: string;
  readonly tls: Readonly<Record<string, string>>;
  readonly small: Deliveries;
  readonly large: Deliveries;
  readonly seconds: number;
}

async function openSetup(seconds: number): Promise<Setup> {
  const node = installImageNode();
  const stage = await openEnvironment();
  const { folder, secret } = stage;
  const authority: Authority = makeAuthority(folder, 'ca');
  const pair = authority.issue('local', 'DNS:localhost,IP:127.0.0.1');
  const tls = { 'tls.crt': readFileSync(pair.cert, 'utf8'), 'tls.key': readFileSync(pair.key, 'utf8') };
  const small = writeDeliveries({ folder, name: 'small', count: SMALL_COUNT, bodyBytes: 1024 }, secret);
  const large = writeDeliveries({ folder, name: 'large', count: LARGE_COUNT, bodyBytes: 1024 * 1024 }, secret);
  return { stage, node, tls, small, large, seconds };
}

/** A gate for one load, with an empty store. */
function startGate({ stage, node, tls }: Setup, load: Load, limit: number): Promise<CgroupGate> {
  const redis = { url: `redis://127.0.0.1:${stage.redisPort}`, keyPrefix: `${load.name}-${limit}:` };
  const sections = {
    listen: { address: '127.0.0.1:0', ...(load.isTls && { tls: { certFile: 'tls.crt', keyFile: 'tls.key' } }) },
    ...(load.store === 'redis' && { store: { redis } }),
    routes: [toRoute(stage.appPort, { webhook: { tolerance: TOLERANCE } })],
  };
  return startGateInCgroup(limit, sections, { secret: stage.secret, ...tls }, node);
}

async function measure(setup: Setup, load: Load, limit: number): Promise<Measurement> {
  const { stage, small, large, seconds } = setup;
  const gate = await startGate(setup, load, limit);
  try {
    const ports = { own: gate.port, remote: [stage.appPort, stage.redisPort] };
    const stop = watchMemory(gate, ports, load.kind === 'idle');
    const sent = await load.send({ port: gate.port, limit, seconds, small, large });
    const peaks = await stop();
    const metrics = await readMetrics(gate.adminPort);
    const responses = Object.values(sent.statuses).reduce((total, count) => total + count, 0);
    return {
      limit,
      load: load.name,
      ...roundAll(peaks),
      perSecond: Math.round(responses / sent.seconds),
      statuses: sent.statuses,
      failed: sent.failed,
      ...(sent.p99 !== undefined && { p99: round(sent.p99) }),
      ...(load.store === 'memory' && {
        ids: Number(/^sidegate_dedup_operations_total\{outcome="new"\} (\d+)$/m.exec(metrics)?.[1]),
      }),
      limitHits: toLimitHits(metrics),
      // A gate that exited for another reason also counts as killed.
      oomKills: gate.isAlive() ? gate.oomKills() : Math.max(1, gate.oomKills()),
    };
  } finally {
    await gate.stop();
  }
}

function toLimitHits(metrics: string): Record<string, number> {
  const found = metrics.matchAll(/^sidegate_limit_hits_total\{limit="(\w+)"\} (\d+)$/gm);
  return Object.fromEntries(
    [...found].map(([, limit = '', count]) => [limit, Number(count)] as const).filter(([, count]) => count > 0),
  );
}

const round = (value: number): number => Math.round(value * 10) / 10;

function roundAll<Values extends object>(values: Values): Values {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, round(value)])) as Values;
}

function describe({ limit, load, statuses, failed, ...figures }: Measurement): string {
  return `${limit} MiB  ${load.padEnd(14)} ${JSON.stringify({ ...figures, statuses, failed })}`;
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      seconds: { type: 'string', default: String(DEFAULT_SECONDS) },
      only: { type: 'string', default: '' },
      limits: { type: 'string', default: '' },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) return console.log(HELP);
  if (NO_CGROUPS !== undefined) throw new Error(`${NO_CGROUPS}: run as root on Linux`);
  const isWhole = values.only === '' && values.limits === '';
  const names = values.only.split(',');
  const loads = values.only === '' ? LOADS : LOADS.filter(({ name }) => names.includes(name));
  const limits = values.limits === '' ? LIMITS : values.limits.split(',').map(Number);
  const setup = await openSetup(Number(values.seconds));
  const measurements: Measurement[] = [];
  try {
    for (const load of loads)
      for (const limit of limits) {
        const one = await measure(setup, load, limit);
        measurements.push(one);
        console.log(describe(one));
      }
  } finally {
    await setup.stage.close();
  }
  if (!isWhole) return;
  const version = execFileSync(setup.node, ['--version'], { encoding: 'utf8' }).trim();
  const run: SizingRun = {
    date: new Date().toISOString().slice(0, 10),
    machine: [...describeMachine(), `Node ${version}`].join('; '),
    cgroups: existsSync('/sys/fs/cgroup/cgroup.controllers') ? 'v2' : 'v1',
    loads: LOADS.map(({ name, title, kind }) => ({ name, title, kind })),
    measurements,
  };
  writeFileSync(RESULTS_FILE, `${JSON.stringify(run, null, 2)}\n`);
  writeFileSync(PAGE, renderSizingPage(run));
}

// Child processes are ended on exit, but not by a signal alone.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
await main();
