/** The parts of docs/scale.md that extrapolate from the measured figures, and the advice that follows. */
import { formatBytes, formatCount, toPercent } from '../figures.ts';
import { type QueueCost, type ScaleRun, TARGET_UTILIZATION, toIdBytes, toNeeds } from './results.ts';

const RATES = [100, 1_000, 10_000, 100_000, 1_000_000];
const PODS = [10, 1_000, 10_000];
/** Days, with titles. */
const RETENTIONS: readonly (readonly [number, string])[] = [
  [1 / 24, '1 h'],
  [1, '1 d'],
  [3, '3 d (default)'],
  [30, '30 d (no signed timestamp)'],
];
const SECOND_IN_MICROSECONDS = 1e6;
/** A gate should keep half of its core for peaks, too. */
const GATE_SHARE = 0.5;
/** `maxclients` of Redis. */
const MAX_CLIENTS = 10_000;
/** src/admin/console-loader.ts */
const SHARE_SECONDS = 2;
/** src/state/redis/redis-store.ts; a console reads at most so many batches a second. */
const CONSOLE_BATCHES = 64;
/** src/admin/console/shared-entries.ts */
const MAX_BATCH_BYTES = 65_536;
/** src/state/redis/client.ts */
const REFRESH_SECONDS = 5;

/** What to choose at each size. */
export function renderAdvice(): string {
  return `## Advice for each size

| events per second, in total | Redis | settings |
| --- | --- | --- |
| up to 1,000 | One primary with a replica and [Sentinel](how-to/redis.md), or a managed Redis. Its CPU and network are almost idle; size it by memory. | The defaults. |
| up to 10,000 | The same, with a core for Redis alone, in the zone of the gates. Watch the CPU of the Redis process, not of the machine. | Set \`dedup.retention\` to the time in which the sender retries: memory grows with it. Sample traces (\`tracing.sampleRatio\` of 0.01 or less). |
| up to 100,000 | Several stores, or a Cluster; the table below has the number of primaries. | \`dedup.retention\` of hours. \`log.level: warn\` for the gates, if metrics and traces suffice: a log line has about as many bytes as the claim and its confirmation. \`journal.size: 0\` where the console is not used. |
| up to 1,000,000 | Several stores. A Cluster of this size works in the model, but all gates connect to all of its nodes. | The same. Memory allows only a \`dedup.retention\` of minutes, so the senders must not retry for longer. |

A retry after \`dedup.retention\` reaches the app a second time ([limits](explanation/handled-once.md)): shorten it only to the time in which the sender
retries ([senders](senders.md)).

Use several stores (\`store.redis\` of each Deployment) rather than one large one if routes or teams are independent: an ID belongs to one route, so
gates of different routes need nothing from each other. A separate store limits an outage to its routes, and keeps connections, consoles and
reconnections few. Replicas of one Deployment must share a store.

Without Redis, one pod remembers its IDs itself ([sizing](sizing.md)). That fits one replica, at any rate that it can handle.`;
}

/** By events per second. */
export function renderFleetNeeds(run: ScaleRun): string {
  return `## Extrapolated: what events need of Redis and the network

Accepted events of 1 KiB with a signed ID, in calls of one operation. Each Redis is busy for at most ${toPercent(TARGET_UTILIZATION)} of the time, because latency grows steeply above
about 80 %, and a failover or a full resynchronization needs the rest. Forged deliveries cost Redis nothing, and duplicates half as many calls.

| events/s | pods | Redis calls/s | commands/s | Mbit/s to Redis | Mbit/s from Redis | primaries | each busy | events/s of a gate | gates' CPU |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
${RATES.flatMap((rate) => PODS.map((pods) => toFleetRow(run, pods, rate))).join('\n')}

A gate needs ${run.gateMicroseconds} µs of a core for each event, so one with one core takes about ${formatCount((GATE_SHARE * SECOND_IN_MICROSECONDS) / run.gateMicroseconds)} events per second at ${toPercent(GATE_SHARE)}. Rows in which
gates would need more say so. The webhooks themselves pass the gate with about 0.5 KiB of headers, on the way in and out: about
25 Mbit/s for each 1,000 events per second.

Memory for IDs, at ${run.id.bytesAtWorst} bytes each, in all primaries together. A replica takes as much again, and a rewrite of the log up to twice as much.

| events/s | ${RETENTIONS.map(([, title]) => title).join(' | ')} |
| --- | ${RETENTIONS.map(() => '---').join(' | ')} |
${RATES.map((rate) => `| ${formatCount(rate)} | ${RETENTIONS.map(([days]) => formatBytes(toIdBytes(run, rate, days))).join(' | ')} |`).join('\n')}

Routes whose ID is not signed (GitHub) store two IDs for each event, and \`order\` stores one more key for each resource.`;
}

