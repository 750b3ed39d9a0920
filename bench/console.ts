/**
 * Measures what an open console costs: the gate's CPU per request with the console closed and open in a real Chromium, in turns, at 10,000
 * deliveries a minute. `node bench/console.ts [ROUNDS] [SECONDS]` after `npm run build`; only the gate's process is measured.
 */
import { execFileSync } from 'node:child_process';
import { Agent, createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type Browser, chromium, type Page } from 'playwright-core';
import { type Delivery, makeDelivery } from '../test/support/deliveries.ts';
import { startGateProcess } from '../test/support/process.ts';
import { readThreadMicroseconds } from './machine.ts';

const PER_SECOND = 10_000 / 60;
const BATCH_MS = 50;
const WARM_UP_SECONDS = 40;
const WARM_UP_PER_SECOND = 800;
/** The page must respond to a click within this time, as users notice more (RAIL). */
const RESPONSIVE_MS = 100;

const [rounds = 4, seconds = 20] = process.argv.slice(2).map(Number);

const agent = new Agent({ keepAlive: true, maxSockets: 16 });

function post(port: number, { body, headers }: Delivery): Promise<void> {
  return new Promise((resolve, reject) => {
    const outgoing = request({ agent, port, host: '127.0.0.1', method: 'POST', path: '/hooks/billing', headers }, (response) =>
      response.resume().on('end', resolve),
    );
    outgoing.on('error', reject).end(body);
  });
}

/** Sends deliveries at a fixed rate; one of ten is forged. Returns how many got a response. */
async function load(port: number, duration: number, perSecond = PER_SECOND): Promise<number> {
  const start = performance.now();
  const pending: Promise<unknown>[] = [];
  while (performance.now() - start < duration * 1_000) {
    const due = ((performance.now() - start) / 1_000) * perSecond;
    while (pending.length < due) {
      const timestamp = Math.floor(Date.now() / 1_000) - (pending.length % 10 === 0 ? 3_600 : 0);
      pending.push(post(port, makeDelivery({ timestamp })));
    }
    await new Promise((resolve) => setTimeout(resolve, BATCH_MS));
  }
  await Promise.all(pending);
  return pending.length;
}

/** How long the page takes for a click, at worst. */
async function measureClicks(page: Page, duration: number): Promise<number> {
  const end = performance.now() + duration * 1_000 - 2_000;
  let worst = 0;
  while (performance.now() < end) {
    const name = (await page.getByRole('button', { name: 'Resume' }).count()) > 0 ? 'Resume' : 'Pause';
    const took = await page.getByRole('button', { name }).evaluate(click);
    worst = Math.max(worst, took);
    await new Promise((resolve) => setTimeout(resolve, 1_000));
  }
  return worst;
}

interface Button {
  click(): void;
}

/** Clicks; resolves with the time until the next frame is painted. Runs in the browser. */
function click(button: unknown): Promise<number> {
  const { requestAnimationFrame } = globalThis as unknown as { requestAnimationFrame: (callback: () => void) => void };
  return new Promise((resolve) => {
    const start = performance.now();
    (button as Button).click();
    requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - start)));
  });
}

const app = createServer((request, response) => request.resume().on('end', () => response.end())).listen(0, '127.0.0.1');
await new Promise((resolve) => app.once('listening', resolve));
const upstream = `http://127.0.0.1:${(app.address() as AddressInfo).port}`;
const webhook = { keys: [{ name: 'current', secret: { file: 'secret' } }] };
const gate = await startGateProcess({ routes: [{ name: 'billing', match: { path: '/hooks/billing' }, upstream, webhook }] });
const browser: Browser = await chromium.launch({
  executablePath: execFileSync('sh', ['-c', 'command -v chromium'], { encoding: 'utf8' }).trim(),
  args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking'],
});
const page = await browser.newPage();

/** Microseconds of CPU per request. */
async function measure(): Promise<number> {
  const pids = [gate.child.pid as number];
  const before = readThreadMicroseconds(pids);
  const requests = await load(gate.port, seconds);
  return (readThreadMicroseconds(pids) - before) / requests;
}

const cpu = { closed: [] as number[], open: [] as number[] };

async function closed(): Promise<void> {
  await page.goto('about:blank');
  const each = await measure();
  cpu.closed.push(each);
  console.log(`closed: ${each.toFixed(0)} µs`);
}

async function showConsole(): Promise<void> {
  await page.goto(`http://127.0.0.1:${gate.adminPort}/`);
  await page.getByRole('status').filter({ hasText: 'Live' }).waitFor();
}

async function open(): Promise<void> {
  await showConsole();
  const [each, worst] = await Promise.all([measure(), measureClicks(page, seconds)]);
  cpu.open.push(each);
  console.log(`open: ${each.toFixed(0)} µs; worst click ${worst.toFixed(0)} ms, at most ${RESPONSIVE_MS} expected`);
}

try {
  // V8 compiles during the first 30,000 requests, and the console's code when it is open.
  await showConsole();
  await load(gate.port, WARM_UP_SECONDS, WARM_UP_PER_SECOND);
  for (let round = 1; round <= rounds; round++) {
    // Open, closed, closed, open: a drift does not favor either.
    const order = round % 2 === 0 ? [closed, open] : [open, closed];
    for (const turn of order) await turn();
  }
  const [whenClosed, whenOpen] = [toMedian(cpu.closed), toMedian(cpu.open)];
  const percent = ((whenOpen / whenClosed - 1) * 100).toFixed(1);
  console.log(`median: closed ${whenClosed.toFixed(0)} µs, open ${whenOpen.toFixed(0)} µs per request (${percent} %)`);
} finally {
  await browser.close();
  gate.child.kill();
  agent.destroy();
  app.close();
}

function toMedian(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = (sorted.length - 1) / 2;
  return ((sorted[Math.floor(middle)] ?? 0) + (sorted[Math.ceil(middle)] ?? 0)) / 2;
}
