/** Measures the cost of the sidecar before the first request: the size of its bundle, the time until it listens, and its idle memory. */
import { execFileSync, spawn } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { bundle } from '../scripts/bundle.ts';
import { installImageNode } from '../test/prepare/image-node.ts';
import { readListeningPort } from '../test/support/listening-port.ts';
import { findFreePort } from './children.ts';
import { describeMachine, readCpuMicroseconds, readRssMebibytes } from './machine.ts';
import { median } from './statistics.ts';

const DEFAULT_STARTS = 9;
/** After this time, memory no longer changes until a request arrives. */
const IDLE_MS = 3_000;
const FLAGS = ['--max-old-space-size-percentage=50'];
const SECRET = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;
const TARGETS = { mebibytes: 1.2, readyMs: 250, rss: 72 } as const;

/** One start. */
interface Start {
  /** From the start of the process until its `listening` line. */
  readonly readyMs: number;
  /** CPU time of all threads in that time: more stable than the elapsed time if other processes use the machine. */
  readonly cpuMs: number;
  readonly rss: number;
  /** The memory that the process does not share with other processes of the same program. */
  readonly anonymous: number;
}

/** The program to start. */
interface Subject {
  readonly name: string;
  readonly args: readonly string[];
}

const HEAD = 'listen: { address: "127.0.0.1:0" }\nadmin: { address: "127.0.0.1:0" }\nshutdown: { grace: 0ms }\n';
const WEBHOOK = `routes:
  - name: billing
    match: { path: /hooks/billing }
    upstream: http://127.0.0.1:9
    webhook: { keys: [{ name: current, secret: { file: secret } }] }
`;
const BASIC = `  - name: admin
    match: { pathPrefix: /admin }
    upstream: http://127.0.0.1:9
    basic: { realm: admin, users: { file: users }, requireTls: false }
`;
const USER = 'joe:$2y$12$Y9sfS7nhciVIh2LRJFJPSufIqI64qCGzpNYCGY/SwfDmjkAXhwtoO\n';

const HELP = `Usage: npm run bench -- footprint [--starts N] [--compare FILE] [--out FILE]

  --starts N      starts of each kind (default ${DEFAULT_STARTS})
  --compare FILE  another build's sidegate.cjs or sidegate.mjs; each of its starts is followed by one of this build
  --out FILE      where the report goes (default bench/RESULTS-footprint.md)
`;

async function startOnce(node: string, folder: string, { args }: Subject): Promise<Start> {
  const began = performance.now();
  const child = spawn(node, [...FLAGS, ...args], { cwd: folder, stdio: ['ignore', 'pipe', 'inherit'] });
  const pids = [child.pid ?? 0];
  await readListeningPort(child.stdout);
  const readyMs = performance.now() - began;
  const cpuMs = readCpuMicroseconds(pids) / 1_000;
  await pause(IDLE_MS);
  const [, anonymous = '0'] = /^RssAnon:\s+(\d+) kB/m.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8')) ?? [];
  const start = { readyMs, cpuMs, rss: readRssMebibytes(pids), anonymous: Number(anonymous) / 1_024 };
  const ended = new Promise((done) => child.once('exit', done));
  child.kill('SIGKILL');
  await ended;
  return start;
}

/** In turns, so that a change in the machine's load affects all of them. */
async function measure(
  node: string,
  folder: string,
  subjects: readonly Subject[],
  starts: number,
): Promise<Map<string, Start[]>> {
  const found = new Map(subjects.map(({ name }) => [name, [] as Start[]]));
  for (let round = 0; round < starts; round++)
    for (const subject of subjects) found.get(subject.name)?.push(await startOnce(node, folder, subject));
  return found;
}

function toSubjects(bundles: Readonly<Record<string, string>>): Subject[] {
  const configs = {
    'one webhook route, memory': 'memory.yaml',
    'the same, Redis': 'redis.yaml',
    'the same, and passwords': 'users.yaml',
  };
  return [
    { name: 'Node with an HTTP server', args: ['bare.cjs'] },
    ...Object.entries(configs).flatMap(([what, config]) =>
      Object.entries(bundles).map(([build, file]) => ({ name: `${what}${build}`, args: [file, 'run', '--config', config] })),
    ),
  ];
}

