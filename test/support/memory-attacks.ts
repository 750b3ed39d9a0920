/** Floods against a gate under a memory limit, and what must hold during each of them. */
import { request } from 'node:http';
import { request as requestTls } from 'node:https';
import { expect } from 'vitest';
import { type Delivery, makeDelivery } from './deliveries.ts';
import { type FloodOptions, flood, type Target, toHead, toTinyChunks } from './floods.ts';
import { type Sections, toRoute } from './gate.ts';
import type { CgroupProcess } from './memory-cgroup.ts';

/** The path of the route that `toSections` makes. */
const PATH = '/hooks/billing';
const MEGABYTE = Buffer.alloc(1_000_000, 0x61);
const INVALID = makeDelivery();
const PAUSE_MS = 50;
const LOOPBACK = { host: '127.0.0.1', from: '127.0.0.2' };

/** What is sent on one connection after another. */
export type Attack = FloodOptions['request'];

const invalid = (framing: Readonly<Record<string, string>>): string => toHead(PATH, { ...INVALID.headers, ...framing });
const LENGTH = { 'Content-Length': String(MEGABYTE.length) };
const CHUNKED = { 'Transfer-Encoding': 'chunked' };

/** Each fails on the code before bodies had a budget, with enough connections. */
export const ATTACKS = {
  'chunks of one byte': function* () {
    yield invalid(CHUNKED);
    yield* toTinyChunks(500_000);
  },
  'forged bodies with a length': () => [invalid(LENGTH), MEGABYTE],
  'forged bodies in chunks': () => [invalid(CHUNKED), `${MEGABYTE.length.toString(16)}\r\n`, MEGABYTE, '\r\n0\r\n\r\n'],
  'valid bodies': () => {
    const { headers } = makeDelivery({ body: MEGABYTE });
    return [toHead(PATH, { ...headers, ...LENGTH }), MEGABYTE];
  },
  'bodies that never end': () => [invalid(LENGTH), MEGABYTE.subarray(0, 900_000)],
} as const satisfies Readonly<Record<string, Attack>>;

/** A gate with one webhook route to an app. */
export function toSections(appPort: number, over: Sections = {}): Sections {
  return { ...over, routes: [toRoute(appPort)] };
}

/** How an attack is made. */
export interface AttackOptions extends Omit<FloodOptions, 'request' | 'from' | 'port'> {
  readonly attack: Attack;
  /** Sends one small valid request meanwhile; a delivery if omitted. */
  readonly honest?: (port: number) => Promise<number>;
}

/** Attacks, and meanwhile sends small valid requests, one after another; resolves with the status of each of those. */
export async function sendDuringAttack(
  attack: FloodOptions,
  send: () => Promise<number>,
  isAlive: () => boolean = () => true,
): Promise<number[]> {
  const statuses: number[] = [];
  let isOver = false;
  const honest = (async () => {
    while (!isOver && isAlive()) {
      statuses.push(await send());
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  })();
  await flood(attack);
  isOver = true;
  await honest;
  return statuses;
}

/** Attacks from one address while another sends small valid deliveries: each of them is handled, and nothing is killed. */
export async function expectSurvival(
  gate: CgroupProcess & { readonly port: number; readonly adminPort: number },
  options: AttackOptions,
): Promise<void> {
  const { attack, honest: send = () => sendDelivery(gate.port, makeDelivery()), ...rest } = options;
  const { port } = gate;
  const statuses = await sendDuringAttack({ ...rest, port, request: attack }, () => send(port), gate.isAlive);
  expect({ alive: gate.isAlive(), oomKills: gate.oomKills() }).toEqual({ alive: true, oomKills: 0 });
  expect(statuses.length).toBeGreaterThan(0);
  expect(new Set(statuses), await readLimitHits(`http://127.0.0.1:${gate.adminPort}`)).toEqual(new Set([200]));
}

/** Which limits were hit, for the message of a failed assertion. `adminUrl`: the base of the admin port. */
export async function readLimitHits(adminUrl: string): Promise<string> {
  const text = await (await fetch(`${adminUrl}/metrics`)).text();
  const lines = text
    .split('\n')
    .filter((line) => /^sidegate_(?:limit_hits_total|buffered_bytes)/.test(line) && !line.endsWith(' 0'));
  return lines.join('\n');
}

/** The status of a delivery from an address that no flood comes from; 0 where no answer came. */
export function sendDelivery(
  port: number,
  { headers, body }: Delivery,
  isTls = false,
  { host, from }: Required<Omit<Target, 'port'>> = LOOPBACK,
): Promise<number> {
  const options = { host, port, localAddress: from, method: 'POST', path: PATH, headers, agent: false };
  return new Promise((resolve) => {
    const outgoing = isTls ? requestTls({ ...options, rejectUnauthorized: false }) : request(options);
    outgoing.on('response', (incoming) => {
      incoming.resume();
      resolve(incoming.statusCode ?? 0);
    });
    outgoing.setTimeout(20_000, () => outgoing.destroy(new Error('no response within 20 s')));
    outgoing.on('error', () => resolve(0));
    outgoing.end(body);
  });
}
