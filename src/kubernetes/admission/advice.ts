/** Warnings about pods that are allowed: an invalid config, environment variables that the sidecar does not have, replicas without shared state. */

import { posix } from 'node:path';
import { type Overrides, parseConfig } from '../../config/load/load.ts';
import { type Config, remembersIds } from '../../config/schema/config.ts';
import { queueFileOf } from '../../config/schema/queue-choice.ts';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { isError, type LocatedProblem } from '../../core/problem.ts';
import { type KubeClient, type KubePath, toKubePath } from '../client/client.ts';
import { KubeError } from '../client/error.ts';
import { CONFIG_FOLDER, CONFIG_KEY, DOMAIN, QUEUE_FOLDER } from '../injector/names.ts';
import { objectAt, textAt } from '../injector/raw.ts';
import type { OwnerReference } from '../injector/review.ts';
import { explainReferences, findReferences } from '../injector/sidecar-config.ts';
import type { LookupOutcome } from './injector-metrics.ts';
import type { AdvisedPod } from './reviewer.ts';

/** Maximum time that a response waits for warnings. */
const MAX_WAIT_MS: Milliseconds = 300;
/** Of a path in a warning, which the API server truncates at 256 characters. */
const MAX_PATH_LENGTH = 40;
const REPLICATED: ReadonlyMap<string, string> = new Map([
  ['ReplicaSet', 'replicasets'],
  ['StatefulSet', 'statefulsets'],
]);

/** Creates the function that computes the warnings; it never rejects. */
export function createAdvice({
  lookups,
  clock,
  onLate,
}: {
  readonly lookups: Lookups;
  readonly clock: Clock;
  readonly onLate: () => void;
}): (pod: AdvisedPod) => Promise<readonly string[]> {
  const checks = new ConfigChecks(clock);
  return (pod) =>
    new Promise((resolve) => {
      const cancel = clock.after(MAX_WAIT_MS, () => {
        onLate();
        resolve([]);
      });
      const done = (warnings: readonly string[]): void => {
        cancel();
        resolve(warnings);
      };
      advise(pod, lookups, checks).then(done, () => done([]));
    });
}

async function advise(
  { request, configMap, queueVolume, overrides }: AdvisedPod,
  lookups: Lookups,
  checks: ConfigChecks,
): Promise<string[]> {
  if (configMap === undefined) return [];
  const { namespace, owner } = request;
  const [found, replicas] = await Promise.all([
    lookups.find('/api/v1', namespace, 'configmaps', configMap),
    findReplicas(lookups, namespace, owner),
  ]);
  if (found === 'unknown') return [];
  if (found === 'absent') return [`the ConfigMap ${configMap} does not exist: the pod does not start before it is created`];
  const checked = checks.check(configMap, found.object, overrides);
  if (checked === undefined) return [];
  const { warnings, unsharedRoute, queueFile } = checked;
  const all = [...warnings, ...warnOfQueue(configMap, queueFile, queueVolume)];
  if (owner === undefined || replicas < 2) return all;
  if (queueFile !== undefined)
    all.push(
      `${owner.kind} ${owner.name} has ${replicas} replicas, but its gate has no provider.queue.postgres: each has its own queue, so limits of endpoints apply to each, and endpoints created with the API exist in one replica only`,
    );
  if (unsharedRoute === undefined) return all;
  return [
    ...all,
    `${owner.kind} ${owner.name} has ${replicas} replicas, but its gate has no store.redis: each replica keeps its own state, so a repeated delivery of route ${unsharedRoute} reaches the app again through another replica`,
  ];
}

/** The sidecar's root file system is read-only, so the queue needs its volume. */
function warnOfQueue(configMap: string, file: string | undefined, volume: string | undefined): readonly string[] {
  if (file === undefined || (volume !== undefined && posix.normalize(file).startsWith(`${QUEUE_FOLDER}/`))) return [];
  const shown = file.slice(0, MAX_PATH_LENGTH);
  return [
    `the sidecar does not start, because the queue of ConfigMap ${configMap} is in ${shown}, on no volume: set ${DOMAIN}/queue-volume and provider.queue.sqlite.path: ${QUEUE_FOLDER}/queue.db`,
  ];
}

async function findReplicas(lookups: Lookups, namespace: string, owner: OwnerReference | undefined): Promise<number> {
  const resource = owner?.apiVersion === 'apps/v1' ? REPLICATED.get(owner.kind) : undefined;
  if (owner === undefined || resource === undefined) return 0;
  const found = await lookups.find('/apis/apps/v1', namespace, resource, owner.name);
  return found === 'unknown' || found === 'absent' ? 0 : (found.object.replicas ?? 1);
}

