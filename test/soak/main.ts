/**
 * `npm run soak -- --minutes 30 [--write]`: a gate with Redis, TLS and a provider at half of its load, while its config, keys, certificate and log are rotated.
 * Exits with 1 if its memory grows, or if it holds more timers, sockets, listeners or files at the end than after the warm-up. `--write` puts the
 * figures in bench/RESULTS-soak.json.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { GateLives, readResources, sumSeries } from '../chaos/gate-lives.ts';
import { makeAuthority } from '../support/certificates.ts';
import { SECRET } from '../support/deliveries.ts';
import { findFreePort } from '../support/free-port.ts';
import { type Sections, until } from '../support/gate.ts';
import { startRedis } from '../support/redis.ts';
import { writeRunResults } from '../support/run-results.ts';
import type { CountedResources } from './count-resources.ts';
import { Load } from './load.ts';
import { KEYS, Rotations, writeCertificate } from './rotations.ts';
import { findSlope, type Sample } from './trend.ts';

const { values } = parseArgs({
  options: { minutes: { type: 'string', default: '30' }, write: { type: 'boolean', default: false } },
});
const MINUTES = Number(values.minutes);
const SAMPLE_MS = 2_000;
/** After the load has stopped, before it is counted what is held. */
const CALM_MS = 15_000;
const CALIBRATION_MS = 10_000;
/** Seconds between two rotations of each kind. */
const EVERY_S = { config: 10, key: 15, certificate: 20, log: 30 } as const;
/** Seconds between two collections of garbage under load: V8 lets the heap grow to its limit, so only what is left then has a trend. */
const COLLECT_EVERY_S = 30;
/** Growth over the second half of the run, by its trend. */
const MAX_GROWTH_MIB = 4;
/** Before, caches and pools still grow to the size that they keep. */
const MIN_TREND_MINUTES = 20;
/** Memory at rest, after a garbage collection. In the first minutes, V8 still compiles code: of reloads, after some hundreds of them. */
const MAX_MORE_RESIDENT_MIB = 16;
/** Connections to Redis and the app may differ by a few. */
const MAX_MORE = 3;
/** Live objects, after a garbage collection. */
const MAX_MORE_HEAP_MIB = 4;
const MIB = 1_048_576;

/** What the gate holds while it has nothing to do. */
interface Held extends CountedResources {
  readonly descriptors: number;
}

const folder = mkdtempSync(join(tmpdir(), 'sidegate-soak-'));
const redis = await startRedis();
const app = createServer((incoming, response) => incoming.resume().on('end', () => response.end('handled')));
await new Promise<void>((resolve) => app.listen(0, '127.0.0.1', resolve));
const appUrl = `http://127.0.0.1:${(app.address() as AddressInfo).port}`;
const apiPort = await findFreePort();

function toSections(port: number, more: readonly string[]): Sections {
  const keys = KEYS.map((name) => ({ name, secret: { file: name } }));
  const names = ['soak', ...more];
  return {
    listen: { address: `127.0.0.1:${port}`, tls: { certFile: 'tls.crt', keyFile: 'tls.key' } },
    store: { redis: { url: `redis://127.0.0.1:${redis.port}` } },
    routes: names.map((name) => ({ name, match: { path: `/hooks/${name}` }, upstream: appUrl, webhook: { keys } })),
    provider: {
      address: `127.0.0.1:${apiPort}`,
      egress: { allowHttp: true, allowPrivate: ['127.0.0.0/8'] },
      queue: { sqlite: { path: join(folder, 'queue.db'), allowVolatile: true }, retention: '10s' },
      endpoints: [{ name: 'app', url: `${appUrl}/`, secret: { file: 'secret' } }],
    },
  };
}

const counted = join(folder, 'resources.json');
process.env['SOAK_RESOURCES'] = counted;
for (const key of KEYS) writeFileSync(join(folder, key), SECRET);
writeCertificate(makeAuthority(folder, 'first'), 'gate', folder);
const gate = await GateLives.start({
  index: 0,
  folder,
  sections: (port) => toSections(port, []),
  // As the image in a container of 192 MiB, the default of the injector.
  nodeOptions: `--max-old-space-size=96 --import ${join(import.meta.dirname, 'count-resources.ts')}`,
});
const rotations = new Rotations(gate, [SECRET, SECRET], (more) => toSections(gate.port, more));
process.once('exit', () => gate.signal('SIGKILL'));

/** Lets the gate collect its garbage, and counts what is left. */
async function countHeld(): Promise<Held> {
  rmSync(counted, { force: true });
  gate.signal('SIGUSR2');
  const text = await until(() => {
    try {
      return readFileSync(counted, 'utf8');
    } catch {
      return undefined;
    }
  });
  return { ...(JSON.parse(text) as CountedResources), descriptors: readResources(gate.life.pid).descriptors };
}

/** Counts once the gate is calm. */
async function countCalm(): Promise<Held> {
  await new Promise((resolve) => setTimeout(resolve, CALM_MS));
  return countHeld();
}

