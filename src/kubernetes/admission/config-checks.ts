/** Checks the gate configs that pods refer to. They are untrusted, so the work is bounded and results are cached. */

import { parseConfig } from '../../config/load/load.ts';
import type { Overrides } from '../../config/load/overrides.ts';
import { type Config, remembersIds } from '../../config/schema/config.ts';
import { queueFileOf } from '../../config/schema/queue-choice.ts';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { isError, type LocatedProblem } from '../../core/problem.ts';
import { CONFIG_FOLDER, CONFIG_KEY, DOMAIN, SECRETS_FOLDER } from '../injector/names.ts';
import { type Kept, MAX_GATE_LENGTH } from './lookups.ts';

/** The cached result for a config. */
interface CheckedConfig {
  /** Why the sidecar does not start with it, or which variables are missing. */
  readonly warnings: readonly string[];
  /** The first route with state, if replicas do not share their state. */
  readonly unsharedRoute: string | undefined;
  /** The file of the embedded queue, if the config has one. */
  readonly queueFile: string | undefined;
}

const MAX_REMEMBERED = 256;
const MAX_PROBLEMS = 20;
const MAX_TEXT_LENGTH = 1_000;
/** A config that was written by hand takes a few milliseconds. */
const SLOW_MS: Milliseconds = 100;
/** After a slow check, further checks pause for this many times as long, so that four fifths of the time are left for reviews. */
const PAUSE_FACTOR = 4;

/** Checks configs, one after another. */
export class ConfigChecks {
  readonly #clock: Clock;
  readonly #remembered = new Map<string, CheckedConfig>();
  #pausedUntil: Milliseconds = Number.NEGATIVE_INFINITY;
  /** The first check is slower, because it initializes the parser. */
  #isWarm = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Undefined while checks are paused. */
  check(name: string, { edition, gate, gateLength }: Kept, overrides: Overrides): CheckedConfig | undefined {
    if (gate === undefined) return toWarned(toUncheckedWarning(name, gateLength));
    const key = edition === undefined ? undefined : `${edition} ${JSON.stringify(overrides)}`;
    const known = key === undefined ? undefined : this.#remembered.get(key);
    if (known !== undefined) return known;
    const start = this.#clock.monotonic();
    if (start < this.#pausedUntil) return undefined;
    // The path in the sidecar, so that relative paths resolve correctly; the files are not read here.
    const file = `${CONFIG_FOLDER}/${CONFIG_KEY}`;
    const { config, problems } = parseConfig(file, gate, this.#clock, { overrides, maxProblems: MAX_PROBLEMS });
    const checked =
      config === undefined
        ? toWarned(toWarning(name, problems))
        : {
            warnings: warnOfVariables(config, name).map(toBounded),
            unsharedRoute: findUnsharedRoute(config),
            queueFile: queueFileOf(config)?.slice(0, MAX_TEXT_LENGTH),
          };
    if (key !== undefined) this.#remember(key, checked);
    this.#pauseIfSlow(this.#clock.monotonic(), start);
    return checked;
  }

  #pauseIfSlow(now: Milliseconds, start: Milliseconds): void {
    if (this.#isWarm && now - start > SLOW_MS) this.#pausedUntil = now + PAUSE_FACTOR * (now - start);
    this.#isWarm = true;
  }

  #remember(key: string, checked: CheckedConfig): void {
    this.#remembered.set(key, checked);
    const oldest = this.#remembered.size > MAX_REMEMBERED ? this.#remembered.keys().next().value : undefined;
    if (oldest !== undefined) this.#remembered.delete(oldest);
  }
}

/** The result for a config that cannot be used. */
function toWarned(warning: string): CheckedConfig {
  return { warnings: [warning], unsharedRoute: undefined, queueFile: undefined };
}

function toUncheckedWarning(name: string, length: number): string {
  if (length === 0) return `ConfigMap ${name} has no ${CONFIG_KEY}: the sidecar does not start without it`;
  return `${CONFIG_KEY} of ConfigMap ${name} has ${length} characters; configs with more than ${MAX_GATE_LENGTH} are not checked here: run sidegate check on it`;
}

function toWarning(name: string, problems: readonly LocatedProblem[]): string {
  const errors = problems.filter(isError);
  const others = errors.length - 1;
  const more = others < 1 ? '' : ` (and ${problems.length < MAX_PROBLEMS ? '' : 'at least '}${others} more)`;
  return `the sidecar does not start with the config in ConfigMap ${name}: ${toBounded(toText(errors[0]))}${more}`;
}

/** Truncates a message, which contains untrusted text and is cached. */
function toBounded(text: string): string {
  return text.slice(0, MAX_TEXT_LENGTH);
}

function toText(problem: LocatedProblem | undefined): string {
  if (problem === undefined) return 'it cannot be parsed';
  const { line, path, message } = problem;
  return `${line === undefined ? '' : `line ${line}, `}${path === '' ? '' : `${path}: `}${message}`;
}

function findUnsharedRoute({ routes, store }: Config): string | undefined {
  if (store.redis !== undefined) return undefined;
  return routes.find((route) => remembersIds(route) || route.webhook?.order !== undefined)?.name;
}

interface Reference {
  readonly path: string;
  readonly variable: string;
}

/** Keys that refer to a variable, and the keys to use instead in a pod. */
const IN_A_POD: Readonly<Record<string, string>> = { env: 'file', passwordEnv: 'passwordFile' };
const FOLDER = `..${SECRETS_FOLDER.slice(SECRETS_FOLDER.lastIndexOf('/'))}`;

/** A warning if the config in the ConfigMap `name` refers to variables. */
export function warnOfVariables(config: unknown, name: string): readonly string[] {
  const [first, ...others] = findReferences(config, []);
  if (first === undefined) return [];
  const { path, variable } = first;
  const instead = IN_A_POD[path.slice(path.lastIndexOf('.') + 1)];
  const more = others.length > 0 ? ` (and ${others.length} more)` : '';
  return [
    `ConfigMap ${name}: ${path} is ${variable}${more}, but the sidecar has no such variable: write ${instead}: ${FOLDER}/NAME/KEY instead, and add the Secret's NAME to ${DOMAIN}/secrets`,
  ];
}

function findReferences(value: unknown, path: readonly string[]): Reference[] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) => {
    const here = [...path, key];
    if (key in IN_A_POD && typeof inner === 'string') return [{ path: here.join('.'), variable: inner }];
    return findReferences(inner, here);
  });
}
