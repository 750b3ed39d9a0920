/** Writes docs/sizing.md from a run, the chart's defaults and the budgets in the code. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ChartValues } from '../../chart/values.ts';
import { ENDPOINT_BYTES, ROUTE_BYTES, WEBHOOK_ROUTE_BYTES } from '../../src/app/check.ts';
import { toConfigHeap, toMaxFileBytes } from '../../src/config/load/document.ts';
import { limits as limitsSchema } from '../../src/config/schema/limits-schema.ts';
import { deriveMaxIds } from '../../src/config/schema/store-schema.ts';
import { toMemoryBudget } from '../../src/http/server/memory.ts';
import { ENDPOINTS_HEAP_SHARE, toHeapBytes } from '../../src/provider/endpoints/endpoint-record.ts';
import { LIMITS, type LoadKind, type Measurement, type SizingRun, toShares, toTotal } from './results.ts';

const ROOT = join(import.meta.dirname, '..', '..');
/** The file with the results of the last complete run. */
export const RESULTS_FILE = join(ROOT, 'bench', 'RESULTS-sizing.json');
const MIB = 1024 * 1024;
const BUDGETED_LIMITS = [...LIMITS, 384, 512];
/** V8's young generation, in addition to `--max-old-space-size`. */
const YOUNG_MEBIBYTES = 6;
const KINDS: Readonly<Record<LoadKind, string>> = {
  idle: 'idle',
  usual: 'usual: must be served, and sets the request',
  normal: 'normal: must be served',
  excessive: 'excessive: may get 503, must not end the process',
};

/** Reads the last complete run. */
export function readSizingRun(): SizingRun {
  return JSON.parse(readFileSync(RESULTS_FILE, 'utf8')) as SizingRun;
}

/** Renders the page. */
export function renderSizingPage(run: SizingRun = readSizingRun()): string {
  const { requests, limits } = ChartValues.parse({}).sidecar.resources;
  return `# Sizing

Written by \`npm run bench -- sizing\` and \`npm run docs\`; do not edit. [memory.md](memory.md) explains the mechanisms.

## Defaults

| setting of the sidecar | default | reason |
| --- | --- | --- |
| memory request | \`${requests.memory}\` | the peak of the usual loads below under any limit, rounded up to a multiple of 32 MiB |
| memory limit | \`${limits.memory}\` | the smallest measured limit that serves every usual and normal load, and that no load exceeds |
| heap | ${readHeapPercent()} % of the limit | set in the image; the rest is for bodies, connections and the process itself |
| bodies | ${toBodies(Number.parseInt(limits.memory, 10))} | a quarter of what the limit leaves beside the process (\`limits.maxBufferedBytes\`) |
| IDs in memory | ${toIds(Number.parseInt(limits.memory, 10))} | a third of the heap (\`store.memory.maxIds\`); none with Redis |

Set other values for all pods in the chart (\`sidecar.resources\`), or for one pod with the annotations \`sidegate.dev/memory-request\` and
\`sidegate.dev/memory-limit\` ([injection.md](injection.md)).

## Choose a limit

Start with the default. Raise the limit if

- \`sidegate_limit_hits_total{limit="memory"}\`, \`{limit="heap"}\` or \`{limit="buffer"}\` grows under load that you want to serve;
- more than about 500 TLS connections are open at once: each uses at most 100 KiB;
- many deliveries above 64 KiB arrive at once: add four times the bytes that they have together;
- IDs are kept in memory and their number over the retention is larger than the table below allows;
- passwords are checked with argon2id: add the memory of one hash for each thread.

Do not go below 96 MiB. Nothing below it is measured.${warnOfExceeded(run)}

sidegate derives these values from the limit, unless the config sets them:

| memory limit | heap | bodies | large bodies at once | IDs in memory | endpoints of the API | large bodies get 503 above | all requests get 503 above |
| --- | --- | --- | --- | --- | --- | --- | --- |
${BUDGETED_LIMITS.map(toBudgetRow).join('\n')}

Endpoints that are created by the API use at most 40 % of the heap, as the next start has to load them. The number is that of endpoints with 400 bytes of
settings and two patterns in \`events\`; those with more of both use more. Further ones get 409. If the queue stores endpoints that need more than 45 % of the heap, and more than
85 % of it less 24 MiB, sidegate does not start: the limit was lowered, or a sidegate with more memory stored them. One that runs drains and exits.
The error says how to go on. Give all replicas with the same queue the same memory limit: the smallest decides.

A config that needs more than its part of the heap is rejected at the start and at a reload, which keeps the config before. A reload holds both, so
each has half of what is left beside 24 MiB. A webhook route counts as 36 KiB, any other route as 16 KiB and an endpoint of the config as 10 KiB.
Each worker holds the config ([workers.md](workers.md)). With one, a config may have at least so many of one of them, and a file of at least this size:

| memory limit | webhook routes | other routes | endpoints of the config | file |
| --- | --- | --- | --- | --- |
${BUDGETED_LIMITS.map(toConfigRow).join('\n')}

With the most of each at 96, 128 and 192 MiB, the image starts and survives three reloads in a cgroup of that size; the peak was 74 MiB, 96 MiB and 125 MiB.

## Measurements

${run.date}; ${run.machine}.
The gate runs as in the image, in a memory cgroup without swap, with a fresh process for each load and limit. Memory is in MiB, and each figure is the highest of four samples a second:

- **charged**: what the kernel charged to the container, without page cache that it can free at once (the working set in Kubernetes).
- **sockets**: the sockets' buffers in the kernel. ${describeSockets(run)}
- **total**: what counts against the limit under cgroup v2; it must not exceed the limit.
- **heap**: the JavaScript heap in use.
- **RSS**: resident memory with the pages of the Node program, of which the container is not charged for all.

Requests per second and p99 only describe this run: gate, senders, Redis and the app share the machine. *2xx* and *503* are shares of all
requests; the rest of a forged load gets 401 or a closed connection.

${LIMITS.map((limit) => toSection(run, limit)).join('\n\n')}

| kind of load | loads |
| --- | --- |
${Object.entries(KINDS)
  .map(([kind, text]) => `| ${text} | ${toTitles(run, kind)} |`)
  .join('\n')}

Not measured: passwords, the egress proxy, responses that nobody reads, and WebSocket connections. The tests of attacks cover them
under the same limits ([reliability.md](reliability.md)).
`;
}

