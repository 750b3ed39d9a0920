/** Measures the memory of a sidecar that accepts and delivers events, under the limits of a container; writes RESULTS-provider-memory.md. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Pool } from 'undici';
import { installImageNode } from '../../test/prepare/image-node.ts';
import { type CgroupGate, NO_CGROUPS, startGateInCgroup } from '../../test/support/memory-cgroup.ts';
import { findFreePort, withProcessGroup } from '../children.ts';
import { describeMachine } from '../machine.ts';
import { ENGINES, type EngineName, startDurablePostgres } from './engines.ts';
import { nextMessage, startProcess, stopProcess } from './processes.ts';
import type { ReceiversReady } from './receivers.ts';

const OUT = join(import.meta.dirname, '..', 'RESULTS-provider-memory.md');
const LIMITS = [96, 128, 192, 256] as const;
const HELP = `Usage: npm run bench -- provider-memory [--seconds N] [--only ${ENGINES.join(',')}] [--limits ${LIMITS.join(',')}] [--out FILE]

  --seconds N   length of each load (default 10)
`;
const ENDPOINTS = 200;
const CONNECTIONS = 64;
const SAMPLE_MS = 100;
const IDLE_MS = 5_000;
/** Beside the config. */
const QUEUE_URL_FILE = 'queue-url';
const MIB = 2 ** 20;

/** The loads in the order in which they are played; the size is that of the data in an event, 0 if nothing is posted. */
const LOADS = [
  { name: 'idle', bytes: 0 },
  { name: '1 KiB', bytes: 880 },
  { name: '250 KiB', bytes: 250 * 1024 },
  { name: 'delivering', bytes: 0 },
] as const;
type Load = (typeof LOADS)[number];

interface Row {
  readonly engine: EngineName;
  readonly limit: number;
  readonly load: Load['name'];
  /** The highest, in MiB. */
  readonly workingSet: number;
  readonly statuses: Readonly<Record<string, number>>;
  readonly oomKills: number;
}

/** Posts events one by one on all connections. 503 is expected: the sidecar must not accept more than fits into its memory. */
async function post(port: number, bytes: number, seconds: number): Promise<Readonly<Record<string, number>>> {
  const pool = new Pool(`http://127.0.0.1:${port}`, { connections: CONNECTIONS });
  const until = performance.now() + seconds * 1_000;
  const statuses: Record<string, number> = {};
  const text = 'x'.repeat(bytes);
  let count = 0;
  const postNext = async (): Promise<void> => {
    while (performance.now() < until) {
      const type = `bench.endpoint-${count++ % ENDPOINTS}`;
      const body = JSON.stringify({ type, data: { text } });
      const status = await pool
        .request({ path: '/v1/events', method: 'POST', headers: { 'content-type': 'application/json' }, body })
        .then(async (response) => {
          await response.body.dump();
          return String(response.statusCode);
        })
        .catch(() => 'no response');
      statuses[status] = (statuses[status] ?? 0) + 1;
      if (status === 'no response') await pause(SAMPLE_MS);
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, postNext));
  await pool.close();
  return statuses;
}

async function play(gate: CgroupGate, port: number, { bytes }: Load, seconds: number) {
  let workingSet = 0;
  const timer = setInterval(() => {
    if (gate.isAlive()) workingSet = Math.max(workingSet, gate.workingSet() / MIB);
  }, SAMPLE_MS);
  const statuses = bytes === 0 ? {} : await post(port, bytes, seconds);
  if (bytes === 0) await pause(IDLE_MS);
  clearInterval(timer);
  // A process that exited for another reason also counts as killed.
  return { workingSet, statuses, oomKills: gate.isAlive() ? gate.oomKills() : Math.max(1, gate.oomKills()) };
}

