/** Measures the cost of the sidecar in real pods, for each interception mode: `npm run bench -- node --help`. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { HOOK } from '../../test/support/cluster/gate-pods.ts';
import type { Kube } from '../../test/support/cluster/kube-request.ts';
import { makePod } from '../../test/support/cluster/pods.ts';
import { SECRET } from '../../test/support/deliveries.ts';
import { sendDuring } from '../../test/support/delivery-load.ts';
import { NODE_HINDRANCE } from '../../test/support/node/availability.ts';
import { startNode } from '../../test/support/node/node.ts';
import { NodeCluster } from '../../test/support/node/use-node.ts';
import { createAppNamespace, deployApp, QUIET_APP, restartDeployment, toTemplate } from '../../test/support/node/workloads.ts';
import { BusyMeter, describeMachine } from '../machine.ts';
import { type Deliveries, writeDeliveries } from '../sign.ts';
import { type LoadResult, parseReport, toReplayCommand } from '../wrk.ts';
import { NODE_RESULTS_FILE, renderNodePage } from './page.ts';
import {
  ABRUPT,
  BARE,
  IDLE_SECONDS,
  LOAD_CONNECTIONS,
  LOAD_SECONDS,
  type MemoryFigures,
  MODES,
  type Mode,
  type ModeFigures,
  type NodeRun,
  REPLICAS,
  RESTART_SENDERS,
  type RestartFigures,
} from './results.ts';

const PAGE = join(import.meta.dirname, '..', '..', 'docs', 'kubernetes-cost.md');
const MIB = 1024 * 1024;
const QUIET_MS = 5_000;
const SAMPLE_MS = 250;
const BODY_BYTES = 1024;
/** More than are sent in the time, so that all are new. */
const DELIVERIES = 100_000;
const REQUESTS_AROUND = 200;

const HELP = `Usage: npm run bench -- node [--starts N] [--restarts N] [--out FILE]

  --starts N     starts of each kind of pod (default 9)
  --restarts N   rolling restarts of each mode (default 3)
  --out FILE     writes the results there, and no page (default bench/RESULTS-node.json and docs/kubernetes-cost.md)

It needs what the cluster tests of the node need, and wrk. It takes about 12 minutes.
`;

interface Bench {
  readonly node: NodeCluster;
  readonly namespace: string;
}

function toOptions({ interception, targetPort, preStop }: Mode) {
  return {
    ...(interception !== undefined && { interception }),
    ...(targetPort !== undefined && { targetPort }),
    ...(preStop !== undefined && { annotations: { 'sidegate.dev/pre-stop': preStop } }),
    container: QUIET_APP,
  };
}

/** The same pod for each mode; only its labels and annotations differ. */
function toPod(mode: Mode): Kube {
  const name = `start-${mode.name}`;
  const { metadata, spec } = toTemplate(name, toOptions(mode));
  return makePod(name, { metadata: mode.interception === undefined ? { labels: { app: name } } : metadata, spec });
}

/** In milliseconds. */
async function measureStart({ node, namespace }: Bench, mode: Mode): Promise<number> {
  const pod = toPod(mode);
  const pods = `/api/v1/namespaces/${namespace}/pods`;
  const label = `app=${pod.metadata.name}`;
  const began = performance.now();
  await node.ok('POST', pods, pod);
  await node.waitForPods(namespace, label, 1);
  const took = performance.now() - began;
  await node.ok('DELETE', `${pods}/${pod.metadata.name}?gracePeriodSeconds=1`);
  await node.waitForPods(namespace, label, 0);
  return took;
}

async function measureStarts(bench: Bench, count: number): Promise<Map<Mode, number[]>> {
  const kinds = [BARE, ...MODES];
  for (const mode of kinds) await measureStart(bench, mode);
  const found = new Map<Mode, number[]>(kinds.map((mode) => [mode, []]));
  for (let round = 0; round < count; round++)
    for (const mode of kinds) found.get(mode)?.push(Math.round(await measureStart(bench, mode)));
  return found;
}

