/** Writes docs/kubernetes-cost.md from a run. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ChartValues } from '../../chart/values.ts';
import { describeNoise, toSpread } from '../figures.ts';
import { median } from '../statistics.ts';
import {
  ABRUPT,
  BARE,
  IDLE_SECONDS,
  LOAD_CONNECTIONS,
  LOAD_SECONDS,
  MODES,
  type Mode,
  type ModeFigures,
  type NodeRun,
  REPLICAS,
  RESTART_SENDERS,
} from './results.ts';

/** The file with the results of the last complete run. */
export const NODE_RESULTS_FILE = join(import.meta.dirname, '..', 'RESULTS-node.json');

/** Reads the last complete run. */
export function readNodeRun(): NodeRun {
  return JSON.parse(readFileSync(NODE_RESULTS_FILE, 'utf8')) as NodeRun;
}

/** Renders the page. */
export function renderNodePage(run: NodeRun = readNodeRun()): string {
  const { requests, limits } = ChartValues.parse({}).sidecar.resources;
  return `# The cost of the sidecar on Kubernetes

Written by \`npm run bench -- node\` and \`npm run docs\`; do not edit.

${run.date}; ${run.machine}; Kubernetes ${run.kubernetes}, one node with containerd and kube-proxy (nftables). Images are on the node
already. ${describeNoise(run)}

The sidecars have the chart's defaults: a memory limit of ${limits.memory} and requests of ${requests.memory} and ${requests.cpu} CPU.
[injection.md](injection.md#interception-modes) describes the interception modes.

## Start

The time from the request that creates the pod until the pod is ready, in seconds: the median of ${figuresOf(run, BARE).starts?.length} starts, with the lowest and the
highest. The kinds of pods take turns. The app has a startup and a readiness probe, and so has the sidecar. The kubelet probes once a second, so
most of the time is waiting for the next probe. A native sidecar must have started before the app is started.

| mode | ready after s | more than without sidecar |
| --- | --- | --- |
${[BARE, ...MODES].map((mode) => toStartRow(run, mode)).join('\n')}

## Memory

The memory of the sidecar's container in MiB, without page cache that the kernel can free at once. *After the start* is ${IDLE_SECONDS} s after the pod
is ready. *Under load* is the highest of four samples a second during ${LOAD_SECONDS} s of signed deliveries of 1 KiB on ${LOAD_CONNECTIONS} connections, as fast as they
are answered. IDs are kept in memory. The app, the sender and the sidecar share the machine, so the rate only describes this run.
[sizing.md](sizing.md) has other loads and limits.

| mode | after the start | under load | deliveries/s | 2xx | no response |
| --- | --- | --- | --- | --- | --- |
${MODES.map((mode) => toMemoryRow(run, mode)).join('\n')}

## Requests lost in rolling restarts

A Deployment with ${REPLICAS} pods is restarted (\`kubectl rollout restart\`) while ${RESTART_SENDERS} senders post signed deliveries to its Service, one after another; half
of them keep their connections. A request is lost if its response is not 200, or if there is none. The last row shows that the load finds losses.

| mode | restarts | requests | lost |
| --- | --- | --- | --- |
${[...MODES, ABRUPT].map((mode) => toRestartRow(run, mode)).join('\n')}
`;
}

function figuresOf({ modes }: NodeRun, { name }: Mode): ModeFigures {
  return modes[name] ?? {};
}

function toStartRow(run: NodeRun, mode: Mode): string {
  const [starts, bare] = [mode, BARE].map((each) => (figuresOf(run, each).starts ?? []).map((ms) => ms / 1_000));
  const more = mode === BARE ? '–' : (median(starts ?? []) - median(bare ?? [])).toFixed(1);
  return `| ${mode.title} | ${toSpread(starts ?? [])} | ${more} |`;
}

function toMemoryRow(run: NodeRun, mode: Mode): string {
  const { memory } = figuresOf(run, mode);
  if (memory === undefined) return `| ${mode.title} | – | – | – | – | – |`;
  const { idle, peak, perSecond, statuses, failed } = memory;
  const count = (isCounted: (status: string) => boolean): number =>
    Object.entries(statuses).reduce((total, [status, each]) => total + (isCounted(status) ? each : 0), 0);
  const share = count((status) => status.startsWith('2')) / Math.max(1, count(() => true) + failed);
  const cells = [idle.toFixed(0), peak.toFixed(0), perSecond, `${Number((share * 100).toFixed(2))} %`, failed];
  return `| ${mode.title} | ${cells.join(' | ')} |`;
}

function toRestartRow(run: NodeRun, mode: Mode): string {
  const { restarts = 0, sent = 0, lost = {} } = figuresOf(run, mode).restart ?? {};
  const total = Object.values(lost).reduce((sum, count) => sum + count, 0);
  const kinds = Object.entries(lost).map(([kind, count]) => `${count} ${kind}`);
  const detail = kinds.length === 0 ? '' : ` (${kinds.join(', ')})`;
  return `| ${mode.title} | ${restarts} | ${sent.toLocaleString('en')} | ${total}${detail} |`;
}
