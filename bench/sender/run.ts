/** `npm run bench -- sender`: the CPU of one signed attempt, beside a bare request of Node's client. */
import { fork } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process, { cpuUsage, exit } from 'node:process';
import { makeAuthority } from '../../test/support/certificates.ts';
import { BusyMeter, describeMachine } from '../machine.ts';
import { median, pairedRatio } from '../statistics.ts';
import { createBare, createOwn, type Receiver, type Send } from './clients.ts';

const ROUNDS = 7;
const WARM_UP = 3_000;
const COUNT = 8_000;
const IN_FLIGHT = 64;
const REPORT = join(import.meta.dirname, '..', 'RESULTS-sender.md');

interface Row {
  readonly name: string;
  readonly send: Send;
  readonly micros: number[];
}

/** Microseconds of CPU, user and system, of this process for each of `count` deliveries. */
async function measure(send: Send, count: number): Promise<number> {
  const before = cpuUsage();
  let started = 0;
  const runSlot = async (slot: number): Promise<void> => {
    while (started < count) {
      started++;
      await send(slot);
    }
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, (_, slot) => runSlot(slot)));
  const { user, system } = cpuUsage(before);
  return (user + system) / count;
}

async function play(receiver: Receiver): Promise<Row[]> {
  const rows: Row[] = [
    { name: 'sidegate, signed and checked', send: createOwn(receiver, IN_FLIGHT), micros: [] },
    { name: "Node's client, signed", send: createBare(receiver, IN_FLIGHT, true), micros: [] },
    { name: "Node's client, bare", send: createBare(receiver, IN_FLIGHT, false), micros: [] },
  ];
  for (const { send } of rows) await measure(send, WARM_UP);
  for (let round = 0; round < ROUNDS; round++) for (const { send, micros } of rows) micros.push(await measure(send, COUNT));
  return rows;
}

async function startReceiver(files: readonly string[]): Promise<{ port: number; stop: () => void }> {
  const child = fork(join(import.meta.dirname, 'receiver.ts'), [...files]);
  const port = await new Promise<number>((resolve) => child.once('message', (message) => resolve(Number(message))));
  return { port, stop: () => child.kill() };
}

function toTable(title: string, rows: readonly Row[]): string[] {
  const bare = rows.at(-1)?.micros ?? [];
  const lines = rows.map(
    ({ name, micros }) => `| ${name} | ${median(micros).toFixed(1)} | ${pairedRatio(micros, bare).toFixed(2)} × |`,
  );
  return [`## ${title}`, '', '| client | µs CPU per delivery | against the bare request |', '| --- | --- | --- |', ...lines, ''];
}

const folder = mkdtempSync(join(tmpdir(), 'sidegate-bench-'));
const authority = makeAuthority(folder, 'ca');
const pair = authority.issue('receiver', 'IP:127.0.0.1');
const meter = new BusyMeter();
const tables: string[] = [];
for (const isTls of [false, true]) {
  const { port, stop } = await startReceiver(isTls ? [pair.cert, pair.key] : []);
  const ca = isTls ? readFileSync(authority.ca, 'utf8') : undefined;
  const rows = await play({ url: `${isTls ? 'https' : 'http'}://127.0.0.1:${port}/hooks`, ca });
  tables.push(...toTable(isTls ? 'https' : 'http', rows));
  stop();
}
const report = [
  '# Benchmark results: sending a delivery',
  '',
  'Written by `npm run bench -- sender`; do not edit.',
  '',
  `${[...describeMachine(), `Node ${process.version}`].join('; ')}; all cores together were ${Math.round(meter.lap() * 100)} % busy.`,
  `CPU time of the sending process, user and system; body of 1 KiB, ${IN_FLIGHT} deliveries at once on kept-alive connections, receiver in`,
  `another process; medians of ${ROUNDS} rounds in turns, ratios are the medians of those within each round.`,
  '',
  'The sender signs, has a deadline and can be canceled, checks the URL and, for new connections, the address, and parses the response',
  "strictly. Node's client does none of that.",
  '',
  ...tables,
].join('\n');
writeFileSync(REPORT, report);
console.log(report);
rmSync(folder, { recursive: true });
exit(0);