async function measureMemory({ node, namespace }: Bench, mode: Mode): Promise<MemoryFigures> {
  const name = `memory-${mode.name}`;
  const { pods } = await deployApp(node, namespace, name, toOptions(mode));
  const read = (): number => Math.round((node.memoryOf(pods[0], 'sidegate').workingSet / MIB) * 10) / 10;
  await pause(IDLE_SECONDS * 1_000);
  const idle = read();
  const { spec } = await node.ok('GET', `/api/v1/namespaces/${namespace}/services/${name}`);
  let peak = idle;
  const timer = setInterval(() => {
    peak = Math.max(peak, read());
  }, SAMPLE_MS);
  const { requests, seconds, statuses, failed } = await withDeliveries((deliveries) => load(node, spec.clusterIP, deliveries));
  clearInterval(timer);
  await remove({ node, namespace }, name);
  return { idle, peak, perSecond: Math.round(requests / seconds), statuses, failed };
}

async function load(node: NodeCluster, host: string, deliveries: Deliveries): Promise<LoadResult> {
  const target = { url: `http://${host}`, seconds: LOAD_SECONDS, connections: LOAD_CONNECTIONS };
  const [command, ...args] = toReplayCommand({ ...target, deliveries, order: 'once' });
  const { code, stdout, stderr } = await node.runInside(command, ...args);
  if (code !== 0) throw new Error(`wrk: ${stderr}`);
  return parseReport(stdout);
}

async function withDeliveries<T>(use: (deliveries: Deliveries) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-bench-node-'));
  try {
    return await use(writeDeliveries({ folder, name: 'deliveries', count: DELIVERIES, bodyBytes: BODY_BYTES }, SECRET));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function measureRestarts(bench: Bench, mode: Mode, count: number): Promise<RestartFigures> {
  const { node, namespace } = bench;
  const name = `restart-${mode.name}`;
  const { url } = await deployApp(node, namespace, name, { ...toOptions(mode), replicas: REPLICAS });
  const options = { senders: RESTART_SENDERS, around: REQUESTS_AROUND };
  const lost: Record<string, number> = {};
  let sent = 0;
  for (let done = 0; done < count; done++) {
    const tally = await sendDuring(`${url}${HOOK}`, options, () => restartDeployment(node, namespace, name));
    sent += tally.sent;
    for (const kind of tally.lost) lost[kind] = (lost[kind] ?? 0) + 1;
  }
  await remove(bench, name);
  return { restarts: count, sent, lost };
}

/** Removes the Deployment, so that the next measurement has the machine for itself. */
async function remove({ node, namespace }: Bench, name: string): Promise<void> {
  await node.ok('DELETE', `/apis/apps/v1/namespaces/${namespace}/deployments/${name}?propagationPolicy=Background`);
  await node.waitForPods(namespace, `app=${name}`, 0);
}

async function measureAll(bench: Bench, starts: number, restarts: number): Promise<Record<string, ModeFigures>> {
  const times = await measureStarts(bench, starts);
  const found: Record<string, ModeFigures> = {};
  for (const mode of [BARE, ...MODES, ABRUPT]) {
    const own = times.get(mode);
    found[mode.name] = {
      ...(own !== undefined && { starts: own }),
      ...(MODES.includes(mode) && { memory: await measureMemory(bench, mode) }),
      ...(mode !== BARE && { restart: await measureRestarts(bench, mode, restarts) }),
    };
    console.log(mode.name, JSON.stringify(found[mode.name]));
  }
  return found;
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      starts: { type: 'string', default: '9' },
      restarts: { type: 'string', default: '3' },
      out: { type: 'string' },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) return console.log(HELP);
  if (NODE_HINDRANCE !== undefined) throw new Error(NODE_HINDRANCE);
  const meter = new BusyMeter();
  await pause(QUIET_MS);
  const busyBefore = meter.lap();
  const running = await startNode();
  const node = new NodeCluster(running.connection);
  try {
    await node.useChart();
    const bench = { node, namespace: await createAppNamespace(node) };
    const { gitVersion } = await node.ok('GET', '/version');
    const run: NodeRun = {
      date: new Date().toISOString().slice(0, 10),
      machine: describeMachine().join('; '),
      kubernetes: gitVersion,
      busyBefore,
      modes: await measureAll(bench, Number(values.starts), Number(values.restarts)),
    };
    writeFileSync(values.out ?? NODE_RESULTS_FILE, `${JSON.stringify(run, null, 2)}\n`);
    if (values.out === undefined) writeFileSync(PAGE, renderNodePage(run));
  } finally {
    await node.cleanUp();
    await running.stop();
  }
}

// The node ends with this process, but a signal alone does not run the code above.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
await main();
