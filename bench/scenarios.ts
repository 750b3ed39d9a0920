/** The scenarios: the requests, the expected responses, and the requests that must reach the app. */
import { join } from 'node:path';
import type { BenchEnvironment } from './bench-environment.ts';
import { OTHER_CORE, run } from './children.ts';
import type { Handled, HandledLog } from './handled.ts';
import { readCpuMicroseconds, readRssMebibytes } from './machine.ts';
import type { PacedResult } from './open-loop.ts';
import type { Contestant } from './rivals.ts';
import { type Deliveries, writeDeliveries } from './sign.ts';
import { type LoadResult, replay } from './wrk.ts';

/** A scenario's short name. */
export type ScenarioName = 'accepted' | 'duplicate' | 'forged' | 'large' | 'paced';

/** The figures of one rival in one scenario of one round. */
export interface Measurement {
  readonly requests: number;
  readonly requestsPerSecond: number;
  /** CPU time of the gate per request. */
  readonly cpuMicroseconds: number;
  readonly rssMebibytes: number;
  /** The deviations from the expected result, as text; empty if there are none. */
  readonly wrong: readonly string[];
  /** Only for loads with a fixed rate. */
  readonly paced?: PacedResult;
}

/** One scenario. */
export interface Scenario {
  readonly name: ScenarioName;
  readonly title: string;
  readonly bodyBytes: number;
  readonly status: number;
  /** Whether each request reaches the app. */
  readonly isHandled: boolean;
  readonly isForged?: boolean;
  /** Signed deliveries per second of load; a list that is sent once must not run out. */
  readonly perSecond: number;
  readonly order: 'once' | 'again';
  /** Offered requests per second; default: as many as the gate handles. */
  readonly rate?: number;
}

/** The input of a scenario. */
export interface Cast {
  readonly environment: BenchEnvironment;
  readonly contestant: Contestant;
  readonly log: HandledLog;
  readonly seconds: number;
}

const KIBIBYTE = 1024;
const CONNECTIONS = 32;
const REPEATED_IDS = 500;
/** Low enough that no rival is near its limit, so that the times are those of a gate without overload. */
const PACED_RATE = 1_000;
const OPEN_LOOP = join(import.meta.dirname, 'open-loop.ts');
const EXTRA_MS = 25_000;

/** In the order of execution. */
export const SCENARIOS: readonly Scenario[] = [
  {
    name: 'accepted',
    title: 'accepted, 1 KiB',
    bodyBytes: KIBIBYTE,
    status: 200,
    isHandled: true,
    perSecond: 40_000,
    order: 'once',
  },
  {
    name: 'duplicate',
    title: 'duplicate, 1 KiB',
    bodyBytes: KIBIBYTE,
    status: 200,
    isHandled: false,
    perSecond: 0,
    order: 'again',
  },
  {
    name: 'forged',
    title: 'forged, 1 KiB',
    bodyBytes: KIBIBYTE,
    status: 401,
    isHandled: false,
    isForged: true,
    perSecond: 5_000,
    order: 'again',
  },
  {
    name: 'large',
    title: 'accepted, 256 KiB',
    bodyBytes: 256 * KIBIBYTE,
    status: 200,
    isHandled: true,
    perSecond: 4_000,
    order: 'once',
  },
  {
    name: 'paced',
    title: `accepted, 1 KiB, ${PACED_RATE}/s`,
    bodyBytes: KIBIBYTE,
    status: 200,
    isHandled: true,
    perSecond: PACED_RATE,
    order: 'once',
    rate: PACED_RATE,
  },
];

/** Sends the load of one scenario to one rival and checks the responses. */
export async function play(scenario: Scenario, cast: Cast): Promise<Measurement> {
  const { contestant, log } = cast;
  const deliveries = await prepare(scenario, cast);
  await log.skip();
  const before = readCpuMicroseconds(contestant.pids);
  const load = await (scenario.rate === undefined ? sendFast : sendPaced)(scenario, cast, deliveries);
  const cpu = readCpuMicroseconds(contestant.pids) - before;
  const handled = await log.count(deliveries.prefix);
  return {
    requests: load.requests,
    requestsPerSecond: load.requests / load.seconds,
    cpuMicroseconds: cpu / load.requests,
    rssMebibytes: readRssMebibytes(contestant.pids),
    wrong: [...findWrongAnswers(scenario, load), ...findWrongDeliveries(scenario, load, handled)],
    ...(load.paced === undefined ? undefined : { paced: load.paced }),
  };
}

/** Timestamps are current; deliveries that must be duplicates were sent before. */
async function prepare(scenario: Scenario, { environment, contestant, seconds }: Cast): Promise<Deliveries> {
  const { name, bodyBytes, isForged = false, perSecond } = scenario;
  const count = name === 'duplicate' ? REPEATED_IDS : Math.ceil(perSecond * seconds);
  const deliveries = writeDeliveries({ folder: environment.folder, name, count, bodyBytes, isForged }, environment.secret);
  if (name === 'duplicate') {
    const once = await sendPaced({ ...scenario, rate: REPEATED_IDS }, { environment, contestant, seconds }, deliveries);
    if (once.statuses['200'] !== REPEATED_IDS)
      throw new Error(`${contestant.name} rejected the first delivery of a duplicate: ${JSON.stringify(once.statuses)}`);
  }
  return deliveries;
}

async function sendFast(
  scenario: Scenario,
  { contestant, seconds }: Pick<Cast, 'contestant' | 'seconds'>,
  deliveries: Deliveries,
) {
  const options = { port: contestant.port, deliveries, seconds, connections: CONNECTIONS, order: scenario.order };
  return replay(options);
}

async function sendPaced(
  scenario: Scenario,
  { contestant, seconds }: Omit<Cast, 'log'>,
  deliveries: Deliveries,
): Promise<LoadResult> {
  const rate = scenario.rate ?? PACED_RATE;
  const args = [OPEN_LOOP, String(contestant.port), deliveries.file, deliveries.bodyFile, String(rate)];
  const text = await run({ core: OTHER_CORE, command: process.execPath, args }, seconds * 1000 + EXTRA_MS);
  const paced = JSON.parse(text) as PacedResult;
  return {
    requests: paced.sent - paced.failed,
    seconds: paced.sent / rate,
    statuses: paced.statuses,
    failed: paced.failed,
    paced,
  };
}

function findWrongAnswers({ status }: Scenario, { statuses, failed }: LoadResult): string[] {
  const wrong = Object.entries(statuses).filter(([code]) => code !== String(status));
  const lines = wrong.map(([code, count]) => `${count} × ${code} instead of ${status}`);
  return failed > 0 ? [...lines, `${failed} without a response`] : lines;
}

/** wrk stops with up to one request per connection in flight, so more requests may have reached the app than have a response. */
function findWrongDeliveries(
  { isHandled, rate }: Scenario,
  { requests }: LoadResult,
  { ids, repeated, strays }: Handled,
): string[] {
  const lines: string[] = [];
  if (repeated > 0) lines.push(`${repeated} events reached the app again`);
  if (strays > 0) lines.push(`${strays} events reached the app that were not sent`);
  const most = isHandled ? requests + (rate === undefined ? CONNECTIONS : 0) : 0;
  const least = isHandled ? requests : 0;
  if (ids < least) lines.push(`${least - ids} events were answered but never reached the app`);
  if (ids > most) lines.push(`${ids - most} events reached the app and should not have`);
  return lines;
}
