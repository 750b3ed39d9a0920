/** `npm start`: an example app, the gate in front of it, four deliveries, of which the gate forwards the valid ones, and an event of the app. */
import { randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { prepare } from '../src/app/check.ts';
import { Gate } from '../src/app/gate.ts';
import { pause, systemClock } from '../src/core/clock.ts';
import { formatProblem } from '../src/core/problem.ts';
import { Secret } from '../src/core/secret.ts';
import { createLogger } from '../src/telemetry/log/logger.ts';
import { standardWebhooks } from '../src/verify/presets/standard-webhooks.ts';
import { compileScheme } from '../src/verify/schemes/compile.ts';
import { type ExampleApp, startExampleApp } from './app.ts';

const ROOT = resolve(import.meta.dirname, '..');
const CONFIG = join(ROOT, 'config', 'quickstart.yaml');
const SECRET_FILE = join(ROOT, '.cache', 'quickstart', 'secret');
const BODY_FILE = join(ROOT, '.cache', 'quickstart', 'event.json');
const APP_PORT = 3000;
const HOUR_MS = 3_600_000;
const ROUND_TRIP_MS = 10_000;
const POLL_MS = 20;

interface Try {
  readonly what: string;
  readonly id: string;
  readonly ageMs: number;
  readonly isForged: boolean;
  readonly expected: string;
}

const TRIES: readonly Try[] = [
  { what: 'signed', id: 'evt_1', ageMs: 0, isForged: false, expected: '200 forwarded' },
  { what: 'forged', id: 'evt_2', ageMs: 0, isForged: true, expected: '401 signature_mismatch' },
  { what: 'stale (1 h old)', id: 'evt_3', ageMs: HOUR_MS, isForged: false, expected: '401 timestamp_outside_tolerance' },
  { what: 'repeated', id: 'evt_1', ageMs: 0, isForged: false, expected: '200 duplicate' },
];

async function main(): Promise<number> {
  const { values } = parseArgs({ options: { once: { type: 'boolean' }, 'free-ports': { type: 'boolean' } } });
  const secret = prepareSecret();
  const app = await startApp(values['free-ports'] === true ? 0 : APP_PORT);
  if (app === undefined) return 1;
  const file = values['free-ports'] === true ? await writeFreePortConfig(app) : CONFIG;
  const gate = await startGate(file);
  if (gate === undefined) {
    app.server.close();
    return 1;
  }
  const isRight = (await showDeliveries(gate.url, secret, app)) && (await showRoundTrip(gate.providerUrl, app));
  if (values.once !== true) {
    showMore(gate);
    await untilSignal();
  }
  await gate.stop();
  app.server.close();
  app.server.closeAllConnections();
  return isRight ? 0 : 1;
}

function prepareSecret(): Secret {
  mkdirSync(join(SECRET_FILE, '..'), { recursive: true });
  try {
    return new Secret(readFileSync(SECRET_FILE));
  } catch {
    const text = `whsec_${randomBytes(32).toString('base64')}`;
    writeFileSync(SECRET_FILE, text, { mode: 0o600 });
    return new Secret(Buffer.from(text));
  }
}

async function startApp(port: number): Promise<ExampleApp | undefined> {
  try {
    return await startExampleApp(port);
  } catch (thrown) {
    const { code } = thrown as NodeJS.ErrnoException;
    console.error(
      `The example app cannot listen on 127.0.0.1:${port} (${code}). Stop what uses that port, or run: npm start -- --free-ports`,
    );
    return undefined;
  }
}

/** The same config on free ports. */
async function writeFreePortConfig(app: ExampleApp): Promise<string> {
  const address = app.server.address();
  const port = typeof address === 'object' && address !== null ? address.port : APP_PORT;
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-quickstart-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  const text = readFileSync(CONFIG, 'utf8')
    .replaceAll('127.0.0.1:8080', `127.0.0.1:${await findFreePort()}`)
    .replace('127.0.0.1:9090', '127.0.0.1:0')
    .replace('127.0.0.1:8482', '127.0.0.1:0')
    .replace('.cache/quickstart/queue.db', join(folder, 'queue.db'))
    .replace(`127.0.0.1:${APP_PORT}`, `127.0.0.1:${port}`)
    .replaceAll('../.cache/quickstart/secret', SECRET_FILE);
  const file = join(folder, 'quickstart.yaml');
  writeFileSync(file, text);
  return file;
}

interface RunningGate {
  readonly url: string;
  readonly adminUrl: string;
  readonly providerUrl: string;
  readonly stop: () => Promise<unknown>;
}

async function startGate(file: string): Promise<RunningGate | undefined> {
  const ready = await prepare(file, systemClock);
  if (ready.loaded === undefined) {
    for (const problem of ready.problems) console.error(formatProblem(problem));
    return undefined;
  }
  const logger = createLogger({ level: 'error', version: 'quickstart' });
  const gate = new Gate(ready, { file, clock: systemClock, logger, version: 'quickstart' });
  try {
    const { data, admin, provider } = await gate.start();
    const [url, adminUrl, providerUrl] = [data, admin, provider].map((address) => `http://127.0.0.1:${address?.port}`);
    return { url: String(url), adminUrl: String(adminUrl), providerUrl: String(providerUrl), stop: () => gate.stop() };
  } catch (thrown) {
    const { code, port } = thrown as NodeJS.ErrnoException & { port?: number };
    console.error(
      `sidegate cannot listen on 127.0.0.1:${port} (${code}). Stop what uses that port, or run: npm start -- --free-ports`,
    );
    return undefined;
  }
}

/** Sends all four and prints the results; false if any was handled incorrectly. */
async function showDeliveries(url: string, secret: Secret, app: ExampleApp): Promise<boolean> {
  const stranger = new Secret(Buffer.from(`whsec_${randomBytes(32).toString('base64')}`));
  const rows: string[][] = [['delivery', 'Webhook-Id', 'answered', 'reached the app', '']];
  let isRight = true;
  for (const one of TRIES) {
    const before = app.received.length;
    const answered = await deliver(url, one, one.isForged ? stranger : secret);
    const hasReached = app.received.length > before;
    const isExpected = answered === one.expected && hasReached === one.expected.endsWith('forwarded');
    isRight &&= isExpected;
    rows.push([one.what, one.id, answered, hasReached ? 'yes' : 'no', isExpected ? 'ok' : `WRONG, expected ${one.expected}`]);
  }
  printTable(rows);
  return isRight;
}

/** The way back: the app posts an event to the provider, which sends it to the gate, which forwards it to the app. */
async function showRoundTrip(providerUrl: string, app: ExampleApp): Promise<boolean> {
  const answer = await fetch(`${providerUrl}/v1/events`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ type: 'invoice.paid', data: { amount: 4200 } }),
  });
  const { id } = (await answer.json()) as { id?: string };
  const isReceived = (): boolean => id !== undefined && app.received.includes(id);
  const startedAt = systemClock.monotonic();
  while (answer.status === 202 && !isReceived() && systemClock.monotonic() - startedAt < ROUND_TRIP_MS)
    await pause(systemClock, POLL_MS);
  const isRight = answer.status === 202 && isReceived();
  console.log(
    'The other direction: the app posts an event to its sidecar, which signs and sends it; here, back to the same app.\n',
  );
  console.log(
    `  POST /v1/events  ${answer.status} ${id ?? ''}  reached the app: ${isReceived() ? 'yes' : 'no'}  ${isRight ? 'ok' : 'WRONG'}\n`,
  );
  return isRight;
}