function toFleetRow(run: ScaleRun, pods: number, rate: number): string {
  const needs = toNeeds(run, pods, rate);
  const cores = (rate / pods) * (run.gateMicroseconds / SECOND_IN_MICROSECONDS);
  const cells = [
    formatCount(rate),
    formatCount(pods),
    formatCount(needs.calls),
    formatCount(needs.commands),
    formatCount(needs.megabitsIn),
    formatCount(needs.megabitsOut),
    formatCount(needs.shards),
    toPercent(needs.utilization),
    formatCount(rate / pods),
    cores > 1 ? `${cores.toFixed(1)} cores each: too few pods` : `${toPercent(cores)} of a core each`,
  ];
  return `| ${cells.join(' | ')} |`;
}

/** By the number of pods. */
export function renderPodNeeds(run: ScaleRun): string {
  const { connecting } = run;
  const [idle, cluster] = run.idle;
  const row = (title: string, toCell: (pods: number) => string): string => `| ${title} | ${PODS.map(toCell).join(' | ')} |`;
  return `## Where each limit is

Extrapolated from the figures of one gate:

| | ${PODS.map((pods) => `${formatCount(pods)} pods`).join(' | ')} |
| --- | ${PODS.map(() => '---').join(' | ')} |
${[
  row('connections to one Redis', (pods) => formatCount(pods * (idle?.connections ?? 0))),
  row('memory of Redis for them, at most', (pods) => formatBytes(pods * connecting.bytes)),
  row('calls/s without deliveries', (pods) => formatCount(pods * (idle?.calls ?? 0))),
  row('CPU time of Redis when all reconnect', (pods) => `${formatCount((pods * connecting.cpuMicroseconds) / 1_000)} ms`),
  row('Cluster of 3: connections, over all nodes', (pods) => formatCount(pods * (cluster?.connections ?? 0))),
  row('Cluster: new connections/s to read the topology', (pods) => formatCount(pods / REFRESH_SECONDS)),
  row('open console: batches/s', (pods) => formatCount(pods / SHARE_SECONDS)),
  row('open console: to Redis, at most', (pods) => `${formatBytes((pods * MAX_BATCH_BYTES) / SHARE_SECONDS)}/s`),
].join('\n')}

| part | limit | effect | what to do |
| --- | --- | --- | --- |
| Redis runs commands on one thread | the calls per second above | claims wait, then \`commandTimeout\` and 503 | a Cluster, or several stores. Threads for I/O (\`io-threads\`) help only with reads and writes of sockets |
| connections | \`maxclients\` of Redis, by default ${MAX_CLIENTS.toLocaleString('en')} | further gates get 503 for their deliveries (\`onStoreError\`) | raise \`maxclients\` and the limit of open files, or use several stores |
| reconnection after a failover | CPU time of Redis in the table | gates wait 25 ms to 2 s at random, so it spreads over some seconds; with TLS it takes longer | several stores above some thousand gates |
| topology of a Cluster | each gate reads it every ${REFRESH_SECONDS} s through a new connection | with TLS, thousands of handshakes per second at 10,000 gates | several stores instead of one Cluster |
| console with replicas | up to 64 KiB of a gate every ${SHARE_SECONDS} s (${run.console.requests} requests were ${formatBytes(run.console.bytes)}), and ${CONSOLE_BATCHES} batches in Redis | above about ${2 * CONSOLE_BATCHES} busy replicas, a console misses requests | \`journal.size: 0\`, or one \`keyPrefix\` for each Deployment |
| login attempts | one call for a wrong password; a key for each client and user name until the window ends | memory grows with the number of addresses that guess | the limits of [fair use](fair-use.md) |
| \`order\` | a key for each resource; deliveries of one resource wait for each other | one resource is as fast as its app | nothing: that is the order |
| lease of a claim | one key, no renewal | none: nothing runs for an event in progress | |
| memory of Redis | \`maxmemory\` with \`noeviction\` | writes fail, and deliveries get 503 | size by the table above, and alert before |
| lanes of the provider | one lease in PostgreSQL for each endpoint with work, renewed every 10 s in one statement for each process | 10,000 busy endpoints are 10,000 leases | nothing: the statement takes milliseconds |`;
}

