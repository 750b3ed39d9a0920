/** Measures the latency of valid deliveries without and with each attack on loopback, and writes RESULTS-attacks.md. */
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { setPriority } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { send } from '../../test/support/client.ts';
import { makeDelivery } from '../../test/support/deliveries.ts';
import { startGateProcess } from '../../test/support/process.ts';
import { end, findFreePort, GATE_CORE, launch, OTHER_CORE, untilListening } from '../children.ts';
import { BusyMeter, describeMachine, readCpuMicroseconds } from '../machine.ts';
import { median, toQuantile } from '../statistics.ts';

const ATTACKS = [
  'silent connections',
  '10,000 silent connections of 500 clients',
  'slow heads',
  'slow bodies of deliveries',
  'slow uploads to an open route',
  'responses that nobody reads',
  'requests that the app takes 1 s for',
  'forged deliveries of 240 kB',
  'spaces in tracestate',
];
const ROUNDS = 5;
const DELIVERIES = 300;
const EVERY_MS = 15;
const WARM_UP_MS = 2_000;
const ATTACKER_PRIORITY = 15;
const RESULTS = join(import.meta.dirname, '..', 'RESULTS-attacks.md');

interface Measured {
  /** Milliseconds, of each delivery. */
  readonly times: readonly number[];
  readonly failed: number;
  /** CPU time of the gate relative to the elapsed time, in percent of a core. */
  readonly cpu: number;
  /** Time of the gate per delivery in milliseconds, without the app; from its log. */
  readonly gateTimes: readonly number[];
}

/** Moves a process with all its threads to one core. */
function bind(pid: number, core: number): void {
  execFileSync('taskset', ['-a', '-c', '-p', String(core), String(pid)], { stdio: 'ignore' });
}

let linesRead = 0;

/** The times of the deliveries that the gate logged since the last call. */
function takeGateTimes(): number[] {
  const lines = gate.log();
  const added = lines.slice(linesRead).filter(({ route }) => route === 'billing');
  linesRead = lines.length;
  return added.map(({ durationMs, upstreamMs }) => Number(durationMs) - Number(upstreamMs ?? 0));
}

/** Sends one delivery at a fixed time, regardless of earlier responses, on a separate connection; measured from the time at which it was due. */
async function measure(port: number, pid: number): Promise<Measured> {
  const cpuBefore = readCpuMicroseconds([pid]);
  const times: number[] = [];
  let failed = 0;
  const sending: Promise<void>[] = [];
  const begin = performance.now();
  for (let index = 0; index < DELIVERIES; index++) {
    const due = begin + index * EVERY_MS;
    await pause(Math.max(0, due - performance.now()));
    const sent = send(port, makeDelivery()).then(
      ({ status }) => void (status === 200 || failed++),
      () => void failed++,
    );
    sending.push(sent.then(() => void times.push(performance.now() - due)));
  }
  await Promise.all(sending);
  const cpu = (readCpuMicroseconds([pid]) - cpuBefore) / 10 / (performance.now() - begin);
  return { times, failed, cpu, gateTimes: takeGateTimes() };
}

async function measureUnder(name: string, port: number, pid: number): Promise<Measured> {
  const args = [join(import.meta.dirname, 'attacker.ts'), name, String(port)];
  const child = launch({ core: OTHER_CORE, command: process.execPath, args });
  // A real attacker uses another machine, so its computation must not count.
  if (child.pid !== undefined) setPriority(child.pid, ATTACKER_PRIORITY);
  try {
    await pause(WARM_UP_MS);
    return await measure(port, pid);
  } finally {
    child.kill('SIGKILL');
  }
}

/** Waits until the effects of the attack are gone. */
async function rest(port: number): Promise<void> {
  await pause(500);
  connect(port, '127.0.0.1')
    .on('error', () => undefined)
    .end();
}

const appPort = await findFreePort();
const app = launch({ core: OTHER_CORE, command: process.execPath, args: [join(import.meta.dirname, 'app.ts'), String(appPort)] });
await untilListening(app, appPort);
const upstream = `http://127.0.0.1:${appPort}`;
const webhook = { keys: [{ name: 'current', secret: { file: 'secret' } }] };
const gate = await startGateProcess({
  routes: [
    { name: 'billing', match: { path: '/hooks/billing' }, upstream, webhook },
    { name: 'open', match: { pathPrefix: '/open' }, upstream, allow: 'anyone', trace: { trust: 'always' } },
  ],
  tracing: {},
});
const meter = new BusyMeter();
await pause(1_000);
const busyBefore = meter.lap();
const pid = gate.child.pid ?? 0;
bind(pid, GATE_CORE);
bind(process.pid, OTHER_CORE);
await measure(gate.port, pid);
const rows: string[] = [];
for (const name of ATTACKS.filter((each) => each.includes(process.argv[2] ?? ''))) {
  const rounds: { readonly without: Measured; readonly under: Measured }[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const without = await measure(gate.port, pid);
    rounds.push({ without, under: await measureUnder(name, gate.port, pid) });
    await rest(gate.port);
  }
  const [without, under] = [rounds.map((round) => round.without), rounds.map((round) => round.under)];
  // Over all deliveries of all rounds, because one round has too few for a p99.
  const toQuantiles = (share: number, read = ({ times }: Measured): readonly number[] => times): readonly [number, number] => [
    toQuantile(without.flatMap(read), share),
    toQuantile(under.flatMap(read), share),
  ];
  const toCells = (figures: readonly number[]): string[] => figures.map((figure) => figure.toFixed(1));
  const p99 = toQuantiles(0.99);
  const failed = under.reduce((sum, measured) => sum + measured.failed, 0);
  const cells = [
    name,
    ...toCells(toQuantiles(0.5)),
    ...toCells(p99),
    `${(p99[1] / p99[0]).toFixed(2)} ×`,
    ...toCells(toQuantiles(0.99, ({ gateTimes }) => gateTimes)),
    ...toCells([without, under].map((side) => median(side.map(({ cpu }) => cpu)))),
    `${failed} of ${ROUNDS * DELIVERIES}`,
  ];
  rows.push(`| ${cells.join(' | ')} |`);
  console.log(rows.at(-1));
}
gate.child.kill('SIGTERM');
await end(app);
writeFileSync(
  RESULTS,
  `# Benchmark results: valid deliveries during attacks

Written by \`npm run bench -- attacks\`; do not edit.

${describeMachine().join('; ')}; Node ${process.version}; ${(busyBefore * 100).toFixed(0)} % of all cores busy with other work at the start.
One valid delivery of about 100 bytes each ${EVERY_MS} ms, on a new connection, from another address than the attack's; latency in ms from when it
was due. The gate has one core; app, sender and attacker share the other. ${ROUNDS} rounds of ${DELIVERIES} deliveries without and with each attack in turns;
p50 and p99 are those of all rounds together. Default limits. "In the gate" is the time that the gate's log
reports for a delivery without the time of the app: the attack also makes the app and the sender slower, as they share its core. CPU is that of
the gate in percent of a core, the median of the rounds.

| attack | p50 without | p50 with | p99 without | p99 with | p99 ratio | p99 in the gate without | with | CPU without | CPU with | not 200 |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
${rows.join('\n')}
`,
);