/** Half of the endpoints respond at once. Endpoint number N gets events of the type `bench.endpoint-N`; except for the queue, limits are the defaults. */
function toProviderSections(apiPort: number, receiverPort: number, queue: object): Readonly<Record<string, unknown>> {
  const endpoints = Array.from({ length: ENDPOINTS }, (_, index) => ({
    name: `endpoint-${index}`,
    url: `http://127.0.0.1:${receiverPort}/${index % 2 === 0 ? 'dead' : 'healthy'}/${index}`,
    events: [`bench.endpoint-${index}`],
    secret: { file: 'secret' },
  }));
  return {
    shutdown: { grace: '0s' },
    routes: [],
    provider: {
      address: `127.0.0.1:${apiPort}`,
      queue: { ...queue, endpointShare: 1, maxEvents: 10_000_000, maxBytes: '64Gi' },
      egress: { allowHttp: true, allowPrivate: ['127.0.0.0/8'] },
      endpoints,
    },
  };
}

/** All loads against one sidecar, until it is killed. */
function measure(engine: EngineName, limit: number, seconds: number): Promise<Row[]> {
  return withProcessGroup(async (group) => {
    const receivers = startProcess('receivers.ts');
    const rows: Row[] = [];
    const { port: receiverPort } = await nextMessage<ReceiversReady>(receivers);
    const apiPort = await findFreePort();
    const server = engine === 'postgres' ? await startDurablePostgres() : undefined;
    const queue =
      server === undefined
        ? { sqlite: { path: join(group.folder, 'queue.db'), allowVolatile: true } }
        : { postgres: { url: { file: QUEUE_URL_FILE } } };
    const files: Record<string, string> = server === undefined ? {} : { [QUEUE_URL_FILE]: server.url() };
    const sections = toProviderSections(apiPort, receiverPort, queue);
    const gate = await startGateInCgroup(limit, sections, files, installImageNode());
    try {
      for (const load of LOADS) {
        rows.push({ engine, limit, load: load.name, ...(await play(gate, apiPort, load, seconds)) });
        console.log(JSON.stringify(rows.at(-1)));
        if (!gate.isAlive()) break;
      }
    } finally {
      await gate.stop();
      await stopProcess(receivers);
      await group.close();
      await server?.stop();
    }
    return rows;
  });
}

function toLine({ engine, limit, load, workingSet, statuses, oomKills }: Row): string {
  const responses = Object.entries(statuses).map(([status, count]) => `${count} × ${status}`);
  return `| ${[engine, limit, load, workingSet.toFixed(0), responses.join(', '), oomKills].join(' | ')} |`;
}

function toReport(rows: readonly Row[], seconds: number): string {
  return [
    '# Memory of a sidecar that sends webhooks',
    '',
    'Written by `npm run bench -- provider-memory`; do not edit.',
    '',
    `${new Date().toISOString().slice(0, 10)}; ${describeMachine().join('; ')}.`,
    'The bundle runs in a memory cgroup with the options of the image. An app posts events on 64 connections as fast as it can, first small and',
    `then large ones for ${seconds} s each, for ${ENDPOINTS} endpoints: half of them respond at once, half accept connections and never respond. Then only deliveries go`,
    'on. The working set is what Kubernetes shows and compares with the limit; 503 means that sidegate accepts no more at the moment.',
    '',
    '| engine | limit MiB | load | working set MiB | responses | OOM kills |',
    '|---|---|---|---|---|---|',
    ...rows.map(toLine),
    '',
  ].join('\n');
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      seconds: { type: 'string', default: '10' },
      only: { type: 'string', default: ENGINES.join(',') },
      limits: { type: 'string', default: LIMITS.join(',') },
      out: { type: 'string', default: OUT },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) return console.log(HELP);
  if (NO_CGROUPS !== undefined) throw new Error(`provider-memory needs memory cgroups: ${NO_CGROUPS}`);
  const seconds = Number(values.seconds);
  const rows: Row[] = [];
  for (const engine of values.only.split(',') as EngineName[])
    for (const limit of values.limits.split(',').map(Number)) rows.push(...(await measure(engine, limit, seconds)));
  writeFileSync(values.out, toReport(rows, seconds));
}

await main();