function writeFiles(folder: string, redisPort: number): void {
  const files = {
    secret: SECRET,
    users: USER,
    'memory.yaml': HEAD + WEBHOOK,
    'redis.yaml': `${HEAD}store: { redis: { url: "redis://127.0.0.1:${redisPort}" } }\n${WEBHOOK}`,
    'users.yaml': HEAD + WEBHOOK + BASIC,
    'bare.cjs': `require('node:http').createServer().listen(0, '127.0.0.1', () => console.log('"listening"'));`,
  };
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
}

function toReport(found: ReadonlyMap<string, readonly Start[]>, sizes: readonly string[], facts: readonly string[]): string {
  const cell = (starts: readonly Start[], key: keyof Start): string => {
    const values = starts.map((start) => start[key]);
    return `${median(values).toFixed(0)} (${Math.min(...values).toFixed(0)} to ${Math.max(...values).toFixed(0)})`;
  };
  return [
    '# Footprint of the sidecar',
    '',
    'Written by `npm run bench -- footprint`; do not edit.',
    '',
    ...facts,
    '',
    `Targets: a bundle of at most ${TARGETS.mebibytes} MiB, ready within ${TARGETS.readyMs} ms, at most ${TARGETS.rss} MiB of resident memory when idle.`,
    '',
    '| bundle | MiB |',
    '|---|---|',
    ...sizes,
    '',
    'Medians of all starts, the lowest and highest in brackets. Ready is the time from the start of the process until it listens; CPU is the',
    'time that all its threads used until then. Memory is read 3 s later; anonymous memory is the part that other processes cannot share.',
    '',
    '| | ready ms | CPU ms | resident MiB | anonymous MiB |',
    '|---|---|---|---|---|',
    ...[...found].map(([name, starts]) => {
      const cells = (['readyMs', 'cpuMs', 'rss', 'anonymous'] as const).map((key) => cell(starts, key));
      return `| ${name} | ${cells.join(' | ')} |`;
    }),
    '',
  ].join('\n');
}

function toSizes(bundles: Readonly<Record<string, string>>): string[] {
  return Object.entries(bundles).map(([build, file]) => {
    const folder = resolve(file, '..');
    const sizes = readdirSync(folder).flatMap((name) => (/\.[cm]js$/.test(name) ? [statSync(join(folder, name)).size] : []));
    return `| ${sizes.length} files${build} | ${(sizes.reduce((sum, size) => sum + size, 0) / 2 ** 20).toFixed(2)} |`;
  });
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      starts: { type: 'string', default: String(DEFAULT_STARTS) },
      compare: { type: 'string' },
      out: { type: 'string', default: join(import.meta.dirname, 'RESULTS-footprint.md') },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) return console.log(HELP);
  const node = installImageNode();
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-footprint-'));
  const redisPort = await findFreePort();
  const redis = spawn('redis-server', ['--port', String(redisPort), '--save', '', '--bind', '127.0.0.1'], { stdio: 'ignore' });
  try {
    await bundle(folder);
    cpSync(join(import.meta.dirname, '..', 'node_modules', '@node-rs'), join(folder, 'node_modules', '@node-rs'), {
      recursive: true,
    });
    writeFiles(folder, redisPort);
    const other = values.compare === undefined ? {} : { ' (other build)': resolve(values.compare) };
    const bundles = { ...other, '': join(folder, 'sidegate.cjs') };
    const found = await measure(node, folder, toSubjects(bundles), Number(values.starts));
    const version = execFileSync(node, ['--version'], { encoding: 'utf8' }).trim();
    const date = new Date().toISOString().slice(0, 10);
    const facts = [
      `${date}; ${[...describeMachine(), `Node ${version}`].join('; ')}; ${values.starts} starts of each.`,
      `Load average of the machine at the end: ${loadavg()[0]?.toFixed(1)}. Above 1, ready times are too long; CPU times and memory hold.`,
    ];
    const report = toReport(found, toSizes(bundles), facts);
    writeFileSync(values.out, report);
    console.log(report);
  } finally {
    redis.kill('SIGTERM');
    rmSync(folder, { recursive: true });
  }
}

await main();
