/** Users who repeatedly send the right password: measures the cost of a request with a known password. */
import { get } from 'node:http';
import { join } from 'node:path';
import { readCpuMicroseconds, readRssMebibytes } from '../machine.ts';
import { type LoadResult, runWrk } from '../wrk.ts';
import { APP_ANSWER, type BasicEnvironment } from './basic-environment.ts';
import type { Gate, GateName } from './rivals.ts';
import { type Cast, findWrongStatuses } from './rows.ts';
import { toAuthorization, type User } from './users.ts';

/** Sends GET requests on keep-alive connections. */
export const REQUESTS_SCRIPT = join(import.meta.dirname, 'requests.lua');

/** The rows of the table. */
export const STEADY = {
  nginx: 'nginx `auth_basic`',
  caddy: 'Caddy `basic_auth`',
  quietCaddy: 'Caddy, no access log',
  own: 'sidegate `basic`',
  open: 'sidegate `allow: anyone`',
} as const;

interface Contestant {
  readonly label: string;
  readonly gate: GateName;
  readonly isQuiet?: boolean;
  readonly area: 'steady' | 'open';
  readonly connections?: number;
}

/** A rival that hashes at every request is fully busy with a few connections, and would respond to more only after all of them are hashed. */
const HASHING_CONNECTIONS = 4;
const CONTESTANTS: readonly Contestant[] = [
  { label: STEADY.nginx, gate: 'nginx', area: 'steady', connections: HASHING_CONNECTIONS },
  { label: STEADY.caddy, gate: 'caddy', area: 'steady' },
  { label: STEADY.quietCaddy, gate: 'caddy', isQuiet: true, area: 'steady' },
  { label: STEADY.own, gate: 'sidegate', area: 'steady' },
  { label: STEADY.open, gate: 'sidegate', area: 'open' },
];
const CONNECTIONS = 32;

/** Runs the scenario with all. */
export async function playSteady(cast: Cast): Promise<void> {
  for (const contestant of CONTESTANTS) {
    const gate = cast.gates.get(contestant.gate);
    if (gate === undefined) continue;
    const before = readCpuMicroseconds(gate.pids);
    const load = await sendSteadily(cast, contestant, gate);
    const cpu = readCpuMicroseconds(gate.pids) - before;
    cast.tell({
      scenario: 'steady',
      label: contestant.label,
      figures: {
        'CPU µs/request': cpu / load.requests,
        'requests/s': load.requests / load.seconds,
        'RSS MiB': readRssMebibytes(gate.pids),
      },
      wrong: findWrongStatuses(load, ['200']),
    });
  }
}

/** Warms a gate up: V8 still compiles during the first requests, and the passwords are not yet known. */
export async function warmUp(cast: Pick<Cast, 'environment' | 'seconds'>, gate: Gate): Promise<void> {
  await checkGate(cast.environment, gate);
  const areas = gate.name === 'sidegate' ? (['steady', 'open'] as const) : (['steady'] as const);
  const seconds = Math.ceil(cast.seconds / areas.length);
  const connections = gate.name === 'nginx' ? HASHING_CONNECTIONS : CONNECTIONS;
  for (const area of areas) await sendSteadily({ ...cast, seconds }, { area, connections }, gate);
}

/** Checks each rival first, because loads only count statuses: a gate that responds itself, or rejects nothing, would be the fastest. */
async function checkGate({ users }: BasicEnvironment, { name, port, quietPort }: Gate): Promise<void> {
  const [user] = users.steady as readonly [User, ...User[]];
  for (const at of name === 'caddy' ? [port, quietPort] : [port]) {
    const known = await ask(at, { Authorization: toAuthorization(user).replace(/^Authorization: /, '') });
    if (known.text !== APP_ANSWER) throw new Error(`${name} answers a known user with ${known.status} ${known.text}`);
    const anonymous = await ask(at, {});
    if (anonymous.status !== 401) throw new Error(`${name}: status ${anonymous.status} without a password`);
  }
}

function ask(port: number, headers: Readonly<Record<string, string>>): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const options = { host: '127.0.0.1', port, path: '/steady/page', headers: { Host: 'app.example', ...headers }, agent: false };
    get(options, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk;
      });
      response.once('end', () => resolve({ status: response.statusCode ?? 0, text }));
    }).once('error', reject);
  });
}

/** Sends for some seconds, each request after the response to the previous one. */
export function sendSteadily(
  { environment, seconds }: Pick<Cast, 'environment' | 'seconds'>,
  { area, isQuiet = false, connections = CONNECTIONS }: Pick<Contestant, 'area' | 'isQuiet' | 'connections'>,
  gate: Gate,
): Promise<LoadResult> {
  const port = isQuiet ? gate.quietPort : gate.port;
  const file = area === 'open' ? environment.requests.nobody : environment.requests.known;
  return runWrk({ port, path: `/${area}/page`, script: REQUESTS_SCRIPT, args: [file], seconds, connections });
}