/** One run of the load; values in MiB. */
interface LoadRun {
  readonly load: Load;
  /** Resident memory as the system shows it, garbage included. */
  readonly resident: Sample[];
  /** Resident memory after a collection. */
  readonly collected: Sample[];
}

/** Runs a load of its own for a time, so that each is stopped before it is counted what is held. */
async function runLoad(rate: number, duration: number): Promise<LoadRun> {
  const load = new Load(gate.port, apiPort, () => rotations.secret);
  const resident: Sample[] = [];
  const collected: Sample[] = [];
  load.start(rate);
  const startedAt = performance.now();
  const due = { ...EVERY_S } as Record<keyof typeof EVERY_S, number>;
  let collectAt = COLLECT_EVERY_S;
  for (let at = 0; at < duration; at = performance.now() - startedAt) {
    for (const kind of Object.keys(due) as (keyof typeof EVERY_S)[]) {
      if (at < due[kind] * 1_000) continue;
      due[kind] += EVERY_S[kind];
      rotations[kind]();
      if (kind === 'certificate') load.reconnect();
    }
    resident.push({ at: at / 60_000, value: readResources(gate.life.pid).residentBytes / MIB });
    if (at >= collectAt * 1_000) {
      collectAt += COLLECT_EVERY_S;
      collected.push({ at: at / 60_000, value: (await countHeld()).residentMiB });
    }
    await new Promise((resolve) => setTimeout(resolve, SAMPLE_MS));
  }
  await load.stop();
  return { load, resident, collected };
}

const calibration = new Load(gate.port, apiPort, () => rotations.secret);
const most = await calibration.measureRate(CALIBRATION_MS);
await calibration.stop();
const rate = Math.round(most / 2);
await runLoad(rate, 60_000);
const before = await countCalm();
const { load, resident, collected } = await runLoad(rate, MINUTES * 60_000);
const after = await countCalm();
await gate.scrape();
const second = collected.slice(Math.floor(collected.length / 2));
const slope = findSlope(second);
const growth = slope * ((second.at(-1)?.at ?? 0) - (second[0]?.at ?? 0));
const metrics = gate.life.scrape?.text ?? '';

/** Why deliveries were rejected: the response does not always say it. */
function countRejections(): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const [, labels = '', count] of metrics.matchAll(/^sidegate_auth_decisions_total\{(.*)\} (\d+)$/gm)) {
    if (!labels.includes('decision="deny"') || Number(count) === 0) continue;
    const [, reason = ''] = /reason="(\w+)"/.exec(labels) ?? [];
    counts[reason] = (counts[reason] ?? 0) + Number(count);
  }
  return counts;
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}

function toSummary(samples: readonly Sample[]): Record<string, number> {
  const found = samples.map(({ value }) => round(value));
  const at = (index: number): number => found.at(index) ?? Number.NaN;
  return { first: at(0), middle: at(Math.floor(found.length / 2)), last: at(-1), max: Math.max(...found) };
}

const problems: string[] = [];
const check = (isTrue: boolean, text: string): void => void (isTrue || problems.push(text));
check(MINUTES < MIN_TREND_MINUTES || growth <= MAX_GROWTH_MIB, `memory grew by ${growth.toFixed(1)} MiB in the second half`);
for (const what of ['descriptors', 'timers', 'listeners'] as const)
  check(after[what] <= before[what] + MAX_MORE, `${after[what]} ${what}, before ${before[what]}`);
check(after.heapMiB <= before.heapMiB + MAX_MORE_HEAP_MIB, `${after.heapMiB} MiB of live objects, before ${before.heapMiB}`);
check(
  after.residentMiB <= before.residentMiB + MAX_MORE_RESIDENT_MIB,
  `${after.residentMiB} MiB resident at rest, before ${before.residentMiB}`,
);
for (const [type, count] of Object.entries(after.active))
  check(count <= (before.active[type] ?? 0) + MAX_MORE, `${count} × ${type}, before ${before.active[type] ?? 0}`);
for (const [status, count] of load.statuses) check(['200', 'event 202'].includes(status), `${count} × ${status}`);
check(sumSeries(metrics, 'sidegate_config_last_reload_successful') === 1, 'the last reload failed');
check(sumSeries(metrics, 'sidegate_escaped_errors_total') === 0, 'an exception escaped');

const report = {
  minutes: MINUTES,
  ratePerSecond: rate,
  mostPerSecond: Math.round(most),
  responses: Object.fromEntries(load.statuses),
  rejections: countRejections(),
  rotations: rotations.counts,
  residentMiB: toSummary(resident),
  collectedMiB: toSummary(collected),
  slopeMiBPerMinute: round(slope),
  growthInSecondHalfMiB: round(growth),
  before,
  after,
  problems,
};
console.log(JSON.stringify(report, undefined, 2));
if (values.write) writeRunResults('soak', report);
await gate.kill();
await redis.stop();
rotations.remove();
rmSync(folder, { recursive: true, force: true });
process.exit(problems.length === 0 ? 0 : 1);