/** Two listeners that refer to each other cannot both choose their port. */
async function findFreePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const { port } = server.address() as AddressInfo;
  await new Promise((done) => server.close(done));
  return port;
}

async function deliver(url: string, one: Try, secret: Secret): Promise<string> {
  const body = toEvent(one.id);
  const headers = compileScheme(standardWebhooks).sign(
    { id: one.id, timestamp: systemClock.now() - one.ageMs, body },
    secret,
    undefined,
  );
  const answer = await fetch(`${url}/hooks/demo`, {
    method: 'POST',
    headers: [['Content-Type', 'application/json'], ...headers.map(([name, value]): [string, string] => [name, value])],
    body: new Uint8Array(body),
  });
  const text = await answer.text();
  const isRefusal = answer.headers.get('content-type') === 'application/problem+json';
  return `${answer.status} ${isRefusal ? (JSON.parse(text) as { code: string }).code : 'forwarded'}`;
}

function toEvent(id: string): Buffer {
  return Buffer.from(
    JSON.stringify({ type: 'invoice.paid', id, created: Math.floor(systemClock.now() / 1000), data: { amount: 4200 } }),
  );
}

function printTable(rows: readonly (readonly string[])[]): void {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => (row[column] ?? '').length)));
  console.log('');
  for (const row of rows) console.log(`  ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ')}`.trimEnd());
  console.log('');
}

function showMore({ url, adminUrl, providerUrl }: RunningGate): void {
  writeFileSync(BODY_FILE, toEvent('evt_9'));
  console.log(`sidegate serves on ${url}, before the app on port ${APP_PORT}. Try more from another terminal, in this folder:

  node bin/sidegate.cjs send ${url}/hooks/demo .cache/quickstart/event.json --secret-file .cache/quickstart/secret
  node bin/sidegate.cjs sign .cache/quickstart/event.json --secret-file .cache/quickstart/secret --format curl --url ${url}/hooks/demo
  curl -i -X POST -H 'Content-Type: application/json' -d '{}' ${url}/hooks/demo
  curl -s ${adminUrl}/metrics | grep sidegate_auth
  curl -s ${providerUrl}/v1/events -H 'Content-Type: application/json' -d '{"type":"invoice.paid","data":{"amount":1}}'
  node bin/sidegate.cjs deliveries list --provider ${providerUrl}
  node bin/sidegate.cjs check --config config/quickstart.yaml

The console: ${adminUrl}/
Ctrl-C stops it.`);
}

function untilSignal(): Promise<void> {
  return new Promise((done) => {
    process.once('SIGINT', () => done());
    process.once('SIGTERM', () => done());
  });
}

process.exitCode = await main();
