/** Measures the latency of valid deliveries without and with each attack on loopback, and writes RESULTS-attacks.md. */
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { setPriority } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { send } from '../../test/support/client.ts';
import { makeDelivery } from '../../test/support/deliveries.ts';
import { startGateProcess } from '../../test/support/process.ts';
import { BusyMeter, describeMachine, readCpuMicroseconds } from '../machine.ts';
import { median } from '../statistics.ts';

const ATTACKS = [
  'silent connections',
  'slow uploads to an open route',
  'responses that nobody reads',
  'requests that the app takes 1 s for',
  'forged deliveries of 240 kB',
  'spaces in tracestate',
];
const ROUNDS = 3;
const DELIVERIES = 200;
const EVERY_MS = 20;
const WARM_UP_MS = 2_000;
const ATTACKER_PRIORITY = 15;
const LARGE = Buffer.alloc(4_000_000);
const RESULTS = join(import.meta.dirname, '..', 'RESULTS-attacks.md');

interface Measured {
  readonly p50: number;
  readonly p99: number;
  readonly failed: number;
  /** CPU time of the gate over the time that passed, in percent of a core. */
  readonly cpu: number;
}

function startSlowApp(): Promise<number> {
  const server = createServer((request, response) => {
    request.resume();
    if (request.url === '/open/large') response.end(LARGE);
    else if (request.url === '/open/slow') setTimeout(() => response.end('slow'), 1_000);
    else request.on('end', () => response.end('handled'));
  });
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port));
    server.unref();
  });
}

/** One delivery each 20 ms, whatever comes back, on a connection of its own; measured from when it was due. */
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
  times.sort((a, b) => a - b);
  const at = (share: number): number => times[Math.floor(times.length * share)] ?? Number.NaN;
  const cpu = (readCpuMicroseconds([pid]) - cpuBefore) / 10 / (performance.now() - begin);
  return { p50: at(0.5), p99: at(0.99), failed, cpu };
}

async function measureUnder(name: string, port: number, pid: number): Promise<Measured> {
  const child = spawn(process.execPath, [join(import.meta.dirname, 'attacker.ts'), name, String(port)], { stdio: 'inherit' });
  // An attacker is on a machine of its own: what it computes must not count.
  if (child.pid !== undefined) setPriority(child.pid, ATTACKER_PRIORITY);
  try {
    await pause(WARM_UP_MS);
    return await measure(port, pid);
  } finally {
    child.kill('SIGKILL');
  }
}

/** Until what the attack left has gone. */
async function rest(port: number): Promise<void> {
  await pause(500);
  connect(port, '127.0.0.1')
    .on('error', () => undefined)
    .end();
}

const appPort = await startSlowApp();
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
await measure(gate.port, pid);
const rows: string[] = [];
for (const name of ATTACKS.filter((each) => each.includes(process.argv[2] ?? ''))) {
  const rounds: { readonly without: Measured; readonly under: Measured }[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const without = await measure(gate.port, pid);
    rounds.push({ without, under: await measureUnder(name, gate.port, pid) });
    await rest(gate.port);
  }
  const middle = (read: (round: (typeof rounds)[number]) => number): string => median(rounds.map(read)).toFixed(1);
  const ratio = (read: (measured: Measured) => number): string =>
    median(rounds.map(({ without, under }) => read(under) / read(without))).toFixed(2);
  const failed = rounds.reduce((sum, { under }) => sum + under.failed, 0);
  rows.push(
    `| ${name} | ${middle(({ without }) => without.p50)} | ${middle(({ under }) => under.p50)} | ${middle(({ without }) => without.p99)} | ${middle(({ under }) => under.p99)} | ${ratio(({ p99 }) => p99)} × | ${middle(({ without }) => without.cpu)} | ${middle(({ under }) => under.cpu)} | ${failed} of ${ROUNDS * DELIVERIES} |`,
  );
  console.log(rows.at(-1));
}
gate.child.kill('SIGTERM');
writeFileSync(
  RESULTS,
  `# Benchmark results: valid deliveries during attacks

Written by \`npm run bench:attacks\`; do not edit.

${describeMachine().join('; ')}; Node ${process.version}; ${(busyBefore * 100).toFixed(0)} % of all cores busy with other work at the start.
One valid delivery of about 100 bytes each ${EVERY_MS} ms, on a new connection, from another address than the attack's; latency in ms from when it
was due. Gate, app, sender and attacker share the machine. ${ROUNDS} rounds of ${DELIVERIES} deliveries without and with each attack in turns; figures are
medians of the rounds, ratios the medians of those within each round. Default limits. CPU is that of the gate in
percent of a core: on a busy machine it says more than the latency.

| attack | p50 without | p50 with | p99 without | p99 with | p99 ratio | CPU without | CPU with | not 200 |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
${rows.join('\n')}
`,
);
