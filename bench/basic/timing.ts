/** Measures whether response times reveal that a user exists, or how the password is stored. */
import { join } from 'node:path';
import { OTHER_CORE, run } from '../children.ts';
import type { GuessTimes, GuessTimesOptions } from './guess-times.ts';
import type { GateName } from './rivals.ts';
import { type Cast, findWrongStatuses } from './rows.ts';

/** A name that no user has, of the same length as the others. */
export const UNKNOWN = 'no-one-is';
/** The row of sidegate. */
export const TIMING_OWN = 'sidegate';

interface Contestant {
  readonly label: string;
  readonly gate: GateName;
  /** The users that it supports, by the prefix of their hash. */
  readonly knows: RegExp;
}

const CONTESTANTS: readonly Contestant[] = [
  { label: 'nginx `auth_basic`', gate: 'nginx', knows: /^\$(?:2y|6|apr1)\$/ },
  { label: 'Caddy `basic_auth`', gate: 'caddy', knows: /^\$2y\$/ },
  { label: TIMING_OWN, gate: 'proxied', knows: /^/ },
];
const GUESS_TIMES = join(import.meta.dirname, 'guess-times.ts');
const WITHIN_MS = 120_000;

/** Runs the scenario with all; `seconds` is the time per user. */
export async function playTiming({ environment, gates, seconds, tell }: Cast): Promise<void> {
  for (const { label, gate: name, knows } of CONTESTANTS) {
    const gate = gates.get(name);
    if (gate === undefined) continue;
    const users = environment.users.mixed.filter(({ hash }) => knows.test(hash)).map((user) => user.name);
    const perUser = seconds * 2;
    const known = Array.from({ length: perUser }, () => users).flat();
    const unknown = Array.from({ length: known.length }, () => UNKNOWN);
    const options: GuessTimesOptions = { port: gate.port, path: '/mixed/page', users: [...known, ...unknown] };
    const args = [GUESS_TIMES, JSON.stringify(options)];
    const { times, statuses } = JSON.parse(
      await run({ core: OTHER_CORE, command: process.execPath, args }, WITHIN_MS),
    ) as GuessTimes;
    tell({ scenario: 'timing', label, figures: {}, times, wrong: findWrongStatuses({ statuses, failed: 0 }, ['401']) });
  }
}
