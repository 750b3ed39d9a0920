/** Writes docs/scale.md from a run. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { formatBytes, formatCount, toPercent } from '../figures.ts';
import { renderAdvice, renderFleetNeeds, renderPodNeeds, renderProviderNeeds } from './needs-page.ts';
import {
  type Calibration,
  type Comparison,
  compareLoads,
  type FleetResult,
  findObstacle,
  type RedisCost,
  type ScaleRun,
  type ServiceTimes,
  TARGET_UTILIZATION,
  TOLERANCE,
  toCapacity,
} from './results.ts';
import { ASSUMED } from './simulate.ts';

/** The file with the results of the last complete run. */
export const RESULTS_FILE = join(import.meta.dirname, '..', 'RESULTS-scale.json');

/** Reads the last complete run. */
export function readScaleRun(): ScaleRun {
  return JSON.parse(readFileSync(RESULTS_FILE, 'utf8')) as ScaleRun;
}

/** Renders the page. */
export function renderScalePage(run: ScaleRun = readScaleRun()): string {
  return `# Scale on paper and by simulation

Written by \`npm run bench -- scale\` and \`npm run docs\`; do not edit.

This page says what Redis, the network and the provider need for 10 to 10,000 pods and 100 to 1,000,000 events per second. Three kinds of
figures are on it, and each section says which it has:

- **Measured**: counted or timed on one machine, with a real gate and a real Redis.
- **Simulated**: from a queueing model with the measured times, for fleets that are too large for the machine.
- **Extrapolated**: measured figures, multiplied.

${run.date}, commit ${run.commit}; ${run.machine}. Other work took ${toPercent(run.otherWork)} of the machine before the start. Counts and bytes
do not depend on that; times do. They are medians over rounds: ${run.rounds.calibrations} for the CPU time of Redis, ${run.rounds.comparisons} for the comparison with the simulation.

${renderAdvice()}

${renderFleetNeeds(run)}

${renderPodNeeds(run)}

${renderProviderNeeds(run)}

${renderMeasurements(run)}

${renderSimulation(run)}
`;
}

function renderMeasurements(run: ScaleRun): string {
  const { id, connecting, surcharges } = run;
  return `## Measured: what a delivery costs Redis

Counted by Redis (\`INFO commandstats\`) over 500 deliveries, one at a time. A call is one round trip of the gate. Operations that a gate
starts in one turn of its event loop share a call (at most 64), and at more than 500 deliveries/s a confirm waits up to 2 ms for the next claim.
So a busy gate sends fewer calls than the table shows; in a Cluster, each operation is a call. Commands are what Redis runs, also inside of
scripts. Bytes are those of the Redis protocol, without TCP and TLS.

| delivery | calls | commands | bytes to Redis | bytes from Redis | bytes of log |
| --- | --- | --- | --- | --- | --- |
${run.deliveries.map(toCostRow).join('\n')}

Without deliveries, a gate asks every 2 s whether a console is open. Gates write no heartbeats and are not registered in Redis.

| process without deliveries | calls/s | commands/s | bytes/s to Redis | bytes/s from Redis | connections |
| --- | --- | --- | --- | --- | --- |
${run.idle.map((one) => `| ${[one.title, one.calls, one.commands, one.bytesIn, one.bytesOut, one.connections].join(' | ')} |`).join('\n')}

| | |
| --- | --- |
| a handled ID in Redis, with ${id.count.toLocaleString('en')} IDs | ${id.bytes} bytes |
| the same just after the tables of Redis doubled; used below | ${id.bytesAtWorst} bytes |
| the end of an ID's retention | ${id.expiryMicroseconds} µs of Redis |
| a new connection | ${connecting.commands} commands, ${connecting.cpuMicroseconds} µs and at most ${formatBytes(connecting.bytes)} of Redis |
${surcharges.map(({ title, factor }) => `| CPU time of a call ${title} | ${factor} × |`).join('\n')}

## Measured: CPU time of Redis

The times of the parts of a call follow from these loads by least squares. Every event is claimed and confirmed through the store of the gate.

| load | operations | calls | reads | wake-ups | CPU of Redis, µs per operation |
| --- | --- | --- | --- | --- | --- |
${run.calibrations.map(toCalibrationRow).join('\n')}

| part | µs |
| --- | --- |
${Object.entries(PARTS)
  .map(([key, title]) => `| ${title} | ${run.service[key as keyof ServiceTimes]} |`)
  .join('\n')}

With the factors of the previous section, one Redis takes ${formatCount(toCapacity(run, TARGET_UTILIZATION))} calls per second at ${toPercent(TARGET_UTILIZATION)} of a core, and
at most ${formatCount(toCapacity(run, 1))}.`;
}

const PARTS: Readonly<Record<keyof ServiceTimes, string>> = {
  wakeup: 'wake-up, if Redis had nothing to do',
  coldWakeup: 'the same after a millisecond or more',
  read: 'a socket with data',
  call: 'a call of the script',
  operation: 'an operation in it',
};

