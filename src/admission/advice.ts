/** What is worth a warning although the pod may be: a config that the sidecar will not start with, variables that it does not have, replicas that forget what the others handled. */
import type { Config } from '../config/config.ts';
import { type LoadResult, parseConfig } from '../config/load.ts';
import type { Problem } from '../config/problem.ts';
import type { Clock, Milliseconds } from '../core/clock.ts';
import { CONFIG_FOLDER, CONFIG_KEY } from '../injector/names.ts';
import { objectAt, textAt } from '../injector/raw.ts';
import type { OwnerReference } from '../injector/review.ts';
import type { Found, Lookups } from './lookups.ts';
import type { AdvisedPod } from './reviewer.ts';
import { warnOfVariables } from './variables.ts';

/** What it stands on. */
export interface AdviceParts {
  readonly lookups: Lookups;
  readonly clock: Clock;
  readonly onLate: () => void;
}

/** Nobody waits longer for a warning. */
const AT_MOST_MS: Milliseconds = 300;
const REPLICATED: Readonly<Record<string, string>> = { ReplicaSet: 'replicasets', StatefulSet: 'statefulsets' };

/** Builds it; what it gives never rejects. */
export function createAdvice({ lookups, clock, onLate }: AdviceParts): (pod: AdvisedPod) => Promise<readonly string[]> {
  return (pod) =>
    new Promise((resolve) => {
      const cancel = clock.after(AT_MOST_MS, () => {
        onLate();
        resolve([]);
      });
      const done = (warnings: readonly string[]): void => {
        cancel();
        resolve(warnings);
      };
      advise(pod, lookups, clock).then(done, () => done([]));
    });
}

async function advise({ request, configMap, overrides }: AdvisedPod, lookups: Lookups, clock: Clock): Promise<string[]> {
  if (configMap === undefined) return [];
  const { namespace, owner } = request;
  const [found, replicas] = await Promise.all([
    lookups.find('/api/v1', namespace, 'configmaps', configMap),
    findReplicas(lookups, namespace, owner),
  ]);
  const read = readGate(found, configMap, (file, text) => parseConfig(file, text, clock, { overrides }));
  if ('warning' in read) return read.warning === undefined ? [] : [read.warning];
  const warning = owner === undefined ? undefined : warnOfReplicas(read.config, owner, replicas);
  return [...warnOfVariables(read.config, configMap), ...(warning === undefined ? [] : [warning])];
}

/** The config as the sidecar will read it, or what keeps it from starting. */
function readGate(
  found: Found,
  name: string,
  judge: (file: string, text: string) => LoadResult,
): { readonly config: Config } | { readonly warning: string | undefined } {
  if (found === 'unknown') return { warning: undefined };
  if (found === 'absent') return { warning: `there is no ConfigMap ${name}: the pod waits for it` };
  const text = textAt(objectAt(found.object, 'data'), CONFIG_KEY);
  if (text === undefined) return { warning: `ConfigMap ${name} has no ${CONFIG_KEY}: the sidecar does not start without it` };
  // Where it will lie, so that files are found beside it; they are not read here.
  const { config, problems } = judge(`${CONFIG_FOLDER}/${CONFIG_KEY}`, text);
  if (config !== undefined) return { config };
  const errors = problems.filter(({ severity }) => severity === 'error');
  const more = errors.length > 1 ? ` (and ${errors.length - 1} more)` : '';
  return { warning: `ConfigMap ${name} is no config that the sidecar starts with: ${toText(errors[0])}${more}` };
}

function toText(problem: Problem | undefined): string {
  if (problem === undefined) return 'it cannot be read';
  const { line, path, message } = problem;
  return `${line === undefined ? '' : `line ${line}, `}${path === '' ? '' : `${path}: `}${message}`;
}

async function findReplicas(lookups: Lookups, namespace: string, owner: OwnerReference | undefined): Promise<number> {
  const resource = owner?.apiVersion === 'apps/v1' ? REPLICATED[owner.kind] : undefined;
  if (owner === undefined || resource === undefined) return 0;
  const found = await lookups.find('/apis/apps/v1', namespace, resource, owner.name);
  if (found === 'unknown' || found === 'absent') return 0;
  const { replicas } = objectAt(found.object, 'spec') as { replicas?: unknown };
  return typeof replicas === 'number' ? replicas : 1;
}

function warnOfReplicas({ routes, store }: Config, { kind, name }: OwnerReference, replicas: number): string | undefined {
  const route = routes.find(({ webhook }) => webhook !== undefined && (webhook.dedup !== 'off' || webhook.order !== undefined));
  if (replicas < 2 || store.redis !== undefined || route === undefined) return undefined;
  return `${kind} ${name} has ${replicas} replicas, and its gate no store.redis: each remembers alone what it handled, so a repeated delivery of route ${route.name} reaches the app again by another replica`;
}
