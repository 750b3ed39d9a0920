/** Eight connections guess the password of one user: measures the effect on all other clients. */
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { OTHER_CORE, run } from '../children.ts';
import type { PacedResult } from '../open-loop.ts';
import { runWrk } from '../wrk.ts';
import type { HonestOptions, HonestResult } from './honest.ts';
import type { Gate, GateName } from './rivals.ts';
import { type Cast, findWrongStatuses } from './rows.ts';
import { REQUESTS_SCRIPT } from './steady.ts';
import { toAuthorization, writeRequests } from './users.ts';

/** The figures of the goal. */
export const STORM_P99 = { cached: 'known p99 ms', nobody: 'no password p99 ms' } as const;
/** The prefix of the rows of sidegate. */
export const STORM_OWN = 'sidegate, ';
/** The row without a storm. */
export const STORM_CALM = 'sidegate, no storm';

interface Variant {
  readonly label: string;
  readonly gate: GateName;
  readonly area: 'limited' | 'unlimited';
  /** The number of source addresses of the guesses; undefined: there are no guesses. */
  readonly from?: 'one' | 'many';
  /** Rivals with a cache also get requests with a known password. */
  readonly hasCache: boolean;
}

const VARIANTS: readonly Variant[] = [
  { label: 'nginx `auth_basic`', gate: 'nginx', area: 'unlimited', from: 'one', hasCache: false },
  { label: 'Caddy `basic_auth`', gate: 'caddy', area: 'unlimited', from: 'one', hasCache: true },
  { label: STORM_CALM, gate: 'proxied', area: 'unlimited', hasCache: true },
  { label: `${STORM_OWN}limit off, one address`, gate: 'proxied', area: 'unlimited', from: 'one', hasCache: true },
  { label: `${STORM_OWN}limit off, an address a guess`, gate: 'proxied', area: 'unlimited', from: 'many', hasCache: true },
  { label: `${STORM_OWN}limit on, one address`, gate: 'proxied', area: 'limited', from: 'one', hasCache: true },
  { label: `${STORM_OWN}limit on, an address a guess`, gate: 'proxied', area: 'limited', from: 'many', hasCache: true },
];
const HONEST = join(import.meta.dirname, 'honest.ts');
const GUESSERS = 8;
/** Per kind of legitimate client: far below the capacity of any gate. */
const RATE = 200;
/** Guessing starts before the measurement and ends after it. */
const LEAD_MS = 1_500;
const MARGIN_SECONDS = 3;
const EXTRA_MS = 25_000;
const HONEST_ADDRESS = '203.0.113.9';

/** Runs the scenario with all. */
export async function playStorm(cast: Cast): Promise<void> {
  for (const variant of VARIANTS) {
    const gate = cast.gates.get(variant.gate);
    if (gate !== undefined) await playVariant(cast, variant, gate);
  }
}

async function playVariant(cast: Cast, variant: Variant, gate: Gate): Promise<void> {
  const { environment, seconds } = cast;
  const path = `/${variant.area}/page`;
  const address = `X-Forwarded-For: ${HONEST_ADDRESS}`;
  const nobody = writeRequests(environment.folder, 'honest-nobody.requests', [[address]]);
  const cached = writeRequests(environment.folder, 'honest-cached.requests', [
    [toAuthorization(environment.users.storm[1]), address],
  ]);
  const isKnown = variant.hasCache;
  if (isKnown) await send({ port: gate.port, path, rate: 1, seconds: 1, files: { cached } });
  const file = variant.from === 'many' ? environment.requests.guessesOfMany : environment.requests.guessesOfOne;
  const storm = { port: gate.port, path, script: REQUESTS_SCRIPT, args: [file], connections: GUESSERS };
  // The guessing processes run at low priority, so that the test measures the gate, not the competition between senders.
  const guessing = variant.from === undefined ? undefined : runWrk({ ...storm, seconds: seconds + MARGIN_SECONDS, isNice: true });
  await pause(LEAD_MS);
  const files = isKnown ? { cached, nobody } : { nobody };
  const honest = await send({ port: gate.port, path, rate: RATE, seconds, files });
  const guesses = await guessing;
  const nobodys = honest['nobody'] as PacedResult;
  const late = Math.max(...Object.values(honest).map(({ senderLateP99 }) => senderLateP99));
  cast.tell({
    scenario: 'storm',
    label: variant.label,
    figures: {
      'guesses/s': guesses === undefined ? 0 : guesses.requests / guesses.seconds,
      'known p50 ms': honest['cached']?.p50 ?? Number.NaN,
      [STORM_P99.cached]: honest['cached']?.p99 ?? Number.NaN,
      'no password p50 ms': nobodys.p50,
      [STORM_P99.nobody]: nobodys.p99,
      'sender late p99 ms': late,
    },
    wrong: [
      ...(honest['cached'] === undefined ? [] : findWrongStatuses(honest['cached'], ['200'])),
      // A rival that hashes in its serving thread may not respond to some requests during the measurement, which is slow but not wrong.
      ...findWrongStatuses(isKnown ? nobodys : { ...nobodys, failed: 0 }, ['401']),
      ...(guesses === undefined ? [] : findWrongStatuses(guesses, variant.area === 'limited' ? ['401', '429'] : ['401'])),
    ],
  });
}

async function send(options: HonestOptions): Promise<HonestResult> {
  const args = [HONEST, JSON.stringify(options)];
  const text = await run({ core: OTHER_CORE, command: process.execPath, args }, options.seconds * 1000 + EXTRA_MS);
  return JSON.parse(text) as HonestResult;
}
