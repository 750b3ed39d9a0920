/** Judges the gates' configs that pods name: anyone may have written them, so what it costs is bounded, and nothing is judged twice. */

import { parseConfig } from '../../config/load/load.ts';
import type { Overrides } from '../../config/load/overrides.ts';
import { type Config, remembersIds } from '../../config/schema/config.ts';
import type { Problem } from '../../config/schema/problem.ts';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { CONFIG_FOLDER, CONFIG_KEY } from '../injector/names.ts';
import { type Kept, LONGEST_GATE } from './lookups.ts';
import { warnOfVariables } from './variables.ts';

/** What is kept of a config: no more than warnings need. */
export interface Verdict {
  /** Why the sidecar does not start with it, or which variables it would look for in vain. */
  readonly warnings: readonly string[];
  /** The first of the routes that remember something, where nothing is shared. */
  readonly forgetful: string | undefined;
}

const MOST_REMEMBERED = 256;
const MAX_PROBLEMS = 20;
const LONGEST_TEXT = 1_000;
/** What somebody writes by hand takes some milliseconds. */
const SLOW_MS: Milliseconds = 100;
/** After what is slow come so many times as long without: four fifths of the time are left for reviews, whatever is sent. */
const RESTS = 4;

/** Judges, one after another. */
export class Verdicts {
  readonly #clock: Clock;
  readonly #remembered = new Map<string, Verdict>();
  #restsUntil: Milliseconds = Number.NEGATIVE_INFINITY;
  /** The first takes what all of them need and keep. */
  #isWarm = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Undefined where there is no time for it now. */
  judge(name: string, { edition, gate, gateLength }: Kept, overrides: Overrides): Verdict | undefined {
    if (gate === undefined) return { warnings: [toUnjudged(name, gateLength)], forgetful: undefined };
    const key = edition === undefined ? undefined : `${edition} ${JSON.stringify(overrides)}`;
    const known = key === undefined ? undefined : this.#remembered.get(key);
    if (known !== undefined) return known;
    const start = this.#clock.monotonic();
    if (start < this.#restsUntil) return undefined;
    // Where it will lie, so that files are found beside it; they are not read here.
    const file = `${CONFIG_FOLDER}/${CONFIG_KEY}`;
    const { config, problems } = parseConfig(file, gate, this.#clock, { overrides, maxProblems: MAX_PROBLEMS });
    const verdict =
      config === undefined
        ? { warnings: [toWarning(name, problems)], forgetful: undefined }
        : { warnings: warnOfVariables(config, name).map(toBounded), forgetful: findForgetful(config) };
    if (key !== undefined) this.#remember(key, verdict);
    this.#rest(this.#clock.monotonic(), start);
    return verdict;
  }

  #rest(now: Milliseconds, start: Milliseconds): void {
    if (this.#isWarm && now - start > SLOW_MS) this.#restsUntil = now + RESTS * (now - start);
    this.#isWarm = true;
  }

  #remember(key: string, verdict: Verdict): void {
    this.#remembered.set(key, verdict);
    const oldest = this.#remembered.size > MOST_REMEMBERED ? this.#remembered.keys().next().value : undefined;
    if (oldest !== undefined) this.#remembered.delete(oldest);
  }
}

function toUnjudged(name: string, length: number): string {
  if (length === 0) return `ConfigMap ${name} has no ${CONFIG_KEY}: the sidecar does not start without it`;
  return `${CONFIG_KEY} of ConfigMap ${name} has ${length} characters, and more than ${LONGEST_GATE} are not judged here: run sidegate check on it`;
}

function toWarning(name: string, problems: readonly Problem[]): string {
  const errors = problems.filter(({ severity }) => severity === 'error');
  const others = errors.length - 1;
  const more = others < 1 ? '' : ` (and ${problems.length < MAX_PROBLEMS ? '' : 'at least '}${others} more)`;
  return `ConfigMap ${name} is no config that the sidecar starts with: ${toBounded(toText(errors[0]))}${more}`;
}

/** Texts of the config's own stand in it, and it is kept. */
function toBounded(text: string): string {
  return text.slice(0, LONGEST_TEXT);
}

function toText(problem: Problem | undefined): string {
  if (problem === undefined) return 'it cannot be read';
  const { line, path, message } = problem;
  return `${line === undefined ? '' : `line ${line}, `}${path === '' ? '' : `${path}: `}${message}`;
}

function findForgetful({ routes, store }: Config): string | undefined {
  if (store.redis !== undefined) return undefined;
  return routes.find((route) => remembersIds(route) || route.webhook?.order !== undefined)?.name;
}