// Checks configs.

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

/** Checks the configs that pods refer to, one after another. They are untrusted, so the work is bounded and results are cached. */
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

/** A warning if the config in the ConfigMap `name` refers to variables. */
export function warnOfVariables(config: unknown, name: string): readonly string[] {
  const explained = explainReferences(findReferences(config));
  return explained === undefined ? [] : [`ConfigMap ${name}: ${explained.message}: ${explained.fix}`];
}

// Reads objects for warnings from the cluster: cached briefly, bounded in number, best effort.

/** The result of a look-up; `unknown` if the object could not be read. */
type LookupResult = { readonly object: Kept } | 'absent' | 'unknown';

/** The cached parts of an object. Nothing else is cached, because anyone can fill a ConfigMap with 1 MiB. */
interface Kept {
  /** Changes with every version of the object; undefined if unknown. */
  readonly edition: string | undefined;
  readonly replicas: number | undefined;
  /** The gate's config, unless it is too long. */
  readonly gate: string | undefined;
  readonly gateLength: number;
}

/** Maximum length of a config that is checked, in characters. */
const MAX_GATE_LENGTH = 32_768;

interface RememberedLookup {
  readonly at: Milliseconds;
  readonly found: Promise<LookupResult>;
}

const REMEMBERED_MS: Milliseconds = 5_000;
const MAX_IN_FLIGHT = 16;
const TIMEOUT_MS: Milliseconds = 2_000;
/** A ConfigMap has at most 1 MiB; one that is much larger as JSON is not read. */
const MAX_BYTES = 1_536 * 1024;
const NAME = /^[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?$/;

/** Looks up objects. */
export class Lookups {
  readonly #kube: Pick<KubeClient, 'request'>;
  readonly #clock: Clock;
  readonly #onOutcome: (outcome: LookupOutcome) => void;
  readonly #remembered = new Map<string, RememberedLookup>();
  #inFlight = 0;

  constructor(kube: Pick<KubeClient, 'request'>, clock: Clock, onOutcome: (outcome: LookupOutcome) => void) {
    this.#kube = kube;
    this.#clock = clock;
    this.#onOutcome = onOutcome;
  }

  /** `resource`: for example `/api/v1` and `configmaps`. Never rejects. */
  find(group: string, namespace: string, resource: string, name: string): Promise<LookupResult> {
    // The names are untrusted input: nothing is requested for one that no object can have.
    if (!NAME.test(namespace) || !NAME.test(name)) return Promise.resolve('unknown');
    const path = toKubePath(group, 'namespaces', namespace, resource, name);
    const now = this.#clock.monotonic();
    const known = this.#remembered.get(path);
    if (known !== undefined && now - known.at < REMEMBERED_MS) return known.found;
    if (this.#inFlight >= MAX_IN_FLIGHT) return Promise.resolve('unknown');
    const found = this.#read(path);
    this.#remembered.delete(path);
    this.#remembered.set(path, { at: now, found });
    const oldest = this.#remembered.size > MAX_REMEMBERED ? this.#remembered.keys().next().value : undefined;
    if (oldest !== undefined) this.#remembered.delete(oldest);
    return found;
  }

  async #read(path: KubePath): Promise<LookupResult> {
    this.#inFlight++;
    try {
      const object = await this.#kube.request<object>('GET', path, { timeout: TIMEOUT_MS, maxBytes: MAX_BYTES });
      this.#onOutcome('found');
      return { object: toKept(object) };
    } catch (thrown) {
      const status = thrown instanceof KubeError ? thrown.status : 0;
      this.#onOutcome(status === 404 ? 'absent' : status === 403 ? 'forbidden' : 'failed');
      return status === 404 ? 'absent' : 'unknown';
    } finally {
      this.#inFlight--;
    }
  }
}

function toKept(object: object): Kept {
  const { uid, resourceVersion } = objectAt(object, 'metadata');
  const { replicas } = objectAt(object, 'spec');
  const gate = textAt(objectAt(object, 'data'), CONFIG_KEY);
  const isKnown = typeof uid === 'string' && typeof resourceVersion === 'string';
  return {
    edition: isKnown ? `${uid}/${resourceVersion}` : undefined,
    replicas: typeof replicas === 'number' ? replicas : undefined,
    gate: gate !== undefined && gate.length <= MAX_GATE_LENGTH ? gate : undefined,
    gateLength: gate?.length ?? 0,
  };
}