/** The sending side. */
export function renderProviderNeeds(run: ScaleRun): string {
  return `## Extrapolated: what the provider needs

Measured for events of 1 KiB for one endpoint each, 64 at a time, without the request to the endpoint. Other work on
the machine lowers the rates ([undisturbed rates](../bench/RESULTS-queue.md)):

| queue | accepted/s | taken and settled/s | µs of the process, accept and deliver | µs of PostgreSQL, accept and deliver | bytes of a waiting event | bytes of a delivered one |
| --- | --- | --- | --- | --- | --- | --- |
${run.queues.map(toQueueRow).join('\n')}

With the request to the endpoint, and signing ([benchmark](../bench/RESULTS-delivery.md); with PostgreSQL, its CPU is included), a process at half of a core needs:

| events/s | processes with a SQLite queue each | disk for 3 d | processes with PostgreSQL | cores of PostgreSQL | disk for 3 d |
| --- | --- | --- | --- | --- | --- |
${RATES.map((rate) => toProviderRow(run, rate)).join('\n')}

- A SQLite queue belongs to one process. More events need more Deployments, with different endpoints or different apps.
- Delivered events are kept for \`queue.retention\` (3 d), and the oldest leave when all events exceed \`maxBytes\` (4 GiB). \`maxEvents\` (1,000,000)
  counts only undelivered events.
- A slow endpoint uses one lane, and at most \`concurrency\` of the \`maxConnections\` attempts; it does not slow down the others ([fairness](../bench/RESULTS-fairness.md)).
- Above some thousand events per second, use several queues: another \`schema\` or database for each group of apps.`;
}

function toQueueRow(one: QueueCost): string {
  const cells = [
    one.engine === 'postgres' ? 'PostgreSQL' : 'SQLite',
    formatCount(one.acceptPerSecond),
    formatCount(one.deliverPerSecond),
    `${formatCount(one.acceptMicroseconds)} + ${formatCount(one.deliverMicroseconds)}`,
    one.engine === 'postgres'
      ? `${formatCount(one.acceptServerMicroseconds)} + ${formatCount(one.deliverServerMicroseconds)}`
      : '–',
    formatCount(one.bytesWaiting),
    formatCount(one.bytesDelivered),
  ];
  return `| ${cells.join(' | ')} |`;
}

function toProviderRow(run: ScaleRun, rate: number): string {
  const find = (engine: QueueCost['engine']): QueueCost => {
    const cost = run.queues.find((one) => one.engine === engine);
    if (cost === undefined) throw new Error(`bench/RESULTS-scale.json has no ${engine} queue`);
    return cost;
  };
  const [sqlite, postgres] = [find('sqlite'), find('postgres')];
  const serverTime = postgres.acceptServerMicroseconds + postgres.deliverServerMicroseconds;
  const { providers } = run;
  const toProcesses = (microseconds: number): string => toCores(rate, microseconds, GATE_SHARE);
  const bytesIn3Days = (bytes: number): string => formatBytes(rate * 3 * 86_400 * bytes);
  const cells = [
    formatCount(rate),
    toProcesses(providers.sqlite.accept + providers.sqlite.deliver),
    bytesIn3Days(sqlite.bytesDelivered),
    toProcesses(Math.max(providers.postgres.accept + providers.postgres.deliver - serverTime, 0)),
    toCores(rate, serverTime, TARGET_UTILIZATION),
    bytesIn3Days(postgres.bytesDelivered),
  ];
  return `| ${cells.join(' | ')} |`;
}

/** How many cores work for `microseconds` on each of so many events per second, each of them busy for this share of the time. */
function toCores(rate: number, microseconds: number, share: number): string {
  return formatCount(Math.max(1, Math.ceil((rate * microseconds) / SECOND_IN_MICROSECONDS / share)));
}