/** No gate was killed there, but one may be on a system that counts the sockets' buffers. */
function warnOfExceeded(run: SizingRun): string {
  const exceeded = LIMITS.filter((limit) => run.measurements.some((one) => one.limit === limit && toTotal(run, one) > limit));
  if (exceeded.length === 0) return '';
  const names = exceeded.map((limit) => `${limit} MiB`).join(' and ');
  return ` At ${names}, large bodies on hundreds of connections took more than the limit together
with the sockets' buffers, which count under cgroup v2: choose them only where few clients can send large bodies.`;
}

function toBudgetRow(limit: number): string {
  const { memoryShed } = limitsSchema.parse({});
  const { maxLargeBodies } = toMemoryBudget({}, limit * MIB);
  const [large, all] = [memoryShed, (1 + memoryShed) / 2].map((share) => `${Math.floor(limit * share)} MiB`);
  const heap = `${toHeap(limit)} MiB`;
  return `| ${limit}Mi | ${heap} | ${toBodies(limit)} | ${maxLargeBodies} | ${toIds(limit)} | ${toEndpoints(limit)} | ${large} | ${all} |`;
}

function toHeap(limit: number): number {
  return (limit * readHeapPercent()) / 100;
}

function toBodies(limit: number): string {
  return `${toMemoryBudget({}, limit * MIB).maxBufferedBytes / MIB} MiB`;
}

function toIds(limit: number): string {
  return deriveMaxIds((toHeap(limit) + YOUNG_MEBIBYTES) * MIB).toLocaleString('en');
}

function toConfigRow(limit: number): string {
  const heap = toHeap(limit) * MIB;
  const counts = [WEBHOOK_ROUTE_BYTES, ROUTE_BYTES, ENDPOINT_BYTES].map((bytes) => Math.floor(toConfigHeap(heap) / bytes));
  const file = Math.floor(toMaxFileBytes(heap) / 1024);
  return `| ${limit}Mi | ${counts.map((count) => count.toLocaleString('en')).join(' | ')} | ${file} KiB |`;
}

/** Of a usual size. */
function toEndpoints(limit: number): string {
  const fitting = (ENDPOINTS_HEAP_SHARE * (toHeap(limit) + YOUNG_MEBIBYTES) * MIB) / toHeapBytes(400, 2);
  return (Math.floor(fitting / 100) * 100).toLocaleString('en');
}

/** From the image's command line. */
function readHeapPercent(): number {
  const text = readFileSync(join(ROOT, 'Dockerfile'), 'utf8');
  return Number(/--max-old-space-size-percentage=(\d+)/.exec(text)?.[1]);
}

function describeSockets({ cgroups }: SizingRun): string {
  return cgroups === 'v1'
    ? 'cgroup v2 charges them to the container; this machine has cgroup v1, which does not, so the total is the sum.'
    : 'They are part of what was charged.';
}

function toSection(run: SizingRun, limit: number): string {
  const { loads, measurements } = run;
  const rows = loads.flatMap(({ name, title }) =>
    measurements
      .filter((one) => one.limit === limit && one.load === name)
      .map((one) => `| ${title}${toIdCount(one)} | ${toCells(one, toTotal(run, one)).join(' | ')} |`),
  );
  return `### ${limit} MiB

| load | charged | sockets | total | heap | RSS | requests/s | 2xx | 503 | p99 ms | OOM kills |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
${rows.join('\n')}`;
}

function toIdCount({ ids }: Measurement): string {
  return ids === undefined ? '' : ` (${ids.toLocaleString('en')})`;
}

function toCells(one: Measurement, total: number): string[] {
  const memory = [one.workingSet, one.sockets, total, one.heap, one.rss].map((value) => value.toFixed(0));
  const { served, shed } = toShares(one);
  const isIdle = Object.keys(one.statuses).length === 0;
  const shares = [served, shed].map((share) => (isIdle ? '–' : `${Number((share * 100).toFixed(2))} %`));
  return [...memory, isIdle ? '–' : String(one.perSecond), ...shares, one.p99?.toFixed(0) ?? '–', String(one.oomKills)];
}

function toTitles({ loads }: SizingRun, kind: string): string {
  return loads
    .filter((load) => load.kind === kind)
    .map(({ title }) => title)
    .join('; ');
}