function describeAgreement({ comparisons }: ScaleRun): string {
  const required = comparisons.filter((one) => findObstacle(one) === undefined);
  const differing = required.filter((one) => Object.values(compareLoads(one)).some((difference) => difference > TOLERANCE));
  if (differing.length === 0) return `All ${required.length} loads of which it is required agree within ${toPercent(TOLERANCE)}.`;
  const loads = differing.map(({ eventsPerSecond }) => formatCount(eventsPerSecond)).join(' and ');
  const isHigh = differing.every(({ ratio }) => ratio.utilization > 1);
  const meaning = isHigh ? ' The model has Redis busier than it was, so the tables ask for more than is needed.' : '';
  return `This run does not reach that: at ${loads} events/s the difference is larger.${meaning}`;
}

function renderSimulation(run: ScaleRun): string {
  return `## The simulation, and how far it agrees

\`bench/scale/fleet.ts\` models each gate and each Redis as a thread with an event loop: it sleeps, wakes up, takes everything that waits, and sends all
results at the end of the turn. Gates collect operations in one call as the code does. \`test/unit/bench/scale-model.test.ts\`
compares the model with formulas of queueing theory (M/D/1, the share of busy time, Little's law).

The small case is both measured and simulated: ${run.comparisons[0]?.processes} processes with the real store share one Redis, and offer events at random times. Here and
in the loads above, Redis has one core of the machine, and the processes share the others. The simulation has the measured times at which each process looked for due events as its input, and the service times of the same round. Redis must be as busy, and run as many operations, as the model says,
within ${toPercent(TOLERANCE)}; \`npm run bench -- scale\` fails otherwise. That is not required of loads that the machine could not offer, because other work
took its cores, and of loads that hardly use Redis. One parameter of the model is chosen, not measured: how long Redis must
sleep until waking up costs the most (\`COLD_AFTER\`).

| events/s | other work | operations/s measured | simulated | calls/s measured | simulated | wake-ups/s measured | simulated | Redis busy measured | simulated | difference | claim p50 ms measured | simulated |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
${run.comparisons.map(toComparisonRow).join('\n')}

${describeAgreement(run)}

Latencies do not agree, and are not expected to: the processes share the cores that Redis leaves them, and wait for one longer than for Redis.
The model has a core for each process. So treat the simulated latencies below as those of machines with a free core for Redis.

### Simulated fleets

Assumed, not measured: ${ASSUMED.redisDelay / 1_000} ms from a gate to Redis, ${ASSUMED.senderDelay / 1_000} ms from a sender to a gate, ${ASSUMED.appTime / 1_000} ms in the app. An accepted delivery takes
${run.gateMicroseconds} µs of a gate's core ([benchmark](../bench/RESULTS.md)). A sender sends to any gate, and waits for the response before the next delivery
of the same stream; so the offered rate falls if the gates are slow.

| gates | senders | Redis | events/s offered | delivered | Redis busy | claim p50 ms | claim p99 ms | delivery p50 ms | delivery p99 ms |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
${run.fleets.map(toFleetRow).join('\n')}

Where Redis is more than about ${toPercent(0.9)} busy, claims wait in its queue. Real senders do not wait: with more than one Redis can take, claims reach
\`commandTimeout\`, and some deliveries get 503 until the load falls. The simulation has no failures; [chaos and simulation runs](reliability.md) cover these.`;
}

function toCostRow({ title, calls, commands, bytesIn, bytesOut, logBytes }: RedisCost): string {
  return `| ${[title, calls, commands, bytesIn, bytesOut, logBytes].join(' | ')} |`;
}

function toCalibrationRow(one: Calibration): string {
  const counts = [one.operations, one.calls, one.reads, one.wakeups + one.coldWakeups].map(formatCount);
  return `| ${one.title} | ${counts.join(' | ')} | ${(one.cpuMicroseconds / one.operations).toFixed(1)} |`;
}

function toComparisonRow(one: Comparison): string {
  const { measured, simulated } = one;
  const cells = [
    formatCount(one.eventsPerSecond),
    toPercent(one.otherWork),
    formatCount(measured.operations),
    formatCount(simulated.operations),
    formatCount(measured.calls),
    formatCount(simulated.calls),
    formatCount(measured.wakeups),
    formatCount(simulated.wakeups),
    toPercent(measured.utilization),
    toPercent(simulated.utilization),
    describeDifference(one),
    measured.p50.toFixed(2),
    simulated.p50.toFixed(2),
  ];
  return `| ${cells.join(' | ')} |`;
}

function describeDifference(one: Comparison): string {
  const difference = toPercent(Math.max(...Object.values(compareLoads(one))));
  const obstacle = findObstacle(one);
  return obstacle === undefined ? difference : `${difference}, not required: ${obstacle}`;
}

function toFleetRow(one: FleetResult): string {
  const cells = [
    formatCount(one.gates),
    formatCount(one.senders),
    one.shards === 1 ? '1' : `Cluster of ${one.shards}`,
    formatCount(one.offered),
    formatCount(one.delivered),
    toPercent(one.utilization),
    ...[one.claimP50, one.claimP99, one.deliveryP50, one.deliveryP99].map((ms) => ms.toFixed(1)),
  ];
  return `| ${cells.join(' | ')} |`;
}
