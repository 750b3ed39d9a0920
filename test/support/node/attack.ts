/**
 * Runs inside the node: attacks sidecars from the node's address in the network of the pods, and sends each of them small valid deliveries
 * from another address of the node. Prints the statuses of those as JSON, by host; the last one was sent after the attack, and again as long
 * as it got 503.
 */
import { argv, stdout } from 'node:process';
import { makeDelivery } from '../deliveries.ts';
import { toHead } from '../floods.ts';
import { ATTACKS, type Attack, sendDelivery, sendDuringAttack } from '../memory-attacks.ts';
import { toBasic } from '../users.ts';
import { NODE_ADDRESS } from './machine.ts';

/** What to attack, and how. */
export interface NodeAttack {
  readonly attack: keyof typeof NODE_ATTACKS;
  readonly hosts: readonly string[];
  readonly port: number;
  readonly connections: number;
  readonly milliseconds: number;
}

/** The route that asks for a password. */
export const LOGIN_PATH = '/admin';
/** How long a sidecar may reject deliveries after an attack. */
const AFTERMATH_MS = 5_000;
const GUESSES = 'guesses at passwords';
let guesses = 0;

/** All attacks, by name. */
export const NODE_ATTACKS = { ...ATTACKS, [GUESSES]: guess } as const satisfies Readonly<Record<string, Attack>>;

/** Each guess seems to come from another client behind a trusted proxy, as from a botnet: one client would be banned. */
function guess(): Iterable<string> {
  const number = guesses++;
  const from = [10, number >> 16, (number >> 8) & 255, number & 255].join('.');
  const fields = { ...toBasic(`user-${number}`, `guess ${number}`), 'X-Forwarded-For': from, 'Content-Length': '0' };
  return [toHead(LOGIN_PATH, fields)];
}

async function attackAll({ attack, hosts, port, connections, milliseconds }: NodeAttack): Promise<Record<string, number[]>> {
  const from = attack === GUESSES ? { from: NODE_ADDRESS } : {};
  const flood = { port, connections, milliseconds, request: NODE_ATTACKS[attack], ...from };
  const results = hosts.map(async (host): Promise<[string, number[]]> => {
    const send = (): Promise<number> => sendDelivery(port, makeDelivery(), false, { host, from: NODE_ADDRESS });
    const statuses = await sendDuringAttack({ ...flood, host }, send);
    const patience = AbortSignal.timeout(AFTERMATH_MS);
    do statuses.push(await send());
    while (statuses.at(-1) === 503 && !patience.aborted);
    return [host, statuses];
  });
  return Object.fromEntries(await Promise.all(results));
}

if (import.meta.main) stdout.write(JSON.stringify(await attackAll(JSON.parse(argv[2] ?? ''))));
